import { EspalierError } from "@espalier/core";
import { type FuzzTarget, fuzzInFile } from "@espalier/testing";
import { test } from "vitest";
import { loadConfig, parseEnginesFile, parseSeedsFile } from "../../src/config/index.ts";

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString("utf8");
const isInvalid = (thrown: unknown): boolean => thrown instanceof EspalierError && thrown.code === "config_invalid";

const files = [
  `engines:
  - http://10.0.0.1:8000
  - {url: "http://10.0.0.2:8000/v1", id: b, models: [m], labels: {zone: a}}
listen: {host: 127.0.0.1, port: 8080}
limits:
  max-body-bytes: 32MiB
timeouts: {connect: 2s, idle: 5m}
retry: {statuses: [502, 503]}
api-keys:
  - {name: a, key: "\${KEY:-long-enough-key}"}
mesh: {listen: "127.0.0.1:7946", secret: 0123456789abcdef}
`,
  `x: &a [1, 2]
policy: cache_aware
pools:
  - models: ["*"]
    policy: least_tokens
log: {level: debug}
drain: {delay: 1s, grace: 1m}
`,
  '{"engines": ["http://127.0.0.1:1"], "breaker": {"window": "10s", "failure-share": 0.5}}',
];

const targets: readonly FuzzTarget[] = [
  {
    name: "configuration",
    seeds: files.map(utf8),
    refuses: isInvalid,
    read: (bytes) =>
      loadConfig({ file: { path: "x.yaml", text: textOf(bytes) }, env: { KEY: "a-key-of-some-length" } }),
  },
  {
    name: "engines' file",
    seeds: [
      utf8("- http://127.0.0.1:8000\n- {url: http://a:1, weight: 2, ranks: 4}\n"),
      utf8('[{"url":"http://a:1"}]'),
    ],
    refuses: isInvalid,
    read: (bytes) => parseEnginesFile(textOf(bytes), "engines.yaml"),
  },
  {
    name: "seeds' file",
    seeds: [utf8("- 127.0.0.1:7946\n- '[::1]:1'\n"), utf8('{"seeds":["a:1","b.example:65535"]}')],
    refuses: isInvalid,
    read: (bytes) => parseSeedsFile(textOf(bytes), "seeds.yaml"),
  },
];

fuzzInFile(test, "whatever is written is taken, or refused with what is wrong", targets);
