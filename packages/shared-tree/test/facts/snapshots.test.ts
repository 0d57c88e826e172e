import { createSeededRandom, type Random } from "@espalier/core";
import { createPrefixMatches } from "@espalier/prefix-index";
import { fixedSeeds, randomRuns } from "@espalier/testing";
import { describe, expect, it } from "vitest";
import type { FactRecord } from "../../src/facts/fact-item.ts";
import { maxSnapshotTargets, readSnapshotFrame, writeSnapshotFrame } from "../../src/facts/snapshot-codec.ts";
import { minSnapshotFrameBytes } from "../../src/facts/snapshots.ts";
import {
  a,
  b,
  blocksOf,
  chainOf,
  checkpointAt,
  checkpointOf,
  createFoldHarness,
  type FoldHarness,
  firstEpoch,
  gap,
  record,
  storing,
  target,
  transfer,
} from "./fold-harness.ts";

const frameBytes = minSnapshotFrameBytes;

/** A fold with one block per record. */
function filled(to: number): FoldHarness {
  const harness = createFoldHarness();
  harness.fold.apply(a, storing(0, to));
  return harness;
}

/** A low word as hashes have them, so that they spread over the index. */
const spread = (number: number): number => Math.imul(number, 0x9e37_79b1) >>> 0;

/** Blocks enough that they do not fit into one frame. */
const manyBlocks = Array.from({ length: 40_000 }, (_, at) => spread(1_000 + at));

describe("snapshots", () => {
  it("bring a joiner everything", () => {
    const source = createFoldHarness();
    source.fold.apply(a, [
      record(0, { stored: manyBlocks }),
      record(1, { stored: [5, 6], tier: 1 }),
      record(2, { orphaned: [[manyBlocks[1]!, 3]] }),
    ]);
    source.fold.declare(a, 2, { target: "other", epoch: firstEpoch });
    source.fold.apply(a, [record(0, { stored: manyBlocks.slice(0, 9) }, false, 2)]);
    const joiner = createFoldHarness({ declared: [] });
    const frames = [...source.fold.exportFrames(frameBytes)];
    expect(frames.length).toBeGreaterThan(4);
    for (const frame of frames) expect(frame.length).toBeLessThanOrEqual(frameBytes);
    const snapshot = joiner.fold.beginImport();
    for (const frame of frames) snapshot.frame(frame);
    expect([...snapshot.end()].sort()).toEqual([target, "other"].sort());
    for (const key of [target, "other"]) {
      expect(joiner.fold.state(key)).toEqual(source.fold.state(key));
      expect(joiner.fold.statement(key)).toEqual(source.fold.statement(key));
    }
    const parts = [...joiner.index.exportAll([joiner.slots.find(target)])].flat().map(({ part }) => part);
    const holes = parts.filter(({ kind }) => kind === "holes");
    expect(holes).toMatchObject([{ depths: Uint32Array.of(3) }]);
    expect(joiner.reloads).toEqual([]);
  });

  it("give the exact state although it changes while they are read and taken", () => {
    for (const seed of fixedSeeds(8)) {
      const random = createSeededRandom(seed);
      const source = createFoldHarness();
      const joiner = createFoldHarness();
      let sequence = 0;
      const held = new Set<number>();
      const step = (): void => {
        const stored = Array.from({ length: 100 }, () => spread(1 + random.integer(900))).filter(
          (low) => !held.has(low),
        );
        const removed = [...held].filter(() => random.integer(12) === 0);
        const isCleared = random.integer(40) === 0;
        const ops = isCleared ? { isCleared, stored } : { stored: [...new Set(stored)], removed };
        if (isCleared) held.clear();
        else for (const low of removed) held.delete(low);
        for (const low of stored) held.add(low);
        const entry = record(sequence++, ops);
        source.fold.apply(a, [entry]);
        joiner.fold.apply(a, [entry]);
      };
      // What the joiner did not see: it comes late.
      source.fold.apply(a, [record(sequence++, { stored: manyBlocks })]);
      for (let left = 30; left > 0; left--) step();
      const snapshot = joiner.fold.beginImport();
      for (const frame of source.fold.exportFrames(frameBytes)) {
        step();
        snapshot.frame(frame);
        step();
      }
      expect(snapshot.end()).toEqual([target]);
      step();
      expect(joiner.fold.statement(target)).toEqual(source.fold.statement(target));
      expect(joiner.fold.byteLength).toBe(0);
    }
  });

  it("are refused where they lead nowhere", () => {
    const source = filled(3);
    const { fold, held } = createFoldHarness();
    fold.apply(a, [...storing(0, 1), ...storing(9, 9), checkpointAt(9, blocksOf(0, 9))]);
    expect(transfer(source.fold, fold)).toEqual([]);
    expect(fold.state(target)?.progress).toBe("loading");
    expect(held()).toEqual([100, 101]);
    source.fold.apply(a, storing(4, 8));
    expect(transfer(source.fold, fold)).toEqual([target]);
    expect(held()).toEqual(blocksOf(0, 9));
  });

  it("change nothing where the state is as good", () => {
    const source = filled(5);
    const { fold, held } = filled(7);
    expect(transfer(source.fold, fold)).toEqual([target]);
    expect(held()).toEqual(blocksOf(0, 7));
  });

  it("complete a state that is not", () => {
    const source = filled(5);
    const { fold } = createFoldHarness();
    fold.apply(b, [...storing(0, 2, false), gap(3, 3), ...storing(4, 5, false)]);
    expect(transfer(source.fold, fold)).toEqual([target]);
    expect(fold.statement(target)).toEqual(source.fold.statement(target));
    expect(fold.byteLength).toBe(0);
  });

  it("bring an open target as it was before the gap", () => {
    const source = createFoldHarness();
    source.fold.apply(a, [...storing(0, 3), gap(4, 5), ...storing(6, 7, false)]);
    const joiner = createFoldHarness();
    expect(transfer(source.fold, joiner.fold)).toEqual([target]);
    expect(joiner.fold.state(target)).toMatchObject({ last: { sequence: 3 }, isComplete: true });
    for (const { fold } of [source, joiner]) fold.apply(b, storing(4, 7));
    joiner.fold.apply(a, [gap(4, 5), ...storing(6, 7, false)]);
    expect(joiner.fold.statement(target)).toEqual(source.fold.statement(target));
  });
});

