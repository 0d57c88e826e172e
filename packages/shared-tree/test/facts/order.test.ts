import { createPrefixMatches } from "@espalier/prefix-index";
import { describe, expect, it } from "vitest";
import {
  a,
  b,
  blocksOf,
  c,
  chainOf,
  createFoldHarness,
  gap,
  record,
  storing,
  target,
  transfer,
} from "./fold-harness.ts";

describe("the order of a target's records", () => {
  it("applies records as they come", () => {
    const { fold, held } = createFoldHarness();
    fold.apply(a, storing(0, 3));
    fold.apply(a, [record(4, { removed: [101] })]);
    expect(held()).toEqual([100, 102, 103]);
    expect(fold.state(target)).toMatchObject({ isComplete: true, progress: "current", last: { sequence: 4 } });
  });

  it("waits for what is missing, then applies all that came early", () => {
    const { fold, held, changes } = createFoldHarness();
    fold.apply(a, storing(0, 1));
    fold.apply(b, [record(4, { removed: [103] }), ...storing(5, 5)]);
    expect(fold.state(target)).toMatchObject({ progress: "waiting", last: { sequence: 1 } });
    expect(held()).toEqual([100, 101]);
    expect(fold.statement(target)).toBeUndefined();
    fold.apply(a, storing(2, 3));
    expect(held()).toEqual([100, 101, 102, 105]);
    expect(fold.state(target)).toMatchObject({ progress: "current", last: { sequence: 5 } });
    expect(changes).toEqual([target, target]);
    expect(fold.byteLength).toBe(0);
  });

  // A RangeError of the index was taken for ops that cannot be read, which the item's reader has refused long before: with
  // a kept state the same record was tried for ever.
  it.each([
    ["a record in turn", storing(0, 0), storing(1, 1)],
    ["a record after a gap", [...storing(0, 0), gap(1, 1)], storing(2, 2)],
  ])("a defect of the index when it takes %s is not blamed on the record", (_which, before, next) => {
    const { fold, index } = createFoldHarness();
    fold.apply(a, before);
    index.storeFacts = () => {
      throw new RangeError("a defect");
    };
    expect(() => fold.apply(a, next)).toThrow("a defect");
  });

  it("takes every sequence once", () => {
    const { fold, held } = createFoldHarness();
    fold.apply(a, storing(0, 2));
    fold.apply(a, [record(3, { removed: [101] })]);
    fold.apply(b, storing(0, 2));
    fold.apply(a, storing(0, 2));
    expect(held()).toEqual([100, 102]);
  });

  it("prefers complete records, then those of the lowest router, then those of its earliest epoch", () => {
    const { fold, held } = createFoldHarness({ declared: [a, b, c, { ...b, epoch: 2 }] });
    fold.apply(c, [record(1, { stored: [3] })]);
    fold.apply({ ...b, epoch: 2 }, [record(1, { stored: [4] })]);
    fold.apply(b, [record(1, { stored: [2] })]);
    fold.apply(a, [record(1, { stored: [1] }, false)]);
    fold.apply(c, [record(0)]);
    expect(held()).toEqual([2]);
  });

  it("does not wait for messages that were declared lost", () => {
    const { fold, held } = createFoldHarness();
    fold.apply(a, [...storing(0, 1), gap(2, 5), record(6, { stored: [106] }, false)]);
    expect(held()).toEqual([100, 101, 106]);
    expect(fold.state(target)).toMatchObject({ isComplete: false, progress: "open", last: { sequence: 6 } });
  });

  it("uses the records that there are in a gap", () => {
    const { fold, held } = createFoldHarness();
    fold.apply(b, storing(4, 4));
    fold.apply(a, [...storing(0, 1), gap(2, 5), record(6, { stored: [106] }, false)]);
    expect(held()).toEqual([100, 101, 104, 106]);
  });

  it("counts a removal of what is not there or not unambiguous, and goes on", () => {
    const { fold, held, index, slots } = createFoldHarness();
    fold.apply(a, storing(0, 1));
    index.storeFacts(slots.find(target), 0, Uint32Array.of(101, 1), 0, 1);
    fold.apply(a, [record(2, { removed: [101, 999, 100] })]);
    expect(held()).toEqual([101, 101]);
    expect(fold.state(target)?.last?.sequence).toBe(2);
  });

  it("folds tiers apart, and clears all of them", () => {
    const { fold, index, slots } = createFoldHarness();
    fold.apply(a, [record(0, { stored: [1, 2] }), record(1, { stored: [1], tier: 1 }), record(2, { removed: [1] })]);
    const slot = slots.find(target);
    expect([index.factBlockCount(slot, 0), index.factBlockCount(slot, 1)]).toEqual([1, 1]);
    fold.apply(a, [record(3, { removed: [1], tier: 1, isLong: true }), record(4, { isCleared: true, stored: [9] })]);
    expect([index.factBlockCount(slot, 0), index.factBlockCount(slot, 1)]).toEqual([1, 0]);
  });

  it("ignores what it cannot place", () => {
    const { fold, held } = createFoldHarness({ declared: [a] });
    fold.apply(b, storing(0, 3));
    fold.apply(a, [record(0, { stored: [1] }, true, 99)]);
    expect(held()).toEqual([]);
    fold.apply(a, storing(0, 1));
    expect(held()).toEqual(blocksOf(0, 1));
  });
});

