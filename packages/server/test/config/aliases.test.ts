import { resolve } from "node:path";
/** Options of policies under the names that they have in the routers which the policies come from. */

import { describe, expect, test } from "vitest";
import { flagCatalogue, loadConfig } from "../../src/config/index.ts";
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
  ["epp_weighted", "maxPrefixTokensToMatch", "max-prefix-tokens"],
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

/** Flag of SGLang's router, a value, where it stands here, as what. */
const routerFlags = [
  ["--host", "0.0.0.0", "listen.host", "0.0.0.0"],
  ["--port", "30000", "listen.port", 30_000],
  ["--tls-cert-path", "cert.pem", "listen.tls.cert-file", resolve("cert.pem")],
  ["--tls-key-path", "key.pem", "listen.tls.key-file", resolve("key.pem")],
  ["--prometheus-host", "127.0.0.2", "admin.host", "127.0.0.2"],
  ["--prometheus-port", "29000", "admin.port", 29_000],
  ["--ext-proc-host", "127.0.0.2", "endpoint-picker.host", "127.0.0.2"],
  ["--ext-proc-port", "9002", "endpoint-picker.port", 9_002],
  ["--grpc-port", "9002", "endpoint-picker.port", 9_002],
  ["--ext-proc-health-port", "9004", "endpoint-picker.health-port", 9_004],
  ["--grpc-health-port", "9004", "endpoint-picker.health-port", 9_004],
  ["--client-cert-path", "cert.pem", "engine-tls.cert-file", resolve("cert.pem")],
  ["--client-key-path", "key.pem", "engine-tls.key-file", resolve("key.pem")],
  ["--health-check-endpoint", "/live", "health.path", "/live"],
  ["--health-check-interval-secs", "60", "health.interval", 60_000],
  ["--health-check-timeout-secs", "5", "health.timeout", 5_000],
  ["--health-failure-threshold", "4", "health.down-after", 4],
  ["--health-success-threshold", "1", "health.up-after", 1],
  ["--cb-failure-threshold", "10", "breaker.consecutive-failures", 10],
  ["--cb-success-threshold", "3", "breaker.successes-to-close", 3],
  ["--cb-timeout-duration-secs", "30", "breaker.open", 30_000],
  ["--cb-window-duration-secs", "120", "breaker.window", 120_000],
  ["--max-payload-size", "536870912", "limits.max-body-bytes", 536_870_912],
  ["--max-concurrent-requests", "100", "limits.max-concurrent-requests", 100],
  ["--shutdown-grace-period-secs", "90", "drain.grace", 90_000],
] as const;

const companions: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "--tls-cert-path": { "--listen-tls-key-file": "key.pem" },
  "--tls-key-path": { "--listen-tls-cert-file": "cert.pem" },
  "--client-cert-path": { "--engine-tls-key-file": "key.pem" },
  "--client-key-path": { "--engine-tls-cert-file": "cert.pem" },
};

describe("flags of SGLang's router", () => {
  test.each(routerFlags)("%s %s is %s: %j", (flag, written, path, value) => {
    const { effective } = loadConfig({ flags: { [flag]: written, ...companions[flag] } });
    const found = path.split(".").reduce<unknown>((tree, key) => (tree as Record<string, unknown>)[key], effective);
    expect(found).toBe(value);
  });

  test("--worker-urls lists engines", () => {
    const { engines } = loadConfig({ flags: { "--worker-urls": ["http://a:1", "http://b:1"] } });
    expect(engines.map(({ url }) => url)).toEqual(["http://a:1", "http://b:1"]);
  });

  test("a unit that is written is taken, and what is no time is told as it was written", () => {
    const { health } = loadConfig({ flags: { "--health-check-interval-secs": "500ms" } });
    expect(health.intervalMs).toBe(500);
    const problems = problemsIn(() => loadConfig({ flags: { "--health-check-interval-secs": "often" } }));
    expect(problems[0]).toMatch(/^health\.interval: "often" is not .*\(--health-check-interval-secs\)$/);
  });
});

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
      "policy.router-temperature: is an alias of temperature, which is set too; remove one (e.yaml:1:25)",
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
      /^policy\.queue-weight: is not an option of dynamo, which takes prefill-load-scale, /,
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
    const known = [...flags.map(([flag]) => flag), ...routerFlags.map(([flag]) => flag), "--worker-urls"];
    expect([...aliases].sort()).toEqual(known.sort());
    expect(problemsIn(() => loadConfig({ flags: { "--queue-scorer": "1" } }))[0]).toMatch(/is not a known flag/);
  });

  test("our flag and theirs together are a mistake", () => {
    const both = { "--policy": "dynamo", "--router-temperature": "1", "--policy-temperature": "1" };
    expect(problemsIn(() => loadConfig({ flags: both }))).toEqual([
      "--router-temperature is an alias of --policy-temperature, which is set too; remove one",
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