describe("snapshots of open targets", () => {
  /** Two targets that hold the same, one of them open, with what came after the gap. */
  function openSource(random: Random): { source: FoldHarness; following: FactRecord[] } {
    const source = createFoldHarness();
    source.fold.declare(a, 2, { target: "other", epoch: firstEpoch });
    source.fold.apply(a, [record(0, { stored: manyBlocks }, true, 2)]);
    const following = changes(random, 2, 4);
    source.fold.apply(b, [record(0, { stored: manyBlocks }), gap(1, 1), ...following]);
    return { source, following };
  }

  /** Records that remove blocks and store others, seldom all that there are. */
  function changes(random: Random, from: number, to: number): FactRecord[] {
    return Array.from({ length: to - from + 1 }, (_, at) => {
      const some = (): number[] =>
        Array.from({ length: random.integer(200) }, () => manyBlocks[random.integer(manyBlocks.length)]!);
      const stored = [...some(), spread(900_000 + random.integer(500)), ...manyBlocks.slice(0, random.integer(3))];
      return record(from + at, { removed: some(), stored, isLong: true }, false);
    });
  }

  it("are of the moment of the gap, although the targets change while they are read", () => {
    for (const seed of fixedSeeds(4)) {
      const random = createSeededRandom(seed);
      const { source, following } = openSource(random);
      const joiner = createFoldHarness();
      const snapshot = joiner.fold.beginImport();
      let next = 5;
      for (const frame of source.fold.exportFrames(frameBytes)) {
        expect(frame.length).toBeLessThanOrEqual(frameBytes);
        snapshot.frame(frame);
        const more = changes(random, next, next + 1);
        next += 2;
        source.fold.apply(b, more);
        following.push(...more);
      }
      expect([...snapshot.end()].sort()).toEqual([target, "other"].sort());
      const naive = createFoldHarness();
      naive.fold.apply(b, [record(0, { stored: manyBlocks })]);
      expect(joiner.fold.statement(target)).toEqual(naive.fold.statement(target));
      for (const { fold } of [joiner, naive]) fold.apply(b, [gap(1, 1), ...following]);
      expect(joiner.fold.checkpointStatement(target)).toEqual(source.fold.checkpointStatement(target));
      // Another router says other things of the same messages, and ranks before.
      const better = [record(1, { removed: manyBlocks.slice(50, 90) }), ...changes(random, 2, next - 1)];
      for (const { fold } of [source, joiner, naive]) fold.apply(a, better);
      expect(naive.fold.statement(target)).toMatchObject({ sequence: next - 1, isComplete: false });
      for (const { fold } of [source, joiner]) expect(fold.statement(target)).toEqual(naive.fold.statement(target));
    }
  });

  it("are void when the gap is closed or filled, or everything is dropped, meanwhile", () => {
    const filled = [record(1), record(2), record(3), record(4)];
    const meanwhile: ((harness: FoldHarness) => void)[] = [
      ({ fold }) => fold.apply(a, filled),
      (harness) => harness.fold.apply(a, [checkpointOf(harness)]),
      ({ fold }) => fold.apply(b, [record(5, { isCleared: true }, false)]),
    ];
    for (const happens of meanwhile) {
      const { source } = openSource(createSeededRandom(3));
      const frames = source.fold.exportFrames(frameBytes);
      const joiner = createFoldHarness();
      const snapshot = joiner.fold.beginImport();
      snapshot.frame(frames.next().value!);
      snapshot.frame(frames.next().value!);
      happens(source);
      for (const frame of frames) snapshot.frame(frame);
      expect(snapshot.end()).toEqual(["other"]);
      expect(joiner.fold.state(target)?.progress).toBe("loading");
    }
  });

  it("are left out once everything was dropped, as nobody knows what there was", () => {
    const source = createFoldHarness();
    source.fold.apply(a, [...storing(0, 2), gap(3, 3), record(4, { isCleared: true, stored: [7] }, false)]);
    expect(source.fold.state(target)?.progress).toBe("open");
    expect(transfer(source.fold, createFoldHarness().fold)).toEqual([]);
  });

  it("bring holes as they were, or say that they are not known", () => {
    const words = chainOf(1, 2, 3, 4);
    for (const change of [{ orphaned: [[3, 2] as const] }, { stored: [2] }, { holeGone: [2], removed: [3, 4] }]) {
      const source = createFoldHarness();
      const orphaned = record(1, { orphaned: [[2, 1]] });
      source.fold.apply(a, [record(0, { stored: [1, 2, 3, 4] }), orphaned, gap(2, 2), record(3, change, false)]);
      const joiner = createFoldHarness();
      expect(transfer(source.fold, joiner.fold)).toEqual([target]);
      expect(joiner.held()).toEqual([1, 3, 4]);
      const matches = createPrefixMatches(8);
      joiner.index.match(words, 4, 0, matches);
      expect(matches.gpuBlocks[joiner.slots.find(target)]).toBe(1);
    }
  });
});