describe("filling a gap late", () => {
  /** A misses 61 to 70, in which X was stored, and sees its removal at 80, which means nothing to it. */
  const x = 7_777;
  const ownersView = [
    ...storing(0, 60),
    gap(61, 70),
    ...storing(71, 79, false),
    record(80, {}, false),
    ...storing(81, 90, false),
  ];
  const backupsView = [
    ...storing(61, 64),
    record(65, { stored: [x] }),
    ...storing(66, 79),
    record(80, { removed: [x] }),
    ...storing(81, 90),
  ];
  const truth = [...blocksOf(0, 64), ...blocksOf(66, 79), ...blocksOf(81, 90)];

  it("gives the state as if nothing had been missed", () => {
    const { fold, held } = createFoldHarness();
    fold.apply(a, ownersView);
    expect(fold.state(target)).toMatchObject({ progress: "open", isComplete: false });
    expect(fold.byteLength).toBeGreaterThan(61 * 8);
    fold.apply(b, backupsView);
    expect(held()).toEqual(truth);
    expect(fold.state(target)).toMatchObject({ progress: "current", isComplete: true, last: { sequence: 90 } });
    expect(fold.byteLength).toBe(0);
  });

  it("gives it whatever comes first", () => {
    const { fold, held } = createFoldHarness();
    fold.apply(b, backupsView);
    fold.apply(a, ownersView);
    expect(held()).toEqual(truth);
    expect(fold.state(target)?.isComplete).toBe(true);
  });

  it("stays open where a part of the gap is still missing", () => {
    const { fold, held } = createFoldHarness();
    fold.apply(a, ownersView);
    fold.apply(b, backupsView.slice(0, 5));
    expect(held()).toContain(x);
    expect(fold.state(target)).toMatchObject({ progress: "open", isComplete: false });
    fold.apply(b, backupsView.slice(5));
    expect(held()).toEqual(truth);
  });

  it("does not fold again for what says the same", () => {
    const refolds: number[] = [];
    const series = { add: (amount = 1): number => refolds.push(amount), set: () => {}, observe: () => {} };
    const metric = { series: () => series, forget: () => {} };
    const silent = { series: () => ({ add: () => {}, set: () => {}, observe: () => {} }), forget: () => {} };
    const meter = {
      counter: (name: string) => (name === "espalier_fold_refolds_total" ? metric : silent),
      gauge: () => silent,
      histogram: () => silent,
    };
    const { fold } = createFoldHarness({ meter });
    fold.apply(b, ownersView);
    fold.apply(b, ownersView);
    fold.apply(a, ownersView);
    expect(refolds).toEqual([]);
    fold.apply(c, backupsView);
    expect(refolds).toEqual([1]);
  });

  it("takes up a complete record after an incomplete one of a complete state", () => {
    const { fold, held } = createFoldHarness();
    fold.apply(a, [...storing(0, 2), record(3, {}, false), ...storing(4, 4, false)]);
    expect(fold.state(target)).toMatchObject({ progress: "current", isComplete: false });
    fold.apply(b, [record(3, { removed: [101] }), ...storing(4, 4)]);
    expect(held()).toEqual([100, 102, 104]);
    expect(fold.state(target)).toMatchObject({ progress: "current", isComplete: true });
    expect(fold.byteLength).toBe(0);
  });
});

