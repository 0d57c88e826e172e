import { asTargetIndex, silentMeter } from "@espalier/core";
import { createVirtualTime, promptOf, tokensOf } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createTargetSlots } from "../../src/facts/target-slots.ts";
import type { FeedClaim, FeedQuality } from "../../src/feeds/feed-claim.ts";
import { FeedTable } from "../../src/feeds/feed-table.ts";
import { createReachability } from "../../src/feeds/shared-host.ts";
import type { PlacementLog } from "../../src/placements/placement-log.ts";
import { createSharedPlacements, createTargetIndices } from "../../src/shared-tier.ts";
import { claimOf, originOf } from "../documents/journal-fixtures.ts";
import { feedsWith } from "../feeds/fleet.ts";

describe("the numbers of targets", () => {
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
    const reported: (readonly string[])[] = [];
    const feeds = feedsWith(() => []);
    const reach = createReachability(time.scheduler, () => {
      reported.push([...feeds.all()].flatMap(({ target, isUnreachable }) => (isUnreachable ? [target] : [])));
    });
    return {
      ...{ time, reported },
      reach: {
        note: (target: string, isConnected: boolean | undefined) => reach.note(feeds.open(target), isConnected),
        forget: (target: string) => reach.forget(feeds.open(target)),
      },
    };
  }

  test("is told after two seconds, once, with all that is", () => {
    const { time, reported, reach } = watch();
    reach.note("a", false);
    time.advance(1_999);
    expect(reported).toEqual([]);
    time.advance(1);
    expect(reported).toEqual([["a"]]);
    reach.note("a", false);
    reach.note("b", false);
    time.advance(10_000);
    expect(reported).toEqual([["a"], ["a", "b"]]);
  });

  test("is measured from the first failure, however often it is tried", () => {
    const { time, reported, reach } = watch();
    for (let at = 0; at < 4; at++) {
      reach.note("a", false);
      time.advance(500);
    }
    expect(reported).toEqual([["a"]]);
    time.advance(10_000);
    expect(reported).toEqual([["a"]]);
  });

  test.each([true, undefined])("is not told when it is over before that: connected %s", (isConnected) => {
    const { time, reported, reach } = watch();
    reach.note("a", false);
    time.advance(1_000);
    reach.note("a", isConnected);
    time.advance(10_000);
    expect(reported).toEqual([]);
  });

  test("is in reach again only once it was connected: not to try says nothing", () => {
    const { time, reported, reach } = watch();
    reach.note("a", false);
    time.advance(2_000);
    reach.note("a", undefined);
    reach.note("b", true);
    expect(reported).toEqual([["a"]]);
    reach.note("a", true);
    expect(reported).toEqual([["a"], []]);
    reach.note("a", true);
    expect(reported).toHaveLength(2);
  });

  test("is not so any more, nor ever will be, once it is forgotten", () => {
    const { time, reported, reach } = watch();
    reach.note("a", false);
    time.advance(1_000);
    reach.note("b", false);
    time.advance(1_500);
    reach.forget("b");
    reach.forget("a");
    reach.forget("a");
    time.advance(10_000);
    expect(reported).toEqual([["a"], []]);
    reach.note("a", false);
    time.advance(2_000);
    expect(reported.at(-1)).toEqual(["a"]);
  });
});

test("guesses are told by the target's key", () => {
  const prompt = promptOf(tokensOf("a", 64));
  const slots = createTargetSlots(4);
  slots.slotOf("engine-a");
  const target = asTargetIndex(slots.slotOf("engine-b"));
  const reported: unknown[][] = [];
  const log = {
    place: (...given: unknown[]) => void reported.push(["place", ...given]),
    refute: (...given: unknown[]) => void reported.push(["refute", ...given]),
  } as unknown as PlacementLog;
  const placements = createSharedPlacements(log, slots);
  placements.place(target, prompt, 5_000);
  placements.confirm(target, prompt, 6_000);
  placements.refute(target, prompt, 2);
  expect(reported).toEqual([
    ["place", "engine-b", prompt.chain, 4, { ttlMs: 5_000, isConfirmed: false }],
    ["place", "engine-b", prompt.chain, 4, { ttlMs: 6_000, isConfirmed: true }],
    ["refute", "engine-b", prompt.chain, { from: 2, blockCount: 4 }],
  ]);
});

describe("what facts are worth", () => {
  function qualities() {
    const slots = createTargetSlots(4);
    const quality: Record<string, FeedQuality> = {};
    const asked: string[] = [];
    const self = originOf("self");
    const feeds = new FeedTable({
      ...{ slots, self: () => self, clock: createVirtualTime().clock, meter: silentMeter },
      fold: {
        state(target) {
          asked.push(target);
          return undefined;
        },
      },
    });
    for (const target of ["a", "b"]) {
      const claim = claimOf(target);
      feeds.claimChanged(self, target, {
        ...claim,
        get quality() {
          return quality[target] ?? "none";
        },
      });
    }
    return {
      slots,
      quality,
      asked,
      claims: (target: string) => feeds.foldChanged(target),
      claim: (target: string, claim: FeedClaim | undefined) => feeds.claimChanged(self, target, claim),
      known: { of: (index: number) => feeds.qualityAt(index) },
    };
  }

  test("is asked for once, until claims of that target change", () => {
    const { slots, quality, asked, claims, known } = qualities();
    const [one, other] = [asTargetIndex(slots.slotOf("a")), asTargetIndex(slots.slotOf("b"))];
    quality.a = "complete";
    for (let turn = 0; turn < 3; turn++) expect([known.of(one), known.of(other)]).toEqual(["complete", "none"]);
    expect(asked).toEqual(["a", "b"]);
    quality.a = "partial";
    expect(known.of(one)).toBe("complete");
    claims("a");
    expect([known.of(one), known.of(other)]).toEqual(["partial", "none"]);
    expect(asked).toEqual(["a", "b", "a"]);
    claims("nobody-knows-this-one");
    expect(known.of(one)).toBe("partial");
  });

  test("is another target's once it has the number: nothing is left of the one before", () => {
    const { slots, quality, known } = qualities();
    quality.a = "complete";
    const number = asTargetIndex(slots.slotOf("a"));
    expect(known.of(number)).toBe("complete");
    slots.release("a");
    expect(known.of(number)).toBe("none");
    expect(slots.slotOf("b")).toBe(number);
    expect(known.of(number)).toBe("none");
  });

  test("of a target that was forgotten and is claimed again follows the new claim", () => {
    const { slots, quality, known, claim } = qualities();
    const number = asTargetIndex(slots.slotOf("a"));
    quality.a = "partial";
    expect(known.of(number)).toBe("partial");
    claim("a", undefined);
    expect(known.of(number)).toBe("none");
    claim("a", { ...claimOf("a"), quality: "complete" });
    expect(known.of(number)).toBe("complete");
  });
});
