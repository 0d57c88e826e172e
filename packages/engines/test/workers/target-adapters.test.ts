/** What a router knows of the LoRA adapters that a target has loaded, from its metrics and from what was sent. */
import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import {
  type AdapterReading,
  assumedAdapterSlots,
  createTargetAdapters,
  describeEngine,
  maxLoadedAdapters,
  type OwnedTargetAdapters,
} from "../../src/workers/index.ts";
import { modelsAnswer, startHarness } from "./fleet-harness.ts";

const reading = (slots: number, running: readonly string[] = [], waiting: readonly string[] = []): AdapterReading => ({
  slots,
  running,
  waiting,
});

/** Adapters with a clock that each test sets. */
function rig(): OwnedTargetAdapters & { at(ms: number): OwnedTargetAdapters; says(next?: AdapterReading): void } {
  let nowMs = 0;
  const adapters = createTargetAdapters(() => nowMs);
  return {
    ...adapters,
    at(ms) {
      nowMs = ms;
      return adapters;
    },
    says: (next) => adapters.accept(next, nowMs, true),
  };
}

describe("an adapter that something shows in use", () => {
  test("counts as used then, and is evicted in its turn", () => {
    const adapters = rig();
    adapters.says(reading(2));
    adapters.at(1_000).sent("a");
    adapters.at(2_000).seen("b", 500);
    adapters.at(2_000).seen("c", 1_500);
    expect(adapters.loaded()).toEqual(["a", "b"]);
    adapters.at(2_000).seen("c", 100);
    expect(adapters.loaded()).toEqual(["b", "c"]);
  });

  test("goes first when nobody knows when that was", () => {
    const adapters = rig();
    adapters.says(reading(2));
    adapters.seen("old", Number.POSITIVE_INFINITY);
    adapters.at(1).sent("a");
    expect(adapters.loaded()).toEqual(["old", "a"]);
    adapters.at(2).sent("b");
    adapters.seen("old", Number.POSITIVE_INFINITY);
    expect(adapters.loaded()).toEqual(["a", "b"]);
  });

  test("is not loaded by what was before it was unloaded, or before the process", () => {
    const adapters = rig();
    adapters.at(1_000).unloaded("a");
    adapters.seen("a", Number.POSITIVE_INFINITY);
    adapters.seen("a", 10);
    expect(adapters.loaded()).toEqual([]);
    adapters.at(1_020).seen("a", 10);
    expect(adapters.loaded()).toEqual(["a"]);
    adapters.at(2_000).forget();
    adapters.seen("a", 980);
    expect(adapters.loaded()).toEqual([]);
    adapters.seen("a", Number.POSITIVE_INFINITY);
    expect(adapters.loaded()).toEqual(["a"]);
  });
});

describe("the state of an adapter", () => {
  test("is unknown until something is said or sent", () => {
    const adapters = rig();
    expect(adapters.stateOf("a")).toBeUndefined();
    adapters.sent("b");
    expect([adapters.stateOf("a"), adapters.stateOf("b")]).toEqual([undefined, "active"]);
  });

  test("is room where an engine would have said, had it ever had one", () => {
    const adapters = rig();
    adapters.accept(undefined, 0, false);
    expect(adapters.stateOf("a")).toBeUndefined();
    adapters.accept(undefined, 0, true);
    expect(adapters.stateOf("a")).toBe("room");
  });

  test("follows the metrics: loaded, waited for, with a slot, without one", () => {
    const adapters = rig();
    adapters.says(reading(3, ["a", "b"], ["b", "c"]));
    expect(["a", "b", "c", "d"].map((name) => adapters.stateOf(name))).toEqual(["active", "active", "waiting", "none"]);
    adapters.at(1_000);
    adapters.says(reading(4, ["c"]));
    expect(["a", "b", "c", "d"].map((name) => adapters.stateOf(name))).toEqual(["active", "active", "active", "room"]);
  });

  test("stays active while idle, until so many others have been used since as there are slots", () => {
    const adapters = rig();
    adapters.says(reading(2, ["a"]));
    adapters.at(1_000);
    adapters.says(reading(2, []));
    expect(adapters.stateOf("a")).toBe("active");
    adapters.at(2_000).sent("b");
    expect([adapters.stateOf("a"), adapters.stateOf("c")]).toEqual(["active", "none"]);
    adapters.at(3_000).sent("c");
    expect(adapters.loaded()).toEqual(["b", "c"]);
    adapters.at(4_000).sent("b");
    expect(adapters.loaded()).toEqual(["c", "b"]);
  });

  test("what was sent after the page was asked for is not undone by it; what waits there longer is", () => {
    const adapters = rig();
    adapters.at(100).sent("early");
    adapters.at(300).sent("late");
    adapters.accept(reading(2, [], ["early", "late"]), 200, true);
    expect([adapters.stateOf("early"), adapters.stateOf("late")]).toEqual(["waiting", "active"]);
    adapters.at(400).sent("early");
    expect(adapters.stateOf("early")).toBe("active");
  });

  test("what waited and waits no more has been loaded since, though no page ever said that it runs", () => {
    const adapters = rig();
    adapters.says(reading(2, ["a"], ["b"]));
    expect(adapters.stateOf("b")).toBe("waiting");
    adapters.at(1_000);
    adapters.says(reading(2, ["a"], []));
    expect(adapters.stateOf("b")).toBe("active");
    // It counts as used when it was last seen, so that it is the first to go.
    adapters.at(2_000).sent("c");
    expect(adapters.loaded()).toEqual(["a", "c"]);
  });

  test("is unknown again after forgetting", () => {
    const adapters = rig();
    adapters.says(reading(2, ["a"], ["b"]));
    adapters.forget();
    expect(["a", "b", "c"].map((name) => adapters.stateOf(name))).toEqual([undefined, undefined, undefined]);
    adapters.accept(undefined, 0, true);
    adapters.forget();
    expect(adapters.stateOf("a")).toBeUndefined();
  });
});

