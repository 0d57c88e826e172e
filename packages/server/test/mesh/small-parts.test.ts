import { hostname, networkInterfaces } from "node:os";
import { asTargetIndex, createSeededRandom } from "@espalier/common";
import { createPrefixIndex, createPrefixMatches, tier } from "@espalier/prefix-index";
import { createTargetSlots, type PlacementLog } from "@espalier/replication";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createReachWatch } from "../../src/mesh/reach-watch.ts";
import { advertisedHost, routerIdOf } from "../../src/mesh/router-identity.ts";
import { createSharedPlacements } from "../../src/mesh/shared-placements.ts";
import { createTargetIndices } from "../../src/mesh/target-indices.ts";
import { createLocalOutput } from "../../src/prefix/local-output.ts";
import { createLocalPlacements } from "../../src/prefix/local-placements.ts";
import { promptOf, tokensOf } from "../prefix/prompts.ts";

describe("a router's id", () => {
  test("is the one that is configured", () => {
    expect(routerIdOf({ routerId: "mine", port: 7_946 }, createSeededRandom(1))).toBe("mine");
  });

  test("else host name and port, the same after every start", () => {
    const idOf = (seed: number) => routerIdOf({ routerId: undefined, port: 7_946 }, createSeededRandom(seed));
    expect(idOf(1)).toMatch(/^[A-Za-z0-9._-]{1,96}-7946$/);
    expect(idOf(2)).toBe(idOf(1));
    expect(idOf(1)).toContain(
      hostname()
        .replaceAll(/[^A-Za-z0-9._-]/g, "-")
        .slice(0, 96),
    );
  });

  test("with a free port something random, so that routers on one host differ", () => {
    const idOf = (seed: number) => routerIdOf({ routerId: undefined, port: 0 }, createSeededRandom(seed));
    expect(idOf(1)).not.toBe(idOf(2));
    expect(idOf(1)).toMatch(/-[0-9a-z]{1,7}$/);
  });
});

test.each([
  ["127.0.0.1", "127.0.0.1"],
  ["router-1.internal", "router-1.internal"],
  ["::1", "[::1]"],
  ["fd00::5", "[fd00::5]"],
])("others dial a router that listens on %s at %s", (host, dialled) => {
  expect(advertisedHost(host)).toBe(dialled);
});

test("a router that listens on all addresses is dialled at one of this machine", () => {
  const own = Object.values(networkInterfaces()).flatMap((list) => (list ?? []).map(({ address }) => address));
  expect([...own, "127.0.0.1"]).toContain(advertisedHost("0.0.0.0"));
  expect([...own, "::1"].map((address) => `[${address}]`)).toContain(advertisedHost("::"));
});

describe("the numbers of targets", () => {
  test("are those of the slots, the same for the same key", () => {
    const slots = createTargetSlots(3);
    const indexOf = createTargetIndices(slots);
    expect([indexOf("a"), indexOf("b"), indexOf("a")]).toEqual([0, 1, 0]);
    expect(slots.keyOf(1)).toBe("b");
  });

  test("one target past the last slot has a number that nothing is known of, and of its own", () => {
    const indexOf = createTargetIndices(createTargetSlots(2));
    expect(["a", "b", "c", "d"].map(indexOf)).toEqual([0, 1, 2, 3]);
  });

  test("a number that became free is given to the next target", () => {
    const slots = createTargetSlots(2);
    const indexOf = createTargetIndices(slots);
    expect([indexOf("a"), indexOf("b")]).toEqual([0, 1]);
    slots.release("a");
    expect([indexOf("c"), indexOf("b")]).toEqual([0, 1]);
  });
});

