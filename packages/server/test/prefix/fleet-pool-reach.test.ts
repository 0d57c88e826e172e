import { asTargetIndex } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { loadConfig } from "../../src/config/index.ts";
import { type PoolTarget, poolKey, poolTargets } from "../../src/prefix/engine-feeds.ts";
import { createFleetPoolReach, type FleetPoolReach } from "../../src/prefix/prefix-parts.ts";
import { type ScriptedFleet, specOf, startScriptedFleet } from "./scripted-fleet.ts";

/** The pools of a configuration, numbered from 100. */
function poolsOf(pools: readonly object[]): readonly PoolTarget[] {
  const written = pools.map((pool, at) => ({ name: `p${at}`, endpoint: `tcp://pool:${5_000 + at}`, ...pool }));
  const config = loadConfig({ file: { path: "espalier.yaml", text: JSON.stringify({ "kv-pools": written }) } });
  return poolTargets(config.kvPools, (_, at) => asTargetIndex(100 + at));
}

const models = (...ids: readonly string[]): string =>
  JSON.stringify({ object: "list", data: ids.map((id) => ({ id })) });

interface Rig extends ScriptedFleet {
  readonly reach: FleetPoolReach;
  /** Names of the pools that a target reaches. */
  names(key: string): readonly string[];
}

async function rigOf(pools: readonly object[]): Promise<Rig> {
  const scripted = await startScriptedFleet();
  const reach = createFleetPoolReach(scripted.fleet, poolsOf(pools));
  const names = (key: string) => reach.poolsOf(scripted.target(key).index).map(({ name }) => name);
  return { ...scripted, reach, names };
}

describe("a pool's number and key", () => {
  test("are asked for once, by its key and place", () => {
    const asked: string[] = [];
    const config = poolsOf([{ name: "a" }, { name: "b" }]).map((pool) => pool.config);
    const pools = poolTargets(config, (key, at) => {
      asked.push(`${key} ${at}`);
      return asTargetIndex(10 * at);
    });
    expect(asked).toEqual(["pool a 0", "pool b 1"]);
    expect(pools.map(({ name, key, index }) => [name, key, index])).toEqual([
      ["a", "pool a", 0],
      ["b", "pool b", 10],
    ]);
  });

  test("cannot be those of an engine: ids have no spaces", () => {
    expect(poolKey("x")).toContain(" ");
    expect(() => loadConfig({ file: { path: "e", text: 'engines: [{ url: "http://a", id: "pool x" }]' } })).toThrow();
  });
});

describe("who can fetch", () => {
  test("everybody from a pool that says nothing else, every rank too", async () => {
    const rig = await rigOf([{}]);
    await rig.apply(specOf("a", { ranks: 2 }), specOf("b"));
    expect(["a", "a#1", "b"].map(rig.names)).toEqual([["p0"], ["p0"], ["p0"]]);
  });

  test("engines with all of the labels", async () => {
    const rig = await rigOf([
      { labels: { zone: "a" } },
      { labels: { zone: "a", rack: "1" } },
      { labels: { rack: "" } },
    ]);
    await rig.apply(
      specOf("none"),
      specOf("zone", { labels: { zone: "a" } }),
      specOf("both", { labels: { zone: "a", rack: "1", more: "x" } }),
      specOf("other", { labels: { zone: "b", rack: "1" } }),
      specOf("empty", { labels: { rack: "" } }),
    );
    expect(["none", "zone", "both", "other", "empty"].map(rig.names)).toEqual([[], ["p0"], ["p0", "p1"], [], ["p2"]]);
  });

  test("engines that serve one of the models, by pattern", async () => {
    const rig = await rigOf([{ models: ["llama-*"] }, { models: ["qwen", "llama-8b"] }]);
    rig.answers.a = { "/v1/models": models("llama-70b", "sql") };
    rig.answers.b = { "/v1/models": models("qwen") };
    rig.answers.c = { "/v1/models": models("qwen-2") };
    await rig.apply(specOf("a"), specOf("b"), specOf("c"), specOf("d", { models: ["llama-8b"] }));
    expect(["a", "b", "c", "d"].map(rig.names)).toEqual([["p0"], ["p1"], [], ["p0", "p1"]]);
  });

  test("nobody before it is known what it serves, and nobody beyond the fleet", async () => {
    const rig = await rigOf([{}]);
    rig.answers.a = { "/v1/models": 503 };
    await rig.apply(specOf("a"));
    expect(rig.names("a")).toEqual([]);
    rig.answers.a = {};
    await rig.time.advanceAsync(60_000);
    expect(rig.names("a")).toEqual(["p0"]);
    expect(rig.reach.poolsOf(asTargetIndex(4_000))).toEqual([]);
  });
});

describe("what changes", () => {
  test("a label is followed, and an engine that goes takes its reach along", async () => {
    const rig = await rigOf([{ labels: { zone: "a" } }]);
    await rig.apply(specOf("a", { labels: { zone: "a" } }));
    const { index } = rig.target("a");
    expect(rig.names("a")).toEqual(["p0"]);
    await rig.apply(specOf("a", { labels: { zone: "b" } }));
    expect(rig.names("a")).toEqual([]);
    await rig.apply(specOf("a", { labels: { zone: "a" } }));
    await rig.apply();
    expect(rig.reach.poolsOf(index)).toEqual([]);
    await rig.apply(specOf("b"));
    expect([rig.target("b").index, rig.names("b")]).toEqual([index, []]);
  });

  test("engines that were there before count, and nothing is followed after the end", async () => {
    const scripted = await startScriptedFleet();
    await scripted.apply(specOf("a"));
    const reach = createFleetPoolReach(scripted.fleet, poolsOf([{}]));
    expect(reach.poolsOf(scripted.target("a").index)).toHaveLength(1);
    reach.stop();
    await scripted.apply(specOf("a"), specOf("b"));
    expect(reach.poolsOf(scripted.target("b").index)).toEqual([]);
  });
});