describe("bounds", () => {
  test("where nobody tells the slots, SGLang's default counts", () => {
    const adapters = rig();
    for (let at = 0; at <= assumedAdapterSlots; at++) adapters.at(at).sent(`a${at}`);
    expect(adapters.loaded()).toHaveLength(assumedAdapterSlots);
    expect(adapters.stateOf("a0")).toBeUndefined();
  });

  test(`${maxLoadedAdapters} adapters are remembered, however many slots there are`, () => {
    const adapters = rig();
    adapters.says(reading(65_536));
    for (let at = 0; at <= maxLoadedAdapters; at++) adapters.at(at).sent(`a${at}`);
    expect(adapters.loaded()).toHaveLength(maxLoadedAdapters);
    expect(adapters.stateOf("a0")).toBe("none");
    expect(adapters.stateOf(`a${maxLoadedAdapters}`)).toBe("active");
  });
});

test("uses in any order: what is thought to be loaded is what an LRU of that size holds", () => {
  for (let seed = 1; seed <= 30; seed++) {
    const random = createSeededRandom(seed);
    const slots = 1 + random.integer(6);
    const adapters = rig();
    adapters.says(reading(slots));
    let recent: string[] = [];
    for (let at = 1; at < 200; at++) {
      const name = `a${random.integer(10)}`;
      adapters.at(at);
      if (random.integer(3) > 0) adapters.sent(name);
      else adapters.says(reading(slots, [name]));
      recent = [...recent.filter((other) => other !== name), name].slice(-slots);
      expect(adapters.loaded(), `seed ${seed}`).toEqual(recent);
      const other = `a${random.integer(10)}`;
      const expected = recent.includes(other) ? "active" : recent.length < slots ? "room" : "none";
      expect(adapters.stateOf(other), `seed ${seed}`).toBe(expected);
    }
  }
});

describe("in a fleet", () => {
  const page = (tokens: number, lines = ""): { status: number; body: string } => ({
    status: 200,
    body: `vllm:prompt_tokens_total ${tokens}\n${lines}`,
  });
  const info = (running: string, waiting = "", seenS = 1): string =>
    `vllm:lora_requests_info{max_lora="2",running_lora_adapters="${running}",waiting_lora_adapters="${waiting}"} ${seenS}\n`;

  async function fleetWith(lines: string) {
    const harness = await startHarness();
    const engine = harness.engine("e", {}, { "/models": modelsAnswer("m"), "/metrics": page(10, lines) });
    await harness.apply(engine);
    return { harness, engine, adapters: harness.target("e").adapters };
  }

  test("scrapes tell a target's adapters, the newest sample of a page counts, and operators see them", async () => {
    const { harness, adapters } = await fleetWith(info("old", "", 5) + info("a", "b", 9) + info("", "", 7));
    expect(["a", "b", "old", "c"].map((name) => adapters.stateOf(name))).toEqual(["active", "waiting", "none", "none"]);
    expect(describeEngine(harness.record("e")).targets[0]!.adapters).toEqual({
      slots: 2,
      running: ["a"],
      waiting: ["b"],
      loaded: ["a"],
    });
  });

  test("an engine that never had any has room, and nothing to show", async () => {
    const { harness, adapters } = await fleetWith("");
    expect(adapters.stateOf("a")).toBe("room");
    expect(describeEngine(harness.record("e")).targets[0]!.adapters).toBeNull();
    adapters.sent("a");
    expect(describeEngine(harness.record("e")).targets[0]!.adapters).toEqual({
      slots: null,
      running: [],
      waiting: [],
      loaded: ["a"],
    });
  });

  test("an engine that tells no adapters says nothing of its slots", async () => {
    const harness = await startHarness();
    const body = "sglang:num_running_reqs 0\n";
    await harness.apply(harness.engine("e", {}, { "/metrics": { status: 200, body } }));
    expect(harness.target("e").adapters.stateOf("a")).toBeUndefined();
  });

  test("failed scrapes leave loaded what is loaded; a restart or an engine that is down does not", async () => {
    const { harness, engine, adapters } = await fleetWith(info("a"));
    engine.paths["/metrics"] = "garbled";
    await harness.time.advanceAsync(20_000);
    expect(harness.target("e").signals.ageMs()).toBe(Number.POSITIVE_INFINITY);
    expect(adapters.stateOf("a")).toBe("active");
    engine.paths["/metrics"] = page(11, info("b"));
    await harness.time.advanceAsync(5_000);
    expect(adapters.loaded()).toEqual(["a", "b"]);
    engine.paths["/metrics"] = page(3, info("c"));
    await harness.time.advanceAsync(5_000);
    expect(adapters.loaded()).toEqual(["c"]);
    engine.paths["/health"] = "refused";
    await harness.time.advanceAsync(20_000);
    expect(harness.record("e").state).toBe("down");
    expect(adapters.stateOf("c")).toBeUndefined();
  });
});
