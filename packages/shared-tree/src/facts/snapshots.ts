import type { SnapshotSink } from "@espalier/mesh";
import {
  type FactKind,
  type FactsChunk,
  type FactsGroup,
  factKinds,
  type PrefixIndex,
  tier,
} from "@espalier/prefix-index";
import { epochId, type FoldPoint } from "./engine-epoch.ts";
import type { IndexSink } from "./index-sink.ts";
import type { KeptState } from "./kept-state.ts";
import {
  maxSnapshotTargets,
  maxStampBytes,
  readSnapshotFrame,
  type SnapshotFrame,
  type SnapshotStamp,
  writeSnapshotFrame,
} from "./snapshot-codec.ts";
import type { TargetFold } from "./target-fold.ts";

/** Least size of a frame. */
export const minSnapshotFrameBytes = 65_536;
/** Bytes of a frame without its groups. */
const frameOverheadBytes = 64;
const groupOverheadBytes = 32;

/** A target as it was when the export began. */
interface Exported {
  readonly fold: TargetFold;
  readonly generation: number;
  /** The source of a state from before a gap; undefined for the present state. */
  readonly kept: { readonly state: KeptState; readonly parts: KeptExport } | undefined;
}

/**
 * The state of targets as frames of a snapshot. The call takes the stamps; the blocks are read while they change, and
 * the records after the stamps correct them. A target whose state is replaced meanwhile is named as void.
 *
 * @throws RangeError when `maxBytes` is below `minSnapshotFrameBytes`
 */
export function exportSnapshot(
  index: PrefixIndex,
  folds: Iterable<TargetFold>,
  maxBytes: number,
): Generator<Uint8Array, void, undefined> {
  if (!(maxBytes >= minSnapshotFrameBytes)) throw new RangeError(`a frame of ${maxBytes} bytes is too small`);
  const stamps: SnapshotStamp[] = [];
  const exported: Exported[] = [];
  for (const fold of folds) {
    const from = startOfExport(fold);
    if (!from || !fold.epoch) continue;
    stamps.push({ target: fold.key, epoch: fold.epoch.epoch, point: from.point });
    const kept = from.kept && { state: from.kept, parts: new KeptExport(from.kept) };
    exported.push({ fold, generation: fold.generation, kept });
  }
  const maxChunkBytes = maxBytes - frameOverheadBytes;
  const slots = exported.map(({ fold }) => fold.slot);
  // Called at once, so that no change before the first frame is missed.
  const chunks = index.exportAll(slots, { maxChunkBytes });
  const pairs = slots.reduce((sum, slot) => sum + index.factBlockCount(slot, tier.gpu), 0);
  return frames(stamps, { exported, chunks, blocks: Math.min(pairs, index.distinctGpuBlocks) }, maxChunkBytes);
}

interface Export {
  readonly exported: readonly Exported[];
  readonly chunks: Iterable<readonly FactsGroup[]>;
  /** Approximate number of distinct blocks. */
  readonly blocks: number;
}

function* frames(
  stamps: readonly SnapshotStamp[],
  { exported, chunks, blocks }: Export,
  maxBytes: number,
): Generator<Uint8Array, void, undefined> {
  const perFrame = Math.floor(maxBytes / maxStampBytes);
  for (let from = 0; from < stamps.length; from += perFrame) {
    yield writeSnapshotFrame({ kind: "stamps", stamps: stamps.slice(from, from + perFrame), blocks });
  }
  let groups = 0;
  const numbers = new Map(exported.map(({ fold }, number) => [fold.slot, number]));
  for (const chunk of chunks) {
    const valid = chunk.flatMap(({ targets, part }) =>
      validGroups(exported, { targets: targets.map((slot) => numbers.get(slot)!), part }),
    );
    groups += valid.length;
    yield* framesOf(valid, maxBytes);
  }
  for (const [number, one] of exported.entries()) {
    if (!one.kept || isVoid(one)) continue;
    for (const chunk of one.kept.parts.rest()) {
      const rest = [...slices(chunk, maxBytes - groupOverheadBytes)].map((part) => ({ targets: [number], part }));
      groups += rest.length;
      yield* framesOf(rest, maxBytes);
    }
  }
  const voided = [...exported.keys()].filter((number) => isVoid(exported[number]!));
  yield writeSnapshotFrame({ kind: "end", stamps: stamps.length, groups, voided });
}