describe("what is out of reach", () => {
  function watch() {
    const time = createVirtualTime();
    const told: (readonly string[])[] = [];
    return { time, told, reach: createReachWatch(time.scheduler, (targets) => told.push(targets)) };
  }

  test("is told after two seconds, once, with all that is", () => {
    const { time, told, reach } = watch();
    reach.note("a", false);
    time.advance(1_999);
    expect(told).toEqual([]);
    time.advance(1);
    expect(told).toEqual([["a"]]);
    reach.note("a", false);
    reach.note("b", false);
    time.advance(10_000);
    expect(told).toEqual([["a"], ["a", "b"]]);
  });

  test("is measured from the first failure, however often it is tried", () => {
    const { time, told, reach } = watch();
    for (let at = 0; at < 4; at++) {
      reach.note("a", false);
      time.advance(500);
    }
    expect(told).toEqual([["a"]]);
  });

  test.each([true, undefined])("is not told when it is over before that: connected %s", (isConnected) => {
    const { time, told, reach } = watch();
    reach.note("a", false);
    time.advance(1_000);
    reach.note("a", isConnected);
    time.advance(10_000);
    expect(told).toEqual([]);
  });

  test("is in reach again only once it was connected: not to try says nothing", () => {
    const { time, told, reach } = watch();
    reach.note("a", false);
    time.advance(2_000);
    reach.note("a", undefined);
    reach.note("b", true);
    expect(told).toEqual([["a"]]);
    reach.note("a", true);
    expect(told).toEqual([["a"], []]);
    reach.note("a", true);
    expect(told).toHaveLength(2);
  });
});

describe("guesses", () => {
  const prompt = promptOf(tokensOf("a", 64));

  test("that are shared are told by the target's key", () => {
    const slots = createTargetSlots(4);
    slots.slotOf("engine-a");
    const target = asTargetIndex(slots.slotOf("engine-b"));
    const told: unknown[][] = [];
    const log = {
      place: (...given: unknown[]) => void told.push(["place", ...given]),
      refute: (...given: unknown[]) => void told.push(["refute", ...given]),
    } as unknown as PlacementLog;
    const placements = createSharedPlacements(log, slots);
    placements.place(target, prompt, 5_000);
    placements.confirm(target, prompt, 6_000);
    placements.refute(target, prompt, 2);
    expect(told).toEqual([
      ["place", "engine-b", prompt.chain, 4, { ttlMs: 5_000, isConfirmed: false }],
      ["place", "engine-b", prompt.chain, 4, { ttlMs: 6_000, isConfirmed: true }],
      ["refute", "engine-b", prompt.chain, { from: 2, blockCount: 4 }],
    ]);
  });

  test("that are not shared are in the index at once, until they are refuted or too old", () => {
    const time = createVirtualTime();
    const index = createPrefixIndex({ maxTargets: 4, maxBlocks: 1_000, maxSets: 10 });
    const placements = createLocalPlacements(index, time.clock);
    const matches = createPrefixMatches(4);
    const placed = (): number => {
      index.match(prompt.chain, prompt.blockCount, time.clock.nowMs(), matches);
      return matches.placedBlocks[1]!;
    };
    const target = asTargetIndex(1);
    index.placements.setCapacity(1, 100);
    placements.place(target, prompt, 5_000);
    expect(placed()).toBe(4);
    placements.refute(target, prompt, 3);
    expect(placed()).toBe(3);
    time.advance(5_000);
    expect(placed()).toBe(0);
    placements.place(target, prompt, 1_000);
    placements.confirm(target, prompt, 9_000);
    time.advance(8_999);
    expect(placed()).toBe(4);
  });
});

test("what events come to is in the index of this router, and what ends with a life is forgotten", () => {
  const index = createPrefixIndex({ maxTargets: 4, maxBlocks: 1_000, maxSets: 10 });
  const forgotten: string[] = [];
  const output = createLocalOutput(
    {
      index,
      forget: (target) => forgotten.push(`all of ${target}`),
      forgetPlacements: (target) => forgotten.push(`guesses of ${target}`),
    },
    asTargetIndex(2),
  );
  const { chain } = promptOf(tokensOf("a", 96));
  output.sink.stored(tier.gpu, chain, 0, 6);
  output.sink.stored(tier.cpu, chain, 0, 2);
  expect([index.factBlockCount(2, tier.gpu), index.factBlockCount(2, tier.cpu)]).toEqual([6, 2]);
  output.sink.removed(tier.gpu, chain, 4, 6);
  output.batch({ sequence: 1, timestampUs: 1, checksum: 1 }, { isComplete: true, unknownRemovals: 0 });
  output.gap(2, 3);
  output.condition({ standing: "partial", state: "partial", reason: "gap", unusable: undefined });
  expect([index.factBlockCount(2, tier.gpu), forgotten]).toEqual([4, []]);
  output.emptied();
  output.newLife();
  expect(forgotten).toEqual(["guesses of 2", "all of 2"]);
  output.sink.cleared();
  expect([index.factBlockCount(2, tier.gpu), index.factBlockCount(2, tier.cpu)]).toEqual([0, 0]);
});
