import { createSeededRandom } from "@espalier/core";
import { createCandidateSet, createPolicy, policyCatalogue, policyNames } from "@espalier/policies";
import { expect, test } from "vitest";
import { anyRequest, candidatesOf } from "./helpers.ts";

test("the catalogue has every policy, and every default may be given explicitly", () => {
  expect(policyNames).toEqual([
    "random",
    "round_robin",
    "least_connections",
    "power_of_two",
    "least_tokens",
    "consistent_hashing",
    "sticky",
    "prefix_hash",
    "cache_aware",
    "epp_weighted",
    "affinity_filter",
    "dynamo",
    "lmetric",
    "least_work",
    "predicted_latency",
  ]);
  for (const name of policyNames) {
    const entry = policyCatalogue[name];
    expect(entry.summary.length).toBeGreaterThan(20);
    const defaults = Object.fromEntries(entry.options.map((option) => [option.name, option.default]));
    expect(createPolicy(name, defaults).name).toBe(name);
  }
});

test.each([
  ["fastest", {}, "policy"],
  ["toString", {}, "policy"],
  ["random", { seed: 1 }, "policy-options.seed"],
  ["predicted_latency", { objective: "e2e" }, "policy-options.objective"],
  ["consistent_hashing", { "load-factor": 0.9 }, "policy-options.load-factor"],
  ["consistent_hashing", { "load-factor": "1.25" }, "policy-options.load-factor"],
  ["consistent_hashing", { "load-factor": Number.POSITIVE_INFINITY }, "policy-options.load-factor"],
  ["consistent_hashing", { "points-per-weight": 0 }, "policy-options.points-per-weight"],
  ["consistent_hashing", { "points-per-weight": 1.5 }, "policy-options.points-per-weight"],
  ["consistent_hashing", { "points-per-weight": 4097 }, "policy-options.points-per-weight"],
  ["sticky", { "max-idle-seconds": 0.9 }, "policy-options.max-idle-seconds"],
  ["sticky", { "max-idle-seconds": 86_401 }, "policy-options.max-idle-seconds"],
  ["sticky", { "session-load-factor": 0.9 }, "policy-options.session-load-factor"],
  ["sticky", { "session-free-requests": -1 }, "policy-options.session-free-requests"],
  ["sticky", { "load-factor": 2 }, "policy-options.load-factor"],
  ["least_tokens", { "foreign-request-tokens": -1 }, "policy-options.foreign-request-tokens"],
  ["least_tokens", { "foreign-request-tokens": Number.NaN }, "policy-options.foreign-request-tokens"],
  ["prefix_hash", { "prefix-tokens": 0 }, "policy-options.prefix-tokens"],
  ["prefix_hash", { "prefix-tokens": 16.5 }, "policy-options.prefix-tokens"],
  ["prefix_hash", { "prefix-tokens": 65_537 }, "policy-options.prefix-tokens"],
  ["prefix_hash", { "load-factor": 0.5 }, "policy-options.load-factor"],
  ["cache_aware", { "cache-threshold": -0.1 }, "policy-options.cache-threshold"],
  ["cache_aware", { "cache-threshold": 1.1 }, "policy-options.cache-threshold"],
  ["cache_aware", { "balance-abs-threshold": -1 }, "policy-options.balance-abs-threshold"],
  ["cache_aware", { "balance-rel-threshold": Number.POSITIVE_INFINITY }, "policy-options.balance-rel-threshold"],
  ["cache_aware", { "cpu-credit": 1.01 }, "policy-options.cpu-credit"],
  ["epp_weighted", { "queue-weight": -1 }, "policy-options.queue-weight"],
  ["epp_weighted", { "no-hit-lru-weight": Number.NaN }, "policy-options.no-hit-lru-weight"],
  ["epp_weighted", { "token-load-threshold": 0.9 }, "policy-options.token-load-threshold"],
  ["epp_weighted", { "max-prefix-tokens": 0 }, "policy-options.max-prefix-tokens"],
  ["cache_aware", { "miss-to-free-cache": 0.5 }, "policy-options.miss-to-free-cache"],
  ["sticky", { "fewest-sessions": 2 }, "policy-options.fewest-sessions"],
  ["epp_weighted", { "disk-credit": -0.01 }, "policy-options.disk-credit"],
  ["affinity_filter", { "affinity-threshold": 1.01 }, "policy-options.affinity-threshold"],
  ["affinity_filter", { "max-ttft-penalty-ms": -1 }, "policy-options.max-ttft-penalty-ms"],
  ["affinity_filter", { "prefill-tokens-per-second": 0 }, "policy-options.prefill-tokens-per-second"],
  ["dynamo", { "prefill-load-scale": -0.1 }, "policy-options.prefill-load-scale"],
  ["dynamo", { temperature: -0.1 }, "policy-options.temperature"],
  ["dynamo", { temperature: Number.POSITIVE_INFINITY }, "policy-options.temperature"],
  ["dynamo", { "block-size": 0 }, "policy-options.block-size"],
  ["dynamo", { "block-size": 16.5 }, "policy-options.block-size"],
  ["dynamo", { "block-size": 65_537 }, "policy-options.block-size"],
  ["dynamo", { "external-credit": 1.1 }, "policy-options.external-credit"],
  ["lmetric", { "foreign-request-tokens": -1 }, "policy-options.foreign-request-tokens"],
  ["lmetric", { "near-tie-tokens": 1 }, "policy-options.near-tie-tokens"],
  ["epp_weighted", { "lora-affinity-weight": -1 }, "policy-options.lora-affinity-weight"],
  ["least_work", { "near-tie-tokens": -1 }, "policy-options.near-tie-tokens"],
  ["least_work", { "adapter-load-tokens": -1 }, "policy-options.adapter-load-tokens"],
  ["least_work", { "external-credit": "0.5" }, "policy-options.external-credit"],
  ["least_work", { "load-factor": 1 }, "policy-options.load-factor"],
] as const)("%s with %j is refused at %s", (name, options, param) => {
  expect(() => createPolicy(name, options)).toThrow(expect.objectContaining({ code: "config_invalid", param }));
});

