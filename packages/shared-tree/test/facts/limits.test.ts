import { asRouterId } from "@espalier/core";
import type { Origin } from "@espalier/mesh";
import { describe, expect, it } from "vitest";
import { SequenceRanges } from "../../src/facts/fold-track.ts";
import {
  a,
  b,
  blocksOf,
  createFoldHarness,
  firstEpoch,
  gap,
  record,
  storing,
  target,
  transfer,
} from "./fold-harness.ts";

const ample = { maxWaitingRecordsPerTarget: 1_000 };

describe("bounds of a fold", () => {
  it("drops the oldest waiting records of a target, and asks for its state", () => {
    const { fold, reloads } = createFoldHarness({ limits: { maxWaitingRecordsPerTarget: 4 } });
    fold.apply(a, storing(5, 8));
    expect(reloads).toEqual([]);
    fold.apply(a, storing(9, 9));
    expect(reloads).toEqual([{ target, reason: "overflow", from: undefined }]);
    const early = createFoldHarness();
    early.fold.apply(a, storing(0, 4));
    expect(transfer(early.fold, fold)).toEqual([]);
    early.fold.apply(a, storing(5, 5));
    expect(transfer(early.fold, fold)).toEqual([target]);
    expect(fold.state(target)).toMatchObject({ progress: "current", last: { sequence: 9 } });
  });

  it("counts the bytes of waiting records, per target and together", () => {
    const [one] = storing(5, 5);
    const bytes = one!.ops.length + 128;
    const perTarget = createFoldHarness({ limits: { ...ample, maxWaitingBytesPerTarget: 3 * bytes } });
    perTarget.fold.apply(a, storing(5, 7));
    expect(perTarget.fold.byteLength).toBe(3 * bytes);
    expect(perTarget.reloads).toEqual([]);
    perTarget.fold.apply(a, storing(8, 8));
    expect(perTarget.fold.byteLength).toBe(3 * bytes);
    expect(perTarget.reloads).toHaveLength(1);
    const together = createFoldHarness({ limits: { ...ample, maxWaitingBytes: 3 * bytes } });
    together.fold.declare(a, 2, { target: "other", epoch: firstEpoch });
    together.fold.apply(a, storing(5, 7));
    expect(together.reloads).toEqual([]);
    together.fold.apply(a, [record(5, { stored: [1] }, true, 2)]);
    expect(together.fold.byteLength).toBe(3 * bytes);
    expect(together.reloads).toMatchObject([{ target: "other", reason: "overflow" }]);
  });

  it("keeps waiting records while it loads, within the same bound", () => {
    const { fold, reloads } = createFoldHarness({ limits: { maxWaitingRecordsPerTarget: 4 } });
    fold.apply(a, [...storing(5, 9), ...storing(10, 40)]);
    expect(reloads).toHaveLength(1);
    const source = createFoldHarness();
    source.fold.apply(a, storing(0, 37));
    expect(transfer(source.fold, fold)).toEqual([target]);
    expect(fold.state(target)?.last?.sequence).toBe(40);
  });

  it("closes a gap when too much follows it", () => {
    const { fold, held, reloads } = createFoldHarness({ limits: { maxWaitingRecordsPerTarget: 4 } });
    fold.apply(a, [...storing(0, 1), gap(2, 3), ...storing(4, 7, false)]);
    expect(fold.state(target)?.progress).toBe("open");
    fold.apply(a, storing(8, 8, false));
    expect(fold.state(target)).toMatchObject({ progress: "current", isComplete: false });
    expect(fold.byteLength).toBe(0);
    expect(reloads).toEqual([]);
    fold.apply(b, storing(2, 3));
    expect(held()).toEqual([100, 101, ...blocksOf(4, 8)]);
  });

  it("notes no more changes over gaps than the bound on all of them", () => {
    const changeBytes = 12;
    const { fold } = createFoldHarness({ limits: { maxKeptBytes: 3 * changeBytes } });
    fold.declare(a, 2, { target: "other", epoch: firstEpoch });
    fold.apply(a, [...storing(0, 2), gap(3, 3), record(4, { stored: [1], removed: [100] }, false)]);
    expect(fold.state(target)?.progress).toBe("open");
    fold.apply(a, [record(0, { stored: [1] }, true, 2), gap(1, 1, 2), record(2, { stored: [3] }, false, 2)]);
    expect(fold.state("other")).toMatchObject({ progress: "open", isComplete: false, last: { sequence: 2 } });
    // What is held already is no change.
    fold.apply(a, [record(3, { stored: [1] }, false, 2)]);
    expect(fold.state("other")?.progress).toBe("open");
    fold.apply(a, [record(4, { stored: [4] }, false, 2)]);
    expect(fold.state("other")).toMatchObject({ progress: "current", isComplete: false, last: { sequence: 4 } });
    expect(fold.state(target)?.progress).toBe("open");
    fold.forgetTarget(target);
    fold.forgetTarget("other");
    expect(fold.byteLength).toBe(0);
  });
});