/** One frame, or several if groups had to be split. */
function* framesOf(groups: readonly FactsGroup[], maxBytes: number): Generator<Uint8Array, void, undefined> {
  let begin = 0;
  let bytes = 0;
  for (const [at, { targets, part }] of groups.entries()) {
    const ofGroup = groupOverheadBytes + targets.length * 4 + bytesOf(part);
    if (at > begin && bytes + ofGroup > maxBytes) {
      yield writeSnapshotFrame({ kind: "groups", groups: groups.slice(begin, at) });
      begin = at;
      bytes = 0;
    }
    bytes += ofGroup;
  }
  yield writeSnapshotFrame({ kind: "groups", groups: groups.slice(begin) });
}

function bytesOf(part: FactsChunk): number {
  if (part.kind === "walked") return 0;
  return part.words.byteLength + (part.kind === "holes" ? part.depths.byteLength : 0);
}

/** The parts of a group for the targets that are not void; targets with a kept state may have less of it. */
function validGroups(exported: readonly Exported[], { targets, part }: FactsGroup): FactsGroup[] {
  const whole: number[] = [];
  const groups: FactsGroup[] = [];
  for (const number of targets) {
    const one = exported[number]!;
    if (isVoid(one)) continue;
    const own = one.kept ? one.kept.parts.take(part) : part;
    if (own === part) whole.push(number);
    else if (own) groups.push({ targets: [number], part: own });
  }
  if (whole.length > 0) groups.push({ targets: whole, part });
  return groups;
}

/** Whether the state that the export began with is no longer available. */
function isVoid({ fold, generation, kept }: Exported): boolean {
  return (
    fold.generation !== generation || (kept !== undefined && (fold.track.kept !== kept.state || kept.state.isVoid))
  );
}

/** The point of the state that can be exported; undefined where there is none. */
function startOfExport({ progress, track }: TargetFold): { point: FoldPoint; kept: KeptState | undefined } | undefined {
  if (progress === "loading") return undefined;
  const kept = progress === "open" ? track.kept : undefined;
  if (kept?.isVoid) return undefined;
  const point = kept ? kept.point : track.point;
  return point.last === undefined ? undefined : { point, kept };
}

function* slices(chunk: FactsChunk, maxBytes: number): Generator<FactsChunk, void, undefined> {
  if (chunk.kind === "walked") {
    yield chunk;
    return;
  }
  const perPart = Math.floor(maxBytes / 12);
  for (let from = 0; from < chunk.words.length / 2; from += perPart) {
    const words = chunk.words.subarray(2 * from, 2 * (from + perPart));
    yield chunk.kind === "blocks"
      ? { ...chunk, words }
      : { ...chunk, words, depths: chunk.depths.subarray(from, from + perPart) };
  }
}

type BlocksChunk = Extract<FactsChunk, { kind: "blocks" }>;
type HolesChunk = Extract<FactsChunk, { kind: "holes" }>;

/**
 * Makes a target's kept state from what is read of the index now, piece by piece, while the target changes. It leaves
 * out blocks that were added since, and adds those that were removed at the end.
 */
class KeptExport {
  readonly #kept: KeptState;
  /** By tier and hash, of the blocks that changed since: whether the kept state holds the block. */
  readonly #changed = new Map<string, boolean>();
  /** Low words of the changed blocks: a fast check that most other blocks fail. */
  readonly #lows = new Set<number>();
  #followed = 0;

