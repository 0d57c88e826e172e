import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { expect, test } from "vitest";
import { describeConfig, loadConfig, renderConfigYaml } from "../../src/config/index.ts";
import { load } from "./loading.ts";

test("the description has the keys of the file, every default, and units as text", () => {
  const described = describeConfig(
    load("engines: [http://a:1]\nlimits: { max-body-bytes: 1536KiB }\ndrain: { delay: 90s }"),
  );
  expect(described).toMatchObject({
    listen: { host: "127.0.0.1", port: 8080 },
    engines: [{ url: "http://a:1", models: [], role: "both", weight: 1, labels: {} }],
    limits: { "max-body-bytes": "1536KiB", "max-header-bytes": "32KiB", "max-nesting": 64 },
    drain: { delay: "90s", grace: "3m" },
    retry: { "budget-ratio": 0.2, statuses: [502, 503, 504] },
    timeouts: { "first-byte": "10m", "keep-alive": "75s" },
    "inject-usage": true,
  });
});

test("the YAML reads back as the same configuration", () => {
  const config = load(`
listen: { tls: { cert-file: "/a: b", key-file: "/#k" } }
engines: [{ url: https://e/x, labels: { "on": "yes", n: "1", empty: "" } }, http://f]
engine-tls: { verify: false }
policy: { name: consistent_hashing, load-factor: 0 }
pools: [{ models: ["a"], policy: least_tokens }, { models: ["*"], policy: { name: epp_weighted, queue-weight: 0 } }]
models: { aliases: { "null": "true" }, splits: { s: [{ model: "1e3", weight: 0.5 }] } }
`);
  expect(load(renderConfigYaml(config))).toEqual(config);
});

test("any duration and size survives being written and read", () => {
  const property = fc.property(
    fc.integer({ min: 0, max: 86_400_000 }),
    fc.integer({ min: 1_024, max: 1_073_741_824 }),
    (graceMs, maxBodyBytes) => {
      const text = `{ drain: { grace: ${graceMs}ms }, limits: { max-body-bytes: ${maxBodyBytes} } }`;
      const again = load(renderConfigYaml(load(text)));
      expect(again.drain.graceMs).toBe(graceMs);
      expect(again.limits.maxBodyBytes).toBe(maxBodyBytes);
    },
  );
  fc.assert(property, { numRuns: randomRuns(60), seed: 7 });
});

test("the description of one configuration is not touched by another", () => {
  const first = describeConfig(loadConfig({}));
  const before = structuredClone(first);
  load("engines: [http://a]\nlog: { level: debug }");
  expect(first).toEqual(before);
  expect(describeConfig(loadConfig({}))).toEqual(before);
});
