import { describe, expect, it } from "vitest";
import { CheckpointTable, maxWaitingCheckpoints } from "../../src/facts/checkpoint-table.ts";
import {
  a,
  b,
  blocksOf,
  c,
  checkpointAt,
  checkpointOf,
  createFoldHarness,
  gap,
  record,
  storing,
  target,
  transfer,
} from "./fold-harness.ts";

describe("checkpoints", () => {
  it("change nothing where the state is the same", () => {
    const { fold, reloads, changes } = createFoldHarness();
    fold.apply(a, storing(0, 4));
    changes.length = 0;
    fold.apply(a, [checkpointAt(4, blocksOf(0, 4))]);
    expect(reloads).toEqual([]);
    expect(changes).toEqual([]);
  });

  it("reload a state that differs, once", () => {
    const { fold, reloads } = createFoldHarness();
    fold.apply(a, [...storing(0, 4), checkpointAt(4, [1])]);
    fold.apply(a, [...storing(5, 6), checkpointAt(6, [1, 2])]);
    expect(reloads).toEqual([{ target, reason: "digest-mismatch", from: a }]);
    expect(fold.state(target)?.progress).toBe("loading");
    expect(fold.statement(target)).toBeUndefined();
  });

  it("reload what lags behind records that are gone", () => {
    const { fold, reloads } = createFoldHarness();
    fold.apply(a, storing(0, 1));
    fold.apply(b, [...storing(5, 6), checkpointAt(6, blocksOf(0, 6))]);
    expect(reloads).toEqual([{ target, reason: "behind-cut", from: b }]);
  });

  it("do not reload when what is missing comes after all", () => {
    const { fold, held } = createFoldHarness();
    fold.apply(a, storing(0, 1));
    fold.apply(b, [...storing(5, 6), checkpointAt(6, blocksOf(0, 6)), ...storing(7, 7)]);
    fold.apply(a, storing(2, 4));
    expect(fold.state(target)).toMatchObject({ progress: "current", last: { sequence: 7 } });
    expect(held()).toEqual(blocksOf(0, 7));
  });

  it("are not skipped over by a gap that another writer has read through", () => {
    const { fold, reloads } = createFoldHarness();
    fold.apply(b, [checkpointAt(4, blocksOf(0, 4))]);
    expect(reloads).toEqual([{ target, reason: "behind-cut", from: b }]);
    fold.apply(a, [...storing(0, 1), gap(2, 5), ...storing(6, 6, false)]);
    expect(fold.state(target)).toMatchObject({ progress: "loading", last: { sequence: 1 }, isComplete: true });
  });

  it("close a gap for good", () => {
    const { fold, held } = createFoldHarness();
    fold.apply(a, [...storing(0, 1), gap(2, 5), ...storing(6, 6, false)]);
    expect(fold.state(target)?.progress).toBe("open");
    fold.apply(a, [checkpointAt(6, [100, 101, 106], false)]);
    expect(fold.state(target)).toMatchObject({ progress: "current", isComplete: false });
    expect(fold.byteLength).toBe(0);
    fold.apply(b, storing(2, 5));
    expect(held()).toEqual([100, 101, 106]);
  });

  it("close a gap that lies below them, also when they come late", () => {
    const { fold } = createFoldHarness();
    fold.apply(a, [...storing(0, 1), gap(2, 5), ...storing(6, 9, false)]);
    fold.apply(a, [checkpointAt(1, [100, 101])]);
    expect(fold.state(target)?.progress).toBe("open");
    fold.apply(a, [checkpointAt(6, [100, 101, 106], false)]);
    expect(fold.state(target)?.progress).toBe("current");
    expect(fold.byteLength).toBe(0);
  });

  it("do not close a gap above them", () => {
    const { fold } = createFoldHarness();
    fold.apply(a, [...storing(0, 1), gap(2, 5)]);
    fold.apply(a, [checkpointAt(1, [100, 101])]);
    expect(fold.state(target)).toMatchObject({ progress: "open", last: { sequence: 1 }, isComplete: false });
  });
});