describe("snapshots of states that come and go", () => {
  it("leave out what is loading, what has nothing, and what nobody knows", () => {
    const source = createFoldHarness();
    source.fold.apply(a, [...storing(0, 3), checkpointAt(3, [1])]);
    source.fold.declare(a, 2, { target: "empty", epoch: firstEpoch });
    const [first] = source.fold.exportFrames(frameBytes, [target, "empty", "unknown"]);
    expect(readSnapshotFrame(first!)).toEqual({ kind: "groups", groups: [] });
  });

  it("of an older epoch than the newest are of no use", () => {
    const source = filled(5);
    const { fold } = createFoldHarness();
    const epoch = { sequence: 0, timestampUs: 9_000, checksum: 1, predecessor: null };
    fold.declare(b, 2, { target, epoch });
    transfer(source.fold, fold);
    expect(fold.state(target)).toMatchObject({ epoch, last: undefined });
  });

  it("are void for a target whose epoch ends meanwhile, on either side", () => {
    const next = { sequence: 0, timestampUs: 9_000, checksum: 1, predecessor: null };
    const source = createFoldHarness();
    source.fold.apply(a, [record(0, { stored: manyBlocks })]);
    const frames = source.fold.exportFrames(frameBytes);
    const joiner = createFoldHarness();
    const snapshot = joiner.fold.beginImport();
    snapshot.frame(frames.next().value!);
    snapshot.frame(frames.next().value!);
    source.fold.declare(b, 2, { target, epoch: next });
    source.fold.apply(b, [record(0, { stored: [1] }, true, 2)]);
    for (const frame of frames) snapshot.frame(frame);
    expect(snapshot.end()).toEqual([]);
    expect(joiner.held()).toEqual([]);
    expect(joiner.reloads).toEqual([{ target, reason: "unknown-base", from: undefined }]);
    const late = filled(5);
    const other = createFoldHarness();
    const bound = other.fold.beginImport();
    const [stamps, ...rest] = late.fold.exportFrames(frameBytes);
    bound.frame(stamps!);
    other.fold.declare(b, 2, { target, epoch: next });
    for (const frame of rest) bound.frame(frame);
    expect(bound.end()).toEqual([target]);
    expect(other.held()).toEqual([]);
  });

  it("leave a target waiting for another one when they are broken off", () => {
    const source = filled(9);
    const { fold, held, reloads } = createFoldHarness();
    fold.apply(a, [...storing(0, 2), ...storing(8, 8), checkpointAt(8, blocksOf(0, 8))]);
    const [stamps, blocks] = source.fold.exportFrames(frameBytes);
    const snapshot = fold.beginImport();
    snapshot.frame(stamps!);
    snapshot.frame(blocks!);
    snapshot.abort();
    expect(snapshot.end()).toEqual([]);
    expect(() => snapshot.frame(blocks!)).toThrow(RangeError);
    expect(held()).toEqual([]);
    expect(fold.state(target)?.progress).toBe("loading");
    expect(reloads).toHaveLength(1);
    fold.apply(a, storing(10, 10));
    expect(transfer(source.fold, fold)).toEqual([target]);
    expect(held()).toEqual(blocksOf(0, 10));
  });

  it("that end too early are no snapshots", () => {
    const source = filled(9);
    const { fold, held } = createFoldHarness();
    const snapshot = fold.beginImport();
    for (const frame of [...source.fold.exportFrames(frameBytes)].slice(0, -1)) snapshot.frame(frame);
    expect(snapshot.end()).toEqual([]);
    expect(held()).toEqual([]);
    expect(fold.state(target)?.progress).toBe("loading");
  });
});

