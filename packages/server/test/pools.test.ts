import { EspalierError, systemRandom } from "@espalier/core";
import { createCandidateSet, createPolicy, defaultObjectives } from "@espalier/policies";
import { PoolWork } from "@espalier/routing";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { loadConfig } from "../src/config/index.ts";
import { createPools, maxPools, type PoolRule, poolRules } from "../src/routing/pools.ts";

const { clock } = createVirtualTime();
const workOf = (): PoolWork => new PoolWork(clock);

const rule = (models: readonly string[], policy: string, forwardAuthorization = false): PoolRule => ({
  models,
  policyText: policy,
  createPolicy: () => createPolicy(policy),
  upstreamHeaders: ["authorization", `Bearer ${policy}`],
  forwardAuthorization,
  holdMs: 0,
  objectivesOf: () => defaultObjectives,
  defaultClass: "default",
});

test("the first rule whose pattern fits decides, the last one takes the rest", () => {
  const pools = createPools(
    [rule(["llama-*", "qwen"], "random", true), rule(["llama-70b"], "round_robin"), rule(["*"], "least_tokens")],
    workOf,
  );
  expect(pools.settingsFor("llama-70b")).toMatchObject({ model: "llama-70b", forwardAuthorization: true });
  expect(pools.settingsFor("llama-70b").policy.name).toBe("random");
  expect(pools.settingsFor("qwen").policy.name).toBe("random");
  expect(pools.settingsFor("qwen2").policy.name).toBe("least_tokens");
});

// An adapter learned the times of its engines alone and from nothing, though they are the base model's engines.
test("pools share what is learned while one's engines are another's, also when that turns out later", () => {
  const works = new Map<string, PoolWork>();
  const parents = new Map([["adapter", "base"]]);
  const ofBase = (model: string): PoolWork => {
    const base = parents.get(model) ?? model;
    const work = works.get(base) ?? new PoolWork(clock);
    works.set(base, work);
    return work;
  };
  const pools = createPools([rule(["*"], "random")], ofBase);
  const [base, adapter, late] = ["base", "adapter", "late"].map((model) => pools.settingsFor(model));
  expect(adapter!.work).toBe(base!.work);
  expect(late!.work).not.toBe(base!.work);
  parents.set("late", "base");
  expect(late!.work).toBe(base!.work);
  expect([...pools.all()].map(({ model }) => model)).toEqual(["base", "adapter", "late"]);
});

test("a star stands for any run of characters, everything else for itself", () => {
  const pools = createPools([rule(["a.b*c"], "random"), rule(["*"], "round_robin")], workOf);
  for (const name of ["a.bc", "a.b/x/c"]) expect(pools.settingsFor(name).policy.name, name).toBe("random");
  for (const name of ["aXbc", "a.bc2", "xa.bc"]) expect(pools.settingsFor(name).policy.name, name).toBe("round_robin");
});

test("each model has a policy of its own, and keeps it", () => {
  const pools = createPools([rule(["*"], "round_robin")], workOf);
  expect(pools.settingsFor("a").policy).toBe(pools.settingsFor("a").policy);
  expect(pools.settingsFor("a").policy).not.toBe(pools.settingsFor("b").policy);
});

test("metrics are read as often as the most demanding policy of an engine's models needs, and rules may change that", () => {
  const paced = (models: readonly string[], metricsEveryMs: number | undefined): PoolRule => ({
    ...rule(models, "random"),
    metricsEveryMs,
  });
  const pools = createPools([paced(["a"], 50), paced(["b"], 200), paced(["*"], undefined)], workOf);
  expect(pools.metricsEveryMs(["x", "b", "a"])).toBe(50);
  expect(pools.metricsEveryMs(["b"])).toBe(200);
  expect(pools.metricsEveryMs(["x"])).toBeUndefined();
  expect(pools.metricsEveryMs([])).toBeUndefined();
  pools.replaceRules([paced(["*"], undefined)]);
  expect(pools.metricsEveryMs(["a"])).toBeUndefined();
  pools.replaceRules(poolRules(loadConfig({ file: { path: "espalier.yaml", text: "policy: epp_weighted" } })));
  expect(pools.metricsEveryMs(["a"])).toBe(50);
});