  constructor(kept: KeptState) {
    this.#kept = kept;
  }

  /** The state's share of a part that was just read: the part itself if that is all of it; undefined for nothing. */
  take(part: FactsChunk): FactsChunk | undefined {
    this.#follow();
    if (part.kind === "blocks") return this.#blocks(part);
    const { holes } = this.#kept;
    if (holes === "none") return undefined;
    if (part.kind === "walked") return part;
    return holes === "same" ? this.#holes(part) : undefined;
  }

  /** What else the state has, once everything was read, including blocks of parts that were read. */
  *rest(): Generator<FactsChunk, void, undefined> {
    this.#follow();
    const gone: number[][] = factKinds.map(() => []);
    for (const [key, isHeld] of this.#changed) {
      const [inTier, low, high] = key.split(":").map(Number);
      if (isHeld) gone[inTier!]!.push(low!, high!);
    }
    for (const [inTier, words] of gone.entries()) {
      if (words.length > 0) yield { kind: "blocks", tier: inTier as FactKind, words: Uint32Array.from(words) };
    }
    // The index may have lost holes that the kept state had.
    if (this.#kept.holes === "unknown") yield { kind: "walked" };
  }

  #follow(): void {
    const { changes } = this.#kept;
    changes.visit(this.#followed, (inTier, isStored, low, high) => {
      const key = keyOf(inTier, low, high);
      if (this.#changed.has(key)) return;
      this.#changed.set(key, !isStored);
      this.#lows.add(low);
    });
    this.#followed = changes.count;
  }

  #blocks(part: BlocksChunk): FactsChunk | undefined {
    const { words, tier: inTier } = part;
    const wanted = this.#select(words, (low, high) => this.#changed.get(keyOf(inTier, low, high)) ?? true);
    if (!wanted.includes(0)) return part;
    return wanted.includes(1) ? { ...part, words: pick(words, wanted) } : undefined;
  }

  #holes(part: HolesChunk): FactsChunk | undefined {
    const { words, depths } = part;
    const wanted = this.#select(words, (low, high) => !this.#changed.get(keyOf(tier.gpu, low, high)));
    if (!wanted.includes(0)) return part;
    if (!wanted.includes(1)) return undefined;
    return { ...part, words: pick(words, wanted), depths: depths.filter((_depth, at) => wanted[at] === 1) };
  }

  /** @returns 1 for every block to take */
  #select(words: Uint32Array, isWanted: (low: number, high: number) => boolean): Uint8Array {
    const wanted = new Uint8Array(words.length / 2).fill(1);
    for (let at = 0; at < wanted.length; at++) {
      const low = words[2 * at]!;
      if (this.#lows.has(low) && !isWanted(low, words[2 * at + 1]!)) wanted[at] = 0;
    }
    return wanted;
  }
}

const keyOf = (inTier: FactKind, low: number, high: number): string => `${inTier}:${low}:${high}`;

function pick(words: Uint32Array, wanted: Uint8Array): Uint32Array {
  return words.filter((_word, at) => wanted[at >>> 1] === 1);
}

interface SnapshotImportOptions {
  readonly index: PrefixIndex;
  readonly sink: Pick<IndexSink, "noteHoles">;
  /** The fold of a target, which may be new here; undefined when there is no capacity for it. */
  readonly foldOf: (target: string) => TargetFold | undefined;
  /** Called with every target that the import touched. */
  readonly touched: (fold: TargetFold) => void;
}

interface Incoming {
  readonly fold: TargetFold;
  /** The generation that the blocks are for; undefined when the target does not need them. */
  readonly generation: number | undefined;
}

/** Takes the frames of one snapshot, and puts useful parts into the index as they arrive. */
export class SnapshotImport implements SnapshotSink {
  readonly #options: SnapshotImportOptions;
  /** By number; undefined where there is no capacity for the target or its epoch is not the newest. */
  readonly #incoming: (Incoming | undefined)[] = [];
  #groups = 0;
  #expected = 0;
  #isWhole = false;
  #isOver = false;