describe("going on without a snapshot", () => {
  it("goes over everything that is missing, as partial", () => {
    const { fold, held } = createFoldHarness();
    fold.apply(a, [...storing(0, 1), ...storing(5, 5), ...storing(8, 8), checkpointAt(9, blocksOf(0, 9))]);
    fold.giveUpLoading([target, "unknown"]);
    expect(held()).toEqual([100, 101, 105, 108]);
    expect(fold.state(target)).toMatchObject({ progress: "current", isComplete: false, last: { sequence: 9 } });
    fold.apply(a, storing(10, 10));
    expect(held()).toContain(110);
  });

  it("does nothing to a target that is not loading, or that a snapshot is coming for", () => {
    const { fold } = filled(2);
    fold.giveUpLoading([target]);
    expect(fold.state(target)?.isComplete).toBe(true);
    const joiner = createFoldHarness();
    const snapshot = joiner.fold.beginImport();
    for (const frame of filled(4).fold.exportFrames(frameBytes)) snapshot.frame(frame);
    joiner.fold.giveUpLoading([target]);
    expect(snapshot.end()).toEqual([target]);
    expect(joiner.fold.state(target)).toMatchObject({ isComplete: true, last: { sequence: 4 } });
  });
});

describe("snapshot frames", () => {
  it("survive arbitrary bytes", () => {
    const source = createFoldHarness();
    source.fold.apply(a, [
      record(0, { stored: manyBlocks.slice(0, 50) }),
      record(1, { orphaned: [[manyBlocks[1]!, 1]] }),
    ]);
    const frames = [...source.fold.exportFrames(frameBytes)];
    const random = createSeededRandom(5);
    for (let round = randomRuns(1_500); round > 0; round--) {
      const { fold, index } = createFoldHarness({ maxTargets: 2 });
      const snapshot = fold.beginImport();
      const broken = random.integer(frames.length);
      try {
        for (const [at, frame] of frames.entries()) {
          const bytes = frame.slice(
            0,
            random.integer(4) === 0 && at === broken ? random.integer(frame.length) : undefined,
          );
          if (at === broken)
            for (let left = 1 + random.integer(4); left > 0 && bytes.length > 0; left--) {
              bytes[random.integer(Math.min(bytes.length, 60))] = random.integer(256);
            }
          snapshot.frame(bytes);
        }
        snapshot.end();
      } catch (error) {
        expect(error).toBeInstanceOf(RangeError);
        expect(index.factCount).toBe(0);
      }
    }
  });

  it.each([
    ["nothing", []],
    ["another version", [2, 0]],
    ["an unknown kind", [1, 3]],
    ["half a stamp", [1, 0, 3, 65]],
    ["a group of no target", [1, 1, 0, 0, 0]],
    ["an unknown part", [1, 1, 3, 1, 0]],
    ["an unknown tier", [1, 1, 20, 1, 0, 0]],
    ["holes of a slow tier", [1, 1, 5, 1, 0, 0]],
    ["more words than bytes", [1, 1, 0, 1, 0, 255, 255, 255, 127]],
    ["bytes after the end", [1, 2, 0, 0, 0, 0]],
  ])("refuse %s", (_name, bytes) => {
    expect(() => readSnapshotFrame(Uint8Array.from(bytes))).toThrow(RangeError);
  });

  it("name so many targets at most, by keys of so many bytes", () => {
    const end = (number: number): Uint8Array =>
      writeSnapshotFrame({ kind: "end", stamps: 0, groups: 0, voided: [number] });
    expect(readSnapshotFrame(end(maxSnapshotTargets - 1))).toMatchObject({ voided: [maxSnapshotTargets - 1] });
    expect(() => readSnapshotFrame(end(maxSnapshotTargets))).toThrow(RangeError);
    const stamp = (keyBytes: number): Uint8Array => {
      const point = { position: 0, last: undefined, incompleteFrom: 0 };
      return writeSnapshotFrame({
        kind: "stamps",
        stamps: [{ target: "k".repeat(keyBytes), epoch: firstEpoch, point }],
      });
    };
    expect(readSnapshotFrame(stamp(1_024)).kind).toBe("stamps");
    expect(() => readSnapshotFrame(stamp(1_025))).toThrow(RangeError);
  });

  it("are refused out of order, or naming targets that there are none of", () => {
    const source = filled(3);
    const [stamps, blocks, ...rest] = [...source.fold.exportFrames(frameBytes)];
    const bringing = (...frames: Uint8Array[]): (() => void) => {
      const snapshot = createFoldHarness().fold.beginImport();
      return () => {
        for (const frame of frames) snapshot.frame(frame);
      };
    };
    expect(bringing(blocks!)).toThrow("unknown target");
    expect(bringing(stamps!, blocks!, stamps!)).toThrow("after the first blocks");
    expect(bringing(stamps!, rest.at(-1)!)).toThrow("missing");
    expect(bringing(stamps!, blocks!, ...rest, blocks!)).toThrow("after the end");
    const stray = writeSnapshotFrame({ kind: "end", stamps: 0, groups: 0, voided: [0] });
    expect(bringing(stray)).toThrow("unknown target");
    expect(() => source.fold.exportFrames(frameBytes - 1)).toThrow(RangeError);
  });
});