describe("checkpoints of which one is better than the other", () => {
  it("make a state complete that they agree with", () => {
    const { fold, reloads } = createFoldHarness();
    fold.apply(a, storing(0, 3, false));
    fold.apply(b, [checkpointAt(3, blocksOf(0, 3), true)]);
    expect(fold.state(target)).toMatchObject({ isComplete: true, progress: "current" });
    expect(reloads).toEqual([]);
  });

  it("that are complete replace what has been incomplete since before them", () => {
    const { fold, reloads } = createFoldHarness();
    fold.apply(a, [...storing(0, 1), ...storing(2, 9, false)]);
    fold.apply(b, [checkpointAt(1, blocksOf(0, 1))]);
    expect(reloads).toEqual([]);
    fold.apply(b, [checkpointAt(5, blocksOf(0, 5))]);
    expect(reloads).toEqual([{ target, reason: "behind-cut", from: b }]);
  });

  it("that are incomplete do not shake a complete state, unless they are repeated", () => {
    const { fold, reloads, held } = createFoldHarness();
    fold.apply(b, storing(0, 6));
    fold.apply(a, [checkpointAt(6, [1], false)]);
    expect(held()).toEqual(blocksOf(0, 6));
    fold.apply(a, [checkpointAt(6, [1], false)]);
    expect(reloads).toEqual([]);
    fold.apply(b, storing(7, 7));
    fold.apply(a, [checkpointAt(7, [1], false)]);
    expect(reloads).toEqual([{ target, reason: "digest-mismatch", from: a }]);
  });

  it("of the lowest router win where two say different things", () => {
    const { fold, reloads } = createFoldHarness();
    fold.apply(b, [...storing(0, 2), checkpointAt(2, blocksOf(0, 2))]);
    fold.apply(c, [checkpointAt(2, [5])]);
    expect(reloads).toEqual([]);
    fold.apply(a, [checkpointAt(2, [6])]);
    expect(reloads).toEqual([{ target, reason: "digest-mismatch", from: a }]);
  });

  it("of this router itself are no reason to doubt its state", () => {
    const { fold, reloads } = createFoldHarness({ self: a.router });
    fold.apply(a, [...storing(0, 2), checkpointAt(2, [5]), ...storing(3, 3), checkpointAt(3, [5])]);
    expect(reloads).toEqual([]);
  });

  it("can be made of an open state, and settle it", () => {
    const harness = createFoldHarness();
    const { fold } = harness;
    fold.apply(a, [...storing(0, 1), gap(2, 5), ...storing(6, 6, false)]);
    expect(fold.statement(target)).toBeUndefined();
    fold.apply(a, [checkpointOf(harness)]);
    expect(fold.statement(target)).toMatchObject({ target, sequence: 6, isComplete: false, blocks: 3 });
  });

  it("wait in a bounded number, the highest ones", () => {
    const table = new CheckpointTable();
    for (let sequence = 0; sequence <= maxWaitingCheckpoints; sequence++)
      table.add({ checkpoint: checkpointAt(sequence, []), origin: a });
    expect(table.count).toBe(maxWaitingCheckpoints);
    expect(table.take(0)).toBeUndefined();
    expect(table.highest?.checkpoint.sequence).toBe(maxWaitingCheckpoints);
    table.add({ checkpoint: checkpointAt(3, [], false), origin: a });
    expect(table.take(3)?.checkpoint.isComplete).toBe(true);
  });
});

describe("comparing statements", () => {
  it("tells equal from different and from what cannot be compared", () => {
    const one = createFoldHarness();
    const other = createFoldHarness();
    one.fold.apply(a, storing(0, 5));
    other.fold.apply(b, storing(0, 4));
    const statement = one.fold.statement(target)!;
    expect(other.fold.compare(statement, a)).toBe("not-comparable");
    other.fold.apply(b, storing(5, 5));
    expect(other.fold.compare(statement, a)).toBe("equal");
    expect(other.fold.compare({ ...statement, epoch: "0.1.1" }, a)).toBe("not-comparable");
    expect(other.fold.compare({ ...statement, target: "other" }, a)).toBe("not-comparable");
    expect(other.fold.compare({ ...statement, blocks: 1, isComplete: false }, a)).toBe("different");
    expect(other.reloads).toEqual([]);
    expect(other.fold.compare({ ...statement, digest: [1, 2] }, a)).toBe("different");
    expect(other.reloads).toEqual([{ target, reason: "digest-mismatch", from: a }]);
    expect(other.fold.compare(statement, a)).toBe("not-comparable");
  });
});

