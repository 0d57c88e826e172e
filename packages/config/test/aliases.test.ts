/** Options of policies under the names that they have in the routers which the policies come from. */
import { flagCatalogue, loadConfig } from "@espalier/config";
import { describe, expect, test } from "vitest";
import { load, problemsIn, problemsOf } from "./loading.ts";

/** Policy, name elsewhere, our name. */
const keys = [
  ["prefix_hash", "prefix-token-count", "prefix-tokens"],
  ["prefix_hash", "prefix-hash-load-factor", "load-factor"],
  ["sticky", "max-idle-secs", "max-idle-seconds"],
  ["epp_weighted", "queue-scorer", "queue-weight"],
  ["epp_weighted", "kv-cache-utilization-scorer", "kv-cache-utilization-weight"],
  ["epp_weighted", "prefix-cache-scorer", "prefix-cache-weight"],
  ["epp_weighted", "active-request-scorer", "active-request-weight"],
  ["epp_weighted", "token-load-scorer", "token-load-weight"],
  ["epp_weighted", "no-hit-lru-scorer", "no-hit-lru-weight"],
  ["epp_weighted", "lora-affinity-scorer", "lora-affinity-weight"],
  ["epp_weighted", "queueThresholdTokens", "token-load-threshold"],
  ["affinity_filter", "affinityThreshold", "affinity-threshold"],
  ["affinity_filter", "maxTTFTPenaltyMs", "max-ttft-penalty-ms"],
  ["affinity_filter", "peakPrefillThroughput", "prefill-tokens-per-second"],
  ["dynamo", "router-prefill-load-scale", "prefill-load-scale"],
  ["dynamo", "router-temperature", "temperature"],
  ["dynamo", "kv-cache-block-size", "block-size"],
  ["dynamo", "router-host-cache-hit-weight", "cpu-credit"],
  ["dynamo", "router-disk-cache-hit-weight", "disk-credit"],
  ["dynamo", "shared-cache-multiplier", "external-credit"],
] as const;

/** Flag elsewhere, policy, our key. */
const flags = [
  ["--cache-threshold", "cache_aware", "cache-threshold"],
  ["--balance-abs-threshold", "cache_aware", "balance-abs-threshold"],
  ["--balance-rel-threshold", "cache_aware", "balance-rel-threshold"],
  ["--prefix-token-count", "prefix_hash", "prefix-tokens"],
  ["--prefix-hash-load-factor", "prefix_hash", "load-factor"],
  ["--max-idle-secs", "sticky", "max-idle-seconds"],
  ["--router-prefill-load-scale", "dynamo", "prefill-load-scale"],
  ["--router-temperature", "dynamo", "temperature"],
  ["--kv-cache-block-size", "dynamo", "block-size"],
  ["--router-host-cache-hit-weight", "dynamo", "cpu-credit"],
  ["--router-disk-cache-hit-weight", "dynamo", "disk-credit"],
  ["--shared-cache-multiplier", "dynamo", "external-credit"],
] as const;

describe("in the file", () => {
  test.each(keys)("%s: %s is %s", (name, alias, key) => {
    expect(load(`policy: { name: ${name}, ${alias}: 1 }`).policy).toEqual({ name, options: { [key]: 1 } });
    expect(load(`pools: [{ models: [a], policy: { name: ${name}, ${alias}: 1 } }]`).pools[0]?.policy).toEqual({
      name,
      options: { [key]: 1 },
    });
  });

  test("a mistake in the value is told under the name and at the place where it stands", () => {
    expect(problemsOf("policy: { name: dynamo, router-temperature: warm }")).toEqual([
      'policy.router-temperature: "warm" is not a number from 0 to 1000000 (e.yaml:1:25)',
    ]);
  });

  test("both names together are a mistake, whatever the values; an empty one is absent", () => {
    expect(problemsOf("policy: { name: dynamo, router-temperature: 1, temperature: 1 }")).toEqual([
      "policy.router-temperature: is another name of temperature, which is given too; leave one out (e.yaml:1:25)",
    ]);
    expect(load("policy: { name: dynamo, router-temperature: ~, temperature: 1 }").policy.options).toEqual({
      temperature: 1,
    });
    expect(load("policy: { name: dynamo, router-temperature: 1, temperature: ~ }").policy.options).toEqual({
      temperature: 1,
    });
  });

  test("an option of another policy stays one, under whatever name", () => {
    expect(problemsOf("policy: { name: dynamo, queue-scorer: 1 }")[0]).toMatch(
      /^policy\.queue-weight: is no option of dynamo, which takes prefill-load-scale, /,
    );
  });

  test("a name is taken only where its policy's options stand, and a mistyped one leads to ours", () => {
    expect(problemsOf("router-temperature: 1")[0]).toMatch(/^router-temperature: is not a known key/);
    expect(problemsOf("policy: { name: dynamo, maxTTFTPenalty: 1 }")[0]).toBe(
      "policy.maxTTFTPenalty: is not a known key; did you mean max-ttft-penalty-ms? (e.yaml:1:25)",
    );
  });
});

describe("as flags", () => {
  test.each(flags)("%s sets an option of %s, %s", (flag, name, key) => {
    expect(loadConfig({ flags: { "--policy": name, [flag]: "1" } }).policy).toEqual({ name, options: { [key]: 1 } });
  });

  test("there are no others, and none for names that are no flags elsewhere", () => {
    const aliases = flagCatalogue.flatMap((entry) => entry.aliases);
    expect([...aliases].sort()).toEqual(flags.map(([flag]) => flag).sort());
    expect(problemsIn(() => loadConfig({ flags: { "--queue-scorer": "1" } }))[0]).toMatch(/is not a known flag/);
  });

  test("our flag and theirs together are a mistake", () => {
    const both = { "--policy": "dynamo", "--router-temperature": "1", "--policy-temperature": "1" };
    expect(problemsIn(() => loadConfig({ flags: both }))).toEqual([
      "--router-temperature is another name of --policy-temperature, which is given too; leave one out",
    ]);
  });

  test("a mistake in the value names the flag that was given", () => {
    expect(problemsIn(() => loadConfig({ flags: { "--policy": "dynamo", "--router-temperature": "warm" } }))).toEqual([
      'policy.temperature: "warm" is not a number from 0 to 1000000 (--router-temperature)',
    ]);
  });
});

test("what comes from outside replaces what the file says under either name", () => {
  const file = "policy: { name: dynamo, router-temperature: 2, block-size: 8 }";
  const expected = { "block-size": 8, temperature: 1 };
  expect(load(file, { flags: { "--policy-temperature": "1" } }).policy.options).toEqual(expected);
  expect(load(file, { flags: { "--router-temperature": "1" } }).policy.options).toEqual(expected);
  expect(load(file, { env: { ESPALIER_POLICY_TEMPERATURE: "1" } }).policy.options).toEqual(expected);
  const ours = "policy: { name: dynamo, temperature: 2, block-size: 8 }";
  expect(load(ours, { flags: { "--router-temperature": "1" } }).policy.options).toEqual(expected);
});
