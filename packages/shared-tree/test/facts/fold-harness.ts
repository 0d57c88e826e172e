import { asRouterId } from "@espalier/core";
import { type Origin, originKey } from "@espalier/mesh";
import { createPrefixIndex, type FactsChunk, type PrefixIndex, type Tier, tier } from "@espalier/prefix-index";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import type { EngineEpoch } from "../../src/facts/engine-epoch.ts";
import { FactFold, type FactFoldOptions, type ReloadReason } from "../../src/facts/fact-fold.ts";
import type { CheckpointEntry, FactEntry, FactRecord, GapEntry } from "../../src/facts/fact-item.ts";
import { FactOpsWriter } from "../../src/facts/fact-ops.ts";
import type { FeedDeclaration } from "../../src/facts/feed-declaration.ts";
import { createTargetSlots, type TargetSlots } from "../../src/facts/target-slots.ts";

/** Routers of tests. */
export const a: Origin = { router: asRouterId("a"), epoch: 1 };
export const b: Origin = { router: asRouterId("b"), epoch: 1 };
export const c: Origin = { router: asRouterId("c"), epoch: 1 };

export const target = "engine-1#0";
/** The feed that every journal of these tests has for `firstLife` of `target`. */
const feed = 1;
export const firstEpoch: EngineEpoch = { sequence: 0, timestampUs: 1_000, checksum: 7, predecessor: null };

export interface Reload {
  readonly target: string;
  readonly reason: ReloadReason;
  readonly from: Origin | undefined;
}

/** A fold beside the journals that its tests do without. */
export interface HarnessFold extends Omit<FactFold, "declare" | "apply"> {
  apply(origin: Origin, entries: readonly FactEntry[]): void;
  /** A journal says what a number of it stands for. */
  declare(origin: Origin, feed: number, declaration: FeedDeclaration): void;
  /** A journal gives a number up. */
  retire(origin: Origin, feed: number): void;
  /** A journal is gone. */
  forgetOrigin(origin: Origin): void;
}

export interface FoldHarness {
  readonly fold: HarnessFold;
  readonly index: PrefixIndex;
  readonly slots: TargetSlots;
  readonly time: VirtualTime;
  /** In the order in which they were told. */
  readonly reloads: Reload[];
  readonly changes: string[];
  /** Low words of the blocks on the GPU of `target`, ascending. */
  held(key?: string): number[];
}

export interface HarnessOptions extends Partial<Pick<FactFoldOptions, "limits" | "meter" | "self">> {
  readonly maxTargets?: number;
  /** Origins that have `feed` declared for `firstLife` of `target`. */
  readonly declared?: readonly Origin[];
}

export function createFoldHarness(options: HarnessOptions = {}): FoldHarness {
  const { maxTargets = 8, declared = [a, b, c], self = asRouterId("self"), ...rest } = options;
  const index = createPrefixIndex({ maxTargets, maxBlocks: 262_144, maxSets: 4_096 });
  const slots = createTargetSlots(maxTargets);
  const time = createVirtualTime();
  const reloads: Reload[] = [];
  const changes: string[] = [];
  const journals = new Map<string, Map<number, FeedDeclaration>>();
  const reload: FactFoldOptions["reload"] = (key, reason, from) => void reloads.push({ target: key, reason, from });
  const fold = withJournals(new FactFold({ index, slots, self, reload, clock: time.clock, ...rest }), journals);
  fold.onChange((key) => changes.push(key));
  for (const origin of declared) fold.declare(origin, feed, { target, epoch: firstEpoch });
  changes.length = 0;
  const held = (key = target): number[] => {
    const lows: number[] = [];
    for (const { part } of [...index.exportAll([slots.find(key)])].flat()) lows.push(...gpuLows(part));
    return lows.sort((one, other) => one - other);
  };
  return { fold, index, slots, time, reloads, changes, held };
}

function withJournals(fold: FactFold, journals: Map<string, Map<number, FeedDeclaration>>): HarnessFold {
  const declare = fold.declare.bind(fold);
  const apply = fold.apply.bind(fold);
  return Object.assign(fold, {
    apply(origin: Origin, entries: readonly FactEntry[]): void {
      apply(origin, entries, (number) => journals.get(originKey(origin))?.get(number));
    },
    declare(origin: Origin, number: number, declaration: FeedDeclaration): void {
      const feeds = journals.get(originKey(origin)) ?? new Map<number, FeedDeclaration>();
      journals.set(originKey(origin), feeds.set(number, declaration));
      declare(declaration);
    },
    retire: (origin: Origin, number: number) => void journals.get(originKey(origin))?.delete(number),
    forgetOrigin: (origin: Origin) => void journals.delete(originKey(origin)),
  });
}