/**
 * A replica that nobody had given a snapshot in time went on as partial. It held what the reader held that had read all,
 * and every statement said so, but it took its facts for partial until the reader's next checkpoint, up to a minute later.
 */
it("a replica that holds what a complete statement says is complete, too", () => {
  const one = createFoldHarness();
  const { fold, changes } = createFoldHarness();
  one.fold.apply(a, storing(0, 5));
  fold.apply(b, storing(0, 5, false));
  expect(fold.state(target)).toMatchObject({ progress: "current", isComplete: false });
  const statement = one.fold.statement(target)!;
  expect(fold.compare({ ...statement, isComplete: false }, a)).toBe("equal");
  expect(fold.state(target)?.isComplete).toBe(false);
  changes.length = 0;
  expect(fold.compare(statement, a)).toBe("equal");
  expect([fold.state(target)?.isComplete, changes]).toEqual([true, [target]]);
});

describe("replacing the state by a reader's own", () => {
  const replacement = {
    target,
    epoch: { sequence: 0, timestampUs: 1_000, checksum: 7, predecessor: null },
    mark: { sequence: 8, timestampUs: 1_008, checksum: 63 },
    isComplete: true,
    tellAll: (sink: { stored(tier: 0, words: Uint32Array, from: number, to: number): void }): void =>
      sink.stored(0, Uint32Array.of(1, 1, 2, 2), 0, 2),
  };

  it("goes on from its mark with what waits", () => {
    const { fold, held } = createFoldHarness();
    fold.apply(a, [...storing(0, 3), ...storing(7, 9)]);
    expect(fold.replaceState(replacement)).toBe(true);
    expect(held()).toEqual([1, 2, 109]);
    expect(fold.state(target)).toMatchObject({ progress: "current", isComplete: true, last: { sequence: 9 } });
  });

  it("ends loading, and a snapshot that is under way", () => {
    const one = createFoldHarness();
    const other = createFoldHarness();
    one.fold.apply(a, storing(0, 9));
    other.fold.apply(a, [checkpointAt(9, [3])]);
    const frames = [...one.fold.exportFrames(65_536)];
    const snapshot = other.fold.beginImport();
    snapshot.frame(frames[0]!);
    expect(other.fold.replaceState(replacement)).toBe(true);
    for (const frame of frames.slice(1)) snapshot.frame(frame);
    expect(snapshot.end()).toEqual([target]);
    expect(other.held()).toEqual([1, 2]);
  });

  it("is refused for another epoch than the newest, and for an unknown target", () => {
    const { fold, held } = createFoldHarness();
    fold.apply(a, storing(0, 1));
    expect(fold.replaceState({ ...replacement, epoch: { ...replacement.epoch, checksum: 8 } })).toBe(false);
    expect(fold.replaceState({ ...replacement, target: "other" })).toBe(false);
    expect(held()).toEqual([100, 101]);
  });

  it("brings others to reload", () => {
    const one = createFoldHarness({ self: a.router });
    const other = createFoldHarness({ self: b.router });
    other.fold.apply(c, storing(0, 3));
    one.fold.apply(c, storing(0, 3));
    one.fold.replaceState(replacement);
    other.fold.apply(a, [checkpointOf(one)]);
    expect(other.reloads).toEqual([{ target, reason: "behind-cut", from: a }]);
    expect(transfer(one.fold, other.fold)).toEqual([target]);
    expect(other.held()).toEqual([1, 2]);
    expect(other.fold.statement(target)).toEqual(one.fold.statement(target));
  });

  it("tells listeners that apply more from within", () => {
    const { fold, held } = createFoldHarness();
    fold.onChange(() => {
      if (fold.state(target)?.progress === "waiting") fold.apply(b, storing(0, 2));
    });
    fold.apply(a, [record(3, { removed: [101] })]);
    expect(held()).toEqual([100, 102]);
    expect(fold.state(target)?.progress).toBe("current");
  });
});
