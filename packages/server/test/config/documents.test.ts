import Schema from "typebox/schema";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { configJsonSchema, flagCatalogue, renderConfigurationDocs } from "../../src/config/index.ts";
import { problemsOf } from "./loading.ts";

test("flags are unique and well formed, and belong to a group", () => {
  const flags = flagCatalogue.flatMap(({ flag, aliases }) => [flag, ...aliases]);
  expect(new Set(flags).size).toBe(flags.length);
  for (const flag of flags) expect(flag).toMatch(/^--[a-z0-9]+(-[a-z0-9]+)*$/);
  for (const entry of flagCatalogue) {
    expect(entry.description).toMatch(/^[A-Z`].*\.$/);
    expect(entry.group).not.toBe("");
    expect(entry.type).not.toBe("");
  }
});

test("a flag says what it takes, where it goes and what stands without it", () => {
  expect(flagCatalogue.find(({ flag }) => flag === "--listen-port")).toEqual({
    flag: "--listen-port",
    aliases: ["--port"],
    path: "listen.port",
    type: "an integer from 0 to 65535",
    description: "Port to listen on for clients. 0 takes any free port.",
    default: "8080",
    group: "Listen: Listener for clients, with the OpenAI- and Anthropic-compatible API.",
    isRepeatable: false,
  });
  expect(flagCatalogue.find(({ flag }) => flag === "--engine")).toMatchObject({
    path: "engines",
    group: "General",
    isRepeatable: true,
    default: "[]",
  });
  expect(flagCatalogue.find(({ flag }) => flag === "--policy")).toMatchObject({
    path: "policy.name",
    isRepeatable: false,
  });
  expect(flagCatalogue.find(({ flag }) => flag === "--admin-key")?.default).toBeUndefined();
});

test("the flags of one group stand together", () => {
  const groups = flagCatalogue
    .map(({ group }) => group)
    .filter((group, at, all) => group !== all[at - 1] && group !== "General");
  expect(new Set(groups).size).toBe(groups.length);
});

test("the document has every flag and variable, each in one row with its default", () => {
  const rows = renderConfigurationDocs().split("\n");
  for (const { flag, path, default: standard } of flagCatalogue) {
    const found = rows.filter((row) => row.startsWith(`| \`${path}\` |`));
    expect(found, path).toHaveLength(1);
    expect(found[0]).toContain(`\`${flag}\``);
    if (standard !== undefined) expect(found[0]).toContain(`\`${standard}\``);
  }
});

test.each([
  [
    "what stands in lists, without flag or variable",
    "| `pools[].engine-api-key` | a key of visible ASCII characters | none |  |  | yes | API key that",
  ],
  [
    "what stands in maps",
    "| `models.splits.*[].weight` | a number from 0 to 1000000 | required |  |  | yes | Relative share of the requests. |",
  ],
  [
    "bounds",
    "| `limits.max-body-bytes` | a size from 1KiB to 1GiB | `32MiB` | `ESPALIER_LIMITS_MAX_BODY_BYTES` | `--limits-max-body-bytes`, `--max-payload-size` |  |",
  ],
  [
    "what other routers call the same, with their flags",
    "| `ESPALIER_POLICY_PREFIX_TOKENS` | `--policy-prefix-tokens`, `--prefix-token-count` | yes | `prefix_hash`: tokens at " +
      "the start of a prompt that are hashed, in full blocks. Default: 256. `prefix-token-count` in SGLang and SMG. |",
  ],
  ["a short name", "| `ESPALIER_POLICY` | `--policy` |"],
  [
    "what a list holds",
    "| `engines` | a list, each plain text or a section; at most 10000 | `[]` | `ESPALIER_ENGINES` | `--engine`, `--worker-urls` | yes |",
  ],
])("the document shows %s", (_, expected) => {
  expect(renderConfigurationDocs()).toContain(expected);
});

test("every row of the document has the columns of its head, and no two blank lines follow each other", () => {
  const docs = renderConfigurationDocs();
  const cells = (row: string) => row.replaceAll("\\|", "").split("|").length;
  let head = 0;
  for (const line of docs.split("\n")) {
    if (!line.startsWith("|")) head = 0;
    else if (head === 0) head = cells(line);
    else expect(cells(line), line).toBe(head);
  }
  expect(docs).not.toContain("\n\n\n");
  expect(docs.endsWith("\n")).toBe(true);
});

const fitting = [
  "{}",
  "listen: { port: 1 }",
  "engines: [http://a, { url: http://b, role: prefill }]",
  "policy: random",
  "policy: { name: least_tokens }",
  "policy: cache_aware",
  "policy: { name: cache_aware, cache-threshold: 0.5, balance-abs-threshold: 32, balance-rel-threshold: 1.1 }",
  "policy: { name: epp_weighted, prefix-cache-weight: 1.5, no-hit-lru-weight: 1 }",
  "policy: { foreign-request-tokens: 16 }",
  "policy: { name: dynamo, router-temperature: 0.5 }",
  "policy: { name: affinity_filter, affinityThreshold: 0.9, maxTTFTPenaltyMs: 5000 }",
  "policy: { name: consistent_hashing, load-factor: 0 }",
  "drain: { delay: 5s, grace: 0 }",
  "limits: { max-body-bytes: 1MiB, max-header-bytes: 4096 }",
  "models: { aliases: { a: b }, splits: { s: [{ model: m, weight: 1 }] } }",
  "listen: { tls: { cert-file: a, key-file: b } }",
  "api-keys: [{ name: a, key: 12345678a }]",
];

const unfitting = [
  "listn: {}",
  "listen: { port: 70000 }",
  "listen: { tls: { cert-file: a } }",
  "engines: [{ id: a }]",
  "engines: [5]",
  "policy: { name: 5 }",
  "plugins: [5]",
  "policy: { name: consistent_hashing, load-factor: 0.5 }",
  "policy: { name: cache_aware, cache-threshold: 1.5 }",
  "policy: { name: prefix_hash, prefix-tokens: 16.5 }",
  "policy: { name: prefix_hash, prefix-token-count: 16.5 }",
  "policy: { name: affinity_filter, affinityThreshhold: 0.9 }",
  "drain: { delay: soon }",
  "drain: { delay: 5000 }",
  "timeouts: { idle: 0 }",
  "limits: { max-body-bytes: 1 }",
  "models: { splits: { s: [] } }",
  "models: { aliases: { a: 5 } }",
  "api-keys: [{ key: 12345678a }]",
  "pools: [{}]",
  "log: { level: loud }",
];

test.each(fitting)("the JSON Schema takes %s, as the loader does", (text) => {
  expect(Schema.Check(configJsonSchema, parse(text))).toBe(true);
  expect(problemsOf(text)).toEqual([]);
});

test.each(unfitting)("the JSON Schema refuses %s, as the loader does", (text) => {
  expect(Schema.Check(configJsonSchema, parse(text))).toBe(false);
  expect(problemsOf(text)).not.toEqual([]);
});

test("the JSON Schema is plain JSON without notes of our own", () => {
  const text = JSON.stringify(configJsonSchema);
  expect(JSON.parse(text)).toEqual(configJsonSchema);
  expect(text).not.toContain('"espalier"');
  expect(text).toContain("https://json-schema.org/draft/2020-12/schema");
});