test("the message of a refusal names what is allowed", () => {
  expect(() => createPolicy("fastest")).toThrow(/least_connections/);
  expect(() => createPolicy("consistent_hashing", { "load-factor": 0.9 })).toThrow(/0, or 1 or more/);
});

test.each(policyNames)("%s without candidates says that no engine is available", (name) => {
  const policy = createPolicy(name);
  const empty = createCandidateSet();
  const unavailable = expect.objectContaining({ code: "no_engine_available" });
  expect(() => policy.choose(anyRequest, empty, createSeededRandom(1))).toThrow(unavailable);
  expect(() => policy.explain(anyRequest, empty)).toThrow(unavailable);
});

test.each(policyNames)("%s reuses its choice, and gives the caller's own index", (name) => {
  const policy = createPolicy(name);
  const random = createSeededRandom(1);
  const two = candidatesOf([{ key: "a" }, { key: "b", inFlight: 5, pendingPrefillTokens: 5 }]);
  const first = policy.choose(anyRequest, two, random);
  expect(first.target).toBe(100 + first.index);
  const one = candidatesOf([{ key: "b" }]);
  expect(policy.choose(anyRequest, one, random)).toBe(first);
  expect(first).toEqual({ index: 0, target: 100, reason: "only_candidate", creditMs: 0 });
});