function gpuLows(chunk: FactsChunk): number[] {
  if (chunk.kind !== "blocks" || chunk.tier !== tier.gpu) return [];
  return [...chunk.words].filter((_word, at) => at % 2 === 0);
}

/** What a test's record does; blocks are named by the low words of their hashes. */
export interface TestOps {
  readonly stored?: readonly number[];
  readonly removed?: readonly number[];
  /** Blocks with their depths. */
  readonly orphaned?: readonly (readonly [number, number])[];
  readonly holeGone?: readonly number[];
  readonly isCleared?: boolean;
  readonly tier?: Tier;
  /** Whether removed blocks are named by 64 bits. */
  readonly isLong?: boolean;
}

const wordsOf = (lows: readonly number[]): Uint32Array => Uint32Array.from(lows.flatMap((low) => [low, highOf(low)]));

/** The high word that goes with a low one in these tests. */
const highOf = (low: number): number => Math.imul(low, 0x9e37_79b1) >>> 0;

/** The words of a chain of these blocks. */
export const chainOf = (...lows: number[]): Uint32Array => wordsOf(lows);

function opsOf(ops: TestOps): Uint8Array {
  const writer = new FactOpsWriter({ isUnambiguous: () => ops.isLong !== true });
  const inTier = ops.tier ?? tier.gpu;
  const { stored = [], removed = [], orphaned = [], holeGone = [] } = ops;
  writer.begin();
  if (ops.isCleared) writer.cleared();
  writer.stored(inTier, wordsOf(stored), 0, stored.length);
  writer.removed(inTier, wordsOf(removed), 0, removed.length);
  for (const [low, depth] of orphaned) writer.orphaned(inTier, wordsOf([low]), 0, depth);
  for (const low of holeGone) writer.holeGone(inTier, wordsOf([low]), 0);
  return writer.finish();
}

const markAt = (sequence: number): { sequence: number; timestampUs: number; checksum: number } => ({
  sequence,
  timestampUs: 1_000 + sequence,
  checksum: sequence * 7 + 7,
});

export function record(sequence: number, ops: TestOps = {}, isComplete = true, inFeed = feed): FactRecord {
  return { kind: "record", feed: inFeed, ...markAt(sequence), isComplete, ops: opsOf(ops) };
}

export const gap = (from: number, to: number, inFeed = feed): GapEntry => ({ kind: "gap", feed: inFeed, from, to });

/** A checkpoint of what a harness holds now, as its router would write it. */
export function checkpointOf(harness: FoldHarness, inFeed = feed, key = target): CheckpointEntry {
  const statement = harness.fold.checkpointStatement(key);
  if (!statement) throw new Error("nothing to state");
  const { sequence, isComplete, blocks, digest } = statement;
  return { kind: "checkpoint", feed: inFeed, ...markAt(sequence), isComplete, blocks, digest };
}

/** A checkpoint of a state that holds these blocks on the GPU and nothing else. */
export function checkpointAt(sequence: number, lows: readonly number[], isComplete = true): CheckpointEntry {
  const index = createPrefixIndex({ maxTargets: 1 });
  index.storeFacts(0, tier.gpu, wordsOf(lows), 0, lows.length);
  const digest = index.digest(0);
  return {
    kind: "checkpoint",
    feed,
    ...markAt(sequence),
    isComplete,
    blocks: lows.length,
    digest: [digest[0]!, digest[1]!],
  };
}

/** Records that each store one block: sequence s stores block `100 + s`. */
export function storing(from: number, to: number, isComplete = true): FactRecord[] {
  return Array.from({ length: to - from + 1 }, (_, at) => record(from + at, { stored: [100 + from + at] }, isComplete));
}

export const blocksOf = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, at) => 100 + from + at);

/** Brings a snapshot of one fold to another, all at once. @returns targets that have their state then */
export function transfer(from: HarnessFold, to: HarnessFold, targets?: readonly string[]): readonly string[] {
  const snapshot = to.beginImport();
  for (const frame of from.exportFrames(262_144, targets)) snapshot.frame(frame);
  return snapshot.end();
}
