/**
 * Each guard that keeps requests from engines, after its cause has gone: every engine takes as many requests as any other, within
 * the time that the guard states.
 */

import { expect, test } from "vitest";
import type { Permit } from "../../src/workers/index.ts";
import { type Harness, healthy, modelsAnswer, type ScriptedEngine, startHarness } from "./fleet-harness.ts";

const breaker = { consecutiveFailures: 2, openMs: 2_000, maxOpenMs: 4_000, successesToClose: 2 };
const names = ["a", "b", "c", "d"];

interface Fleet {
  readonly harness: Harness;
  readonly engines: readonly ScriptedEngine[];
}

/** Engines of model `m`, of which the first serves model `alone` too. */
async function start(): Promise<Fleet> {
  const harness = await startHarness({ health: { timeoutMs: 1_000 }, breaker });
  const engines = names.map((name) => harness.engine(name));
  engines[0]!.paths["/v1/models"] = modelsAnswer("m", "alone");
  await harness.apply(...engines);
  return { harness, engines };
}

/** The engines that take `count` requests at once, of which none is answered. */
function takers({ harness }: Fleet, count: number): readonly string[] {
  return names.filter((name) => {
    const permits: (Permit | undefined)[] = [];
    const { breaker } = harness.record(name);
    while (permits.length < count && harness.target(name).usable) permits.push(breaker.begin());
    for (const permit of permits) permit?.release();
    return permits.length === count;
  });
}

async function takeDown({ harness, engines }: Fleet, down: readonly string[]): Promise<void> {
  for (const { spec, paths } of engines) if (down.includes(spec.id)) paths["/health"] = "silent";
  await harness.time.advanceAsync(10_000);
}

function drain({ harness }: Fleet, ...drained: readonly string[]): void {
  for (const name of drained) harness.fleet.setDraining(harness.record(name).id, true);
}

const fail = ({ harness }: Fleet, name: string): void => {
  const { breaker } = harness.record(name);
  for (let failed = 0; failed < 2; failed++) breaker.begin()?.failure("status 500");
};

/** An engine answers the requests that its breaker lets through, one after the other. */
const answer = ({ harness }: Fleet, name: string): void => {
  for (let trial = 0; trial < breaker.successesToClose; trial++) harness.record(name).breaker.begin()?.success();
};

interface Guard {
  readonly guard: string;
  /** Time after the end of the cause. */
  readonly withinMs: number;
  /** Engines that take less while it acts. */
  readonly kept: readonly string[];
  /** Brings the cause about. @returns ends it */
  begin(fleet: Fleet): Promise<() => void>;
  /** What happens after that time, before engines are counted on. */
  afterwards?(fleet: Fleet): void;
}

/** Probes of an engine that is down go out every two seconds, and two have to succeed. */
const recoveryMs = 8_000;

const guards: readonly Guard[] = [
  {
    guard: "health checks",
    withinMs: recoveryMs,
    kept: ["a"],
    async begin(fleet) {
      await takeDown(fleet, ["a"]);
      return () => {
        fleet.engines[0]!.paths["/health"] = healthy;
      };
    },
  },
  {
    // One request at a time goes to those that are down; so few come that only one engine has been vouched for.
    guard: "panic mode, from which one engine after the other recovers",
    withinMs: 3 * recoveryMs,
    kept: ["b", "c"],
    async begin(fleet) {
      await takeDown(fleet, ["a", "b", "c"]);
      expect(fleet.harness.record("a").isTried).toBe(true);
      answer(fleet, "a");
      const { scheduler } = fleet.harness.time;
      return () => {
        for (const [at, { paths }] of fleet.engines.entries()) {
          scheduler.after(at * recoveryMs, () => {
            paths["/health"] = healthy;
          });
        }
      };
    },
  },
  {
    guard: "panic mode, in which a trial failed",
    withinMs: recoveryMs + breaker.maxOpenMs,
    kept: ["a", "b", "c"],
    async begin(fleet) {
      await takeDown(fleet, ["a", "b", "c"]);
      fail(fleet, "a");
      return () => {
        for (const { paths } of fleet.engines) paths["/health"] = healthy;
      };
    },
    afterwards: (fleet) => answer(fleet, "a"),
  },
  {
    guard: "an open circuit breaker",
    withinMs: breaker.maxOpenMs,
    kept: ["a"],
    async begin(fleet) {
      fail(fleet, "a");
      return () => {};
    },
    afterwards: (fleet) => answer(fleet, "a"),
  },
  {
    // The request hangs, for as long as the timeout of a first byte: ten minutes by default.
    guard: "a half-open circuit breaker whose trial gets no answer",
    withinMs: breaker.openMs,
    kept: ["a"],
    async begin(fleet) {
      fail(fleet, "a");
      await fleet.harness.time.advanceAsync(breaker.maxOpenMs);
      expect(fleet.harness.record("a").breaker.begin()).toBeDefined();
      return () => {};
    },
    afterwards: (fleet) => answer(fleet, "a"),
  },
  {
    guard: "overruled circuit breakers",
    withinMs: breaker.maxOpenMs,
    kept: [],
    async begin(fleet) {
      for (const name of names) fail(fleet, name);
      expect(fleet.harness.record("a").isOverruled).toBe(true);
      return () => {};
    },
    afterwards(fleet) {
      for (const name of names) answer(fleet, name);
      expect(names.some((name) => fleet.harness.record(name).isOverruled)).toBe(false);
    },
  },
  {
    guard: "a drain",
    withinMs: 0,
    kept: ["a"],
    async begin(fleet) {
      const { harness } = fleet;
      drain(fleet, "a");
      return () => harness.fleet.setDraining(harness.record("a").id, false);
    },
  },
  {
    guard: "a Retry-After cooldown",
    withinMs: 10_000,
    kept: ["b"],
    async begin({ harness }) {
      harness.record("b").coolDown(3_600_000);
      return () => {};
    },
  },
];

test.each(guards)("every engine takes its share once the cause of $guard has gone", async (row) => {
  const fleet = await start();
  const end = await row.begin(fleet);
  expect(takers(fleet, 8)).toEqual(names.filter((name) => !row.kept.includes(name)));
  end();
  await fleet.harness.time.advanceAsync(row.withinMs);
  row.afterwards?.(fleet);
  expect(takers(fleet, 8)).toEqual(names);
});

/**
 * An engine in a cooldown had no request for up to 10 s, even if it had become the last one: only when the cooldown began did the
 * router look for another, and only at the model of that request.
 */
const lastOnes: readonly (readonly [cause: string, engine: string, begin: (fleet: Fleet) => unknown])[] = [
  ["the others are down", "b", (fleet) => takeDown(fleet, ["a", "c", "d"])],
  ["the others leave", "b", ({ harness, engines }) => harness.apply(engines[1]!)],
  ["the others are drained", "b", (fleet) => drain(fleet, "a", "c", "d")],
  ["it is the only one of another model", "a", () => {}],
];

test.each(lastOnes)("a cooldown ends when %s", async (_, name, begin) => {
  const fleet = await start();
  const { harness } = fleet;
  harness.record(name).coolDown(10_000);
  await begin(fleet);
  expect(harness.target(name).exclusion).not.toBe("cooldown");
});

test("a cooldown lasts while another engine of the model can take its requests", async () => {
  const fleet = await start();
  const { harness } = fleet;
  for (const name of ["b", "c"]) harness.record(name).coolDown(10_000);
  drain(fleet, "d");
  await harness.time.advanceAsync(9_999);
  expect(names.map((name) => harness.target(name).exclusion)).toEqual([undefined, "cooldown", "cooldown", "draining"]);
});