  constructor(options: SnapshotImportOptions) {
    this.#options = options;
  }

  frame(bytes: Uint8Array): void {
    if (this.#isOver) throw new RangeError("the import is over");
    try {
      this.#take(readSnapshotFrame(bytes));
    } catch (error) {
      this.abort();
      throw error;
    }
  }

  end(): readonly string[] {
    if (this.#isOver) return [];
    if (!this.#isWhole) {
      this.abort();
      return [];
    }
    this.#isOver = true;
    this.#expect(0);
    const done: string[] = [];
    for (const incoming of this.#incoming) {
      if (!incoming) continue;
      const { fold, generation } = incoming;
      if (generation === fold.generation) {
        fold.endImport();
        this.#options.touched(fold);
      }
      if (fold.progress !== "loading") done.push(fold.key);
    }
    return done;
  }

  abort(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#expect(0);
    for (const [number] of this.#incoming.entries()) this.#giveUp(number);
  }

  #take(frame: SnapshotFrame): void {
    if (this.#isWhole) throw new RangeError("a frame after the end");
    if (frame.kind === "stamps") {
      if (frame.blocks !== undefined) this.#expect(frame.blocks);
      for (const stamp of frame.stamps) this.#stamp(stamp);
    } else if (frame.kind === "groups") this.#import(frame.groups);
    else {
      if (frame.stamps !== this.#incoming.length || frame.groups !== this.#groups) {
        throw new RangeError("a part of the snapshot is missing");
      }
      if (frame.voided.some((number) => number >= frame.stamps)) throw new RangeError("an unknown target is void");
      for (const number of frame.voided) this.#giveUp(number);
      this.#isWhole = true;
    }
  }

  /** Growing once is much cheaper than growing block by block. */
  #expect(blocks: number): void {
    if (blocks === this.#expected) return;
    this.#expected = blocks;
    this.#options.index.expectFacts(blocks);
  }

  #stamp({ target, epoch, point }: SnapshotStamp): void {
    if (this.#groups > 0) throw new RangeError("a stamp after the first blocks");
    if (this.#incoming.length >= maxSnapshotTargets) throw new RangeError("too many targets");
    const fold = this.#options.foldOf(target);
    fold?.declare(epoch);
    if (fold) this.#options.touched(fold);
    if (!fold || fold.epoch?.id !== epochId(epoch)) this.#incoming.push(undefined);
    else this.#incoming.push({ fold, generation: fold.canUse(point) ? fold.beginImport(point) : undefined });
  }

  #import(groups: readonly FactsGroup[]): void {
    const numbers = this.#incoming.length;
    if (groups.some(({ targets }) => targets.some((number) => number >= numbers))) {
      throw new RangeError("blocks of an unknown target");
    }
    this.#groups += groups.length;
    const wanted: FactsGroup[] = [];
    for (const { targets, part } of groups) {
      const slots = targets.map((number) => this.#slotOf(number)).filter((slot) => slot >= 0);
      if (slots.length > 0) wanted.push({ targets: slots, part });
      if (part.kind !== "blocks") for (const slot of slots) this.#options.sink.noteHoles(slot);
    }
    this.#options.index.importChunk(wanted);
  }

  /** @returns -1 when the target does not need blocks */
  #slotOf(number: number): number {
    const incoming = this.#incoming[number];
    return incoming?.generation !== undefined && incoming.generation === incoming.fold.generation
      ? incoming.fold.slot
      : -1;
  }

  #giveUp(number: number): void {
    const incoming = this.#incoming[number];
    if (this.#slotOf(number) < 0 || !incoming) return;
    incoming.fold.abortImport();
    this.#options.touched(incoming.fold);
  }
}