describe("bounds of what a fold knows", () => {
  it("takes so many gaps, and then waits", () => {
    const { fold } = createFoldHarness({ limits: { maxGapsPerTarget: 2 } });
    fold.apply(a, [gap(2, 2), gap(4, 4), gap(6, 6), ...storing(0, 1), ...storing(3, 3), ...storing(5, 5)]);
    fold.apply(a, storing(7, 7));
    expect(fold.state(target)?.last?.sequence).toBe(5);
    const ranges = new SequenceRanges(2);
    expect([ranges.add(1, 2), ranges.add(5, 6), ranges.add(8, 9), ranges.add(3, 4)]).toEqual([true, true, false, true]);
    expect(ranges.count).toBe(1);
    expect([ranges.endOf(0), ranges.endOf(1), ranges.endOf(6), ranges.endOf(7)]).toEqual([undefined, 6, 6, undefined]);
    ranges.dropThrough(3);
    expect([ranges.endOf(3), ranges.endOf(4)]).toEqual([undefined, 6]);
  });

  // Writers and feeds are bounded where they are kept, in the journals: a second table of them here once stayed full.
  it("takes what journals have numbers for, and nothing of a number that was given up", () => {
    const { fold, held } = createFoldHarness({ declared: [a] });
    fold.apply(a, [...storing(0, 1), record(0, { stored: [1] }, true, 2)]);
    expect(fold.state("second")).toBeUndefined();
    fold.declare(a, 2, { target: "second", epoch: firstEpoch });
    fold.apply(a, [record(0, { stored: [1] }, true, 2)]);
    expect(held("second")).toEqual([1]);
    fold.retire(a, 2);
    fold.apply(a, [record(1, { stored: [2] }, true, 2), ...storing(2, 2)]);
    expect([held("second"), held()]).toEqual([[1], blocksOf(0, 2)]);
    fold.declare(a, 2, { target: "second", epoch: firstEpoch });
    fold.apply(a, [record(1, { stored: [2] }, true, 2)]);
    expect(held("second")).toEqual([1, 2]);
  });

  it("asks for what has been missing for long", () => {
    const { fold, reloads, time } = createFoldHarness({ limits: { maxHoleMs: 2_000 } });
    fold.apply(a, [...storing(0, 1), ...storing(4, 4)]);
    time.advance(1_999);
    fold.maintain();
    expect(reloads).toEqual([]);
    fold.apply(a, storing(2, 2));
    time.advance(1_999);
    fold.maintain();
    expect(reloads).toEqual([]);
    time.advance(1);
    fold.maintain();
    expect(reloads).toEqual([{ target, reason: "unknown-base", from: undefined }]);
    fold.apply(b, storing(3, 3));
    expect(fold.state(target)).toMatchObject({ progress: "current", last: { sequence: 4 } });
  });

  it("does not grow with history", () => {
    const { fold } = createFoldHarness();
    const writers: Origin[] = [a, b, { router: asRouterId("z"), epoch: 3 }];
    fold.declare(writers[2]!, 1, { target, epoch: firstEpoch });
    for (let from = 0; from < 3_000; from += 10) {
      for (const writer of writers) fold.apply(writer, storing(from, from + 9));
      const last = { stored: [], removed: blocksOf(from, from + 8) };
      fold.apply(a, [gap(from + 10, from + 10), record(from + 11, last, false)]);
      fold.apply(b, [record(from + 10), record(from + 11, last)]);
      from += 2;
    }
    expect(fold.byteLength).toBe(0);
    expect(fold.state(target)?.isComplete).toBe(true);
  });
});