test("models beyond the bound share the settings of the last rule", () => {
  const pools = createPools([rule(["special"], "random"), rule(["*"], "round_robin")], workOf);
  for (let i = 0; i < maxPools; i++) pools.settingsFor(`model-${i}`);
  expect(pools.settingsFor("one-more")).toBe(pools.settingsFor("and-another"));
  expect(pools.settingsFor("one-more")).toMatchObject({ model: "*" });
  expect(pools.settingsFor("model-0").model).toBe("model-0");
});

test("the rules of a configuration end with the general policy, and carry the engines' key", () => {
  const text = `
policy: least_tokens
pools:
  - models: ["llama-*"]
    policy: { name: consistent_hashing, load-factor: 2 }
    engine-api-key: secret-key
`;
  const rules = poolRules(loadConfig({ file: { path: "espalier.yaml", text } }));
  expect(rules).toHaveLength(2);
  expect(rules[0]?.upstreamHeaders).toEqual(["authorization", "Bearer secret-key"]);
  expect(rules[0]?.createPolicy().name).toBe("consistent_hashing");
  expect(rules[1]).toMatchObject({ models: ["*"], upstreamHeaders: [] });
  expect(rules[1]?.createPolicy().name).toBe("least_tokens");
});

test("policies with one seed draw alike, whatever others draw, and explanations draw nothing", () => {
  const chosen = (policyText: string, explains = false) => {
    const [rule] = poolRules(loadConfig({ file: { path: "espalier.yaml", text: `policy: ${policyText}` } }));
    const policy = rule!.createPolicy();
    const others = systemRandom;
    return Array.from({ length: 64 }, () => {
      const candidates = createCandidateSet();
      for (const key of ["a", "b", "c", "d"]) candidates.add(key, 0);
      const request = { promptTokens: 100, expectedOutputTokens: 10, sessionKey: "s", prefixKey: undefined };
      if (explains) policy.explain(request, candidates);
      return policy.choose(request, candidates, others).index;
    });
  };
  for (const name of ["random", "sticky", "power_of_two", "predicted_latency"]) {
    const seven = chosen(`{ name: ${name}, seed: 7 }`);
    expect(chosen(`{ name: ${name}, seed: 7 }`, true)).toEqual(seven);
    expect(chosen(`{ name: ${name}, seed: 8 }`)).not.toEqual(seven);
    expect(chosen(name)).not.toEqual(seven);
  }
});

test("a policy that does not exist is found when the rules are made, not with the first request", () => {
  const policy = { name: "no_such_policy", options: {} };
  expect(() => poolRules({ ...loadConfig({}), policy })).toThrow(EspalierError);
});

/** What answers of each class have to keep, by model; of the default class first. */
const objectivesIn = (text: string, ...models: readonly string[]) => {
  const pools = createPools(poolRules(loadConfig({ file: { path: "espalier.yaml", text } })), workOf);
  return models.map((model) =>
    [undefined, "default", "batch"].map((className) => {
      const { ttftMs, tpotMs } = pools.settingsFor(model).objectivesOf(className);
      return [ttftMs, tpotMs];
    }),
  );
};

test("objectives are those of the class, or else of the model, or else of all; each for itself", () => {
  const text = [
    "slo: { ttft: 3s }",
    "pools: [{ models: [big], slo: { tpot: 80ms } }]",
    "admission:",
    "  classes: [{ name: default }, { name: batch, slo: { ttft: 1m, tpot: none } }]",
  ].join("\n");
  const batch = [60_000, Number.POSITIVE_INFINITY];
  expect(objectivesIn(text, "small", "big")).toEqual([
    [[3_000, 50], [3_000, 50], batch],
    [[3_000, 80], [3_000, 80], batch],
  ]);
  const ofDefault = "admission: { classes: [{ name: default, slo: { tpot: 20ms } }, { name: batch }] }";
  expect(objectivesIn(ofDefault, "any")).toEqual([
    [
      [2_000, 20],
      [2_000, 20],
      [2_000, 50],
    ],
  ]);
});

test("without admission requests have no class, and no class's objectives", () => {
  const text = "admission: { mode: off, classes: [{ name: default, slo: { tpot: 20ms } }] }";
  expect(objectivesIn(text, "any")).toEqual([
    [
      [2_000, 50],
      [2_000, 50],
      [2_000, 50],
    ],
  ]);
});