test.each([
  ["consistent_hashing", "load-factor", [0, 1, 1.25, 100]],
  ["consistent_hashing", "points-per-weight", [1, 160, 4_096]],
  ["sticky", "max-idle-seconds", [1, 14_400, 86_400]],
  ["sticky", "session-load-factor", [0, 1, 2, 1e9]],
  ["sticky", "session-free-requests", [0, 0.5, 1e9]],
  ["sticky", "fewest-sessions", [0, 1]],
  ["least_tokens", "foreign-request-tokens", [0, 0.5, 1e9]],
  ["prefix_hash", "prefix-tokens", [1, 256, 65_536]],
  ["prefix_hash", "load-factor", [0, 1, 100]],
  ["cache_aware", "cache-threshold", [0, 0.3, 1]],
  ["cache_aware", "balance-abs-threshold", [0, 0.5, 1e9]],
  ["cache_aware", "balance-rel-threshold", [0, 1, 1e9]],
  ["epp_weighted", "queue-weight", [0, 1e9]],
  ["epp_weighted", "no-hit-lru-weight", [0, 1, 1e9]],
  ["epp_weighted", "token-load-threshold", [1, 1e12]],
  ["epp_weighted", "max-prefix-tokens", [1, 131_072, 1e9]],
  ["cache_aware", "miss-to-free-cache", [0, 1]],
  ["affinity_filter", "affinity-threshold", [0, 0.8, 1]],
  ["affinity_filter", "max-ttft-penalty-ms", [0, 18_000, 1e12]],
  ["affinity_filter", "prefill-tokens-per-second", [1, 1e9]],
  ["dynamo", "prefill-load-scale", [0, 1, 1e9]],
  ["dynamo", "temperature", [0, 1e-300, 1e-9, 1, 1e9]],
  ["dynamo", "block-size", [1, 65_536]],
  ["lmetric", "foreign-request-tokens", [0, 1e9]],
  ["epp_weighted", "lora-affinity-weight", [0, 1, 1e9]],
  ["least_work", "near-tie-tokens", [0, 0.5, 1e9]],
  ["least_work", "adapter-load-tokens", [0, 1e9]],
  ["least_work", "cpu-credit", [0, 1]],
] as const)("%s takes every %s at the edges of its range, and still decides", (name, option, values) => {
  const candidates = candidatesOf([{ key: "a" }, { key: "b", inFlight: 1 }, { key: "c", weight: 2 }]);
  for (const value of values) {
    const policy = createPolicy(name, { [option]: value });
    const { index } = policy.choose(
      { ...anyRequest, sessionKey: "s", boundKey: "b", prefixKey: 77 },
      candidates,
      createSeededRandom(1),
    );
    expect(index).toBeGreaterThanOrEqual(0);
    expect(index).toBeLessThan(3);
  }
});

test.each(policyNames)("%s decides over few, many and few candidates again as one that is new", (name) => {
  const rows = Array.from({ length: 40 }, (_, i) => ({
    key: `e${i}`,
    inFlight: (i * 7) % 11,
    pendingPrefillTokens: ((i * 13) % 17) * 100,
    matchedTokens: i % 3 === 0 ? 480 : 0,
  }));
  const policy = createPolicy(name);
  for (const count of [2, 40, 3]) {
    const candidates = candidatesOf(rows.slice(0, count));
    const request = { ...anyRequest, sessionKey: "s", prefixKey: 7 };
    expect(policy.explain(request, candidates)).toEqual(createPolicy(name).explain(request, candidates));
  }
});

test("policies of one name share nothing: each pool has its own rotation", () => {
  const random = createSeededRandom(1);
  const candidates = candidatesOf([{ key: "a" }, { key: "b" }]);
  const one = createPolicy("round_robin");
  const first = one.choose(anyRequest, candidates, random).index;
  expect(one.explain(anyRequest, candidates).candidates[first]!.probability).toBe(0);
  const other = createPolicy("round_robin").explain(anyRequest, candidates);
  expect(other.candidates.map((candidate) => candidate.probability)).toEqual([0.5, 0.5]);
});

test("only a policy that hashes prefixes asks for a key of them", () => {
  for (const name of policyNames) expect(createPolicy(name).prefixKeyTokens).toBe(name === "prefix_hash" ? 256 : 0);
  expect(createPolicy("prefix_hash", { "prefix-tokens": 1_024 }).prefixKeyTokens).toBe(1_024);
});

test("only a policy that binds sessions says for how long", () => {
  for (const name of policyNames) expect(createPolicy(name).bindingTtlMs).toBe(name === "sticky" ? 14_400_000 : 0);
  expect(createPolicy("sticky", { "max-idle-seconds": 60 }).bindingTtlMs).toBe(60_000);
});