describe("going back to before a gap", () => {
  it("keeps holes and tiers over a gap", () => {
    const { fold, index, slots, held } = createFoldHarness();
    fold.apply(a, [
      record(0, { stored: [1, 2, 3] }),
      record(1, { orphaned: [[2, 1]] }),
      record(2, { stored: [8], tier: 2 }),
      gap(3, 3),
      record(4, { stored: [2], removed: [1, 3], isLong: true }, false),
    ]);
    expect(held()).toEqual([2]);
    fold.apply(b, [record(3, { stored: [5] }), record(4, { stored: [6] })]);
    const slot = slots.find(target);
    expect(held()).toEqual([1, 3, 5, 6]);
    expect(index.factBlockCount(slot, 2)).toBe(1);
    // Block 2 is missing in front of block 3 again, which the index finds out by walking.
    const words = chainOf(1, 2, 3);
    const matches = createPrefixMatches(8);
    index.match(words, 3, 0, matches);
    expect(matches.gpuBlocks[slot]).toBe(1);
  });

  it("keeps holes as they are where nothing was stored", () => {
    const { fold, index, slots, held } = createFoldHarness();
    fold.apply(a, [
      record(0, { stored: [1, 2, 3, 4] }),
      record(1, { orphaned: [[2, 1]] }),
      gap(2, 2),
      record(3, { orphaned: [[3, 2]] }, false),
    ]);
    fold.apply(b, [record(2), record(3, {}, true)]);
    expect(held()).toEqual([1, 3, 4]);
    const parts = [...index.exportAll([slots.find(target)])].flat().map(({ part }) => part);
    const holes = parts.filter(({ kind }) => kind === "holes");
    expect(holes).toMatchObject([{ depths: Uint32Array.of(1) }]);
  });

  it("goes over a message that drops everything", () => {
    const { fold, held, reloads } = createFoldHarness();
    const dropped = { isCleared: true, stored: [7] };
    fold.apply(a, [...storing(0, 2), gap(3, 3), ...storing(4, 4, false), record(5, dropped, false)]);
    expect(held()).toEqual([7]);
    fold.apply(a, storing(6, 6, false));
    fold.apply(b, [record(3, { removed: [101] }), ...storing(4, 4), record(5, dropped), ...storing(6, 6)]);
    expect(held()).toEqual([7, 106]);
    expect(fold.state(target)).toMatchObject({ progress: "current", isComplete: true });
    expect([reloads, fold.byteLength]).toEqual([[], 0]);
  });

  it("asks for the state when readers do not agree that a message drops everything", () => {
    const { fold, held, reloads } = createFoldHarness();
    fold.apply(a, [...storing(0, 2), gap(3, 3), record(4, { isCleared: true, stored: [7] }, false)]);
    expect(held()).toEqual([7]);
    fold.apply(b, [...storing(3, 3), record(4, { stored: [7] })]);
    expect(reloads).toEqual([{ target, reason: "unknown-base", from: undefined }]);
    expect(fold.state(target)?.progress).toBe("loading");
    const other = createFoldHarness();
    other.fold.apply(b, [...storing(0, 3), record(4, { stored: [7] })]);
    expect(transfer(other.fold, fold)).toEqual([target]);
    expect(held()).toEqual([7, ...blocksOf(0, 3)]);
  });

  it("goes back to exactly the state before the gap, whatever worse records have done since", () => {
    // Where no reader has read everything, a better record need not say anything of what a worse one has stored.
    const { fold, held } = createFoldHarness();
    fold.apply(b, [...storing(0, 1), gap(2, 2)]);
    fold.apply(b, [record(3, { stored: [7], removed: [100] }, false), record(4, { stored: [100] }, false)]);
    expect(held()).toEqual([7, 100, 101]);
    fold.apply(a, [record(3, { stored: [8] }, false), record(4, { removed: [100] }, false)]);
    expect(held()).toEqual([8, 101]);
    expect(fold.state(target)).toMatchObject({ progress: "open", isComplete: false });
    fold.apply(c, [record(2, { removed: [101] })]);
    expect(held()).toEqual([8]);
  });
});
