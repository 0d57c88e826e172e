import { type Origin, originKey } from "@espalier/mesh";
import { factKinds, type PrefixIndex } from "@espalier/prefix-index";
import { CheckpointTable, CheckpointValidator, type StatedCheckpoint } from "./checkpoint-table.ts";
import {
  type BatchMark,
  type EngineEpoch,
  EpochOrder,
  type FoldPoint,
  type KnownEpoch,
  markOf,
  startOf,
} from "./engine-epoch.ts";
import type { FoldState, ReloadReason } from "./fact-fold.ts";
import type { CheckpointEntry, FactRecord, GapEntry } from "./fact-item.ts";
import type { FoldContext } from "./fold-context.ts";
import { FoldTrack } from "./fold-track.ts";

/** Asks for the state of a target. */
export type AskForState = (target: TargetFold, reason: ReloadReason, from: Origin | undefined) => void;

/**
 * Why a target is loading. `behind`: its state is right as far as it goes, and continues when what is missing arrives.
 * `replace`: its state cannot be trusted. `importing`: a snapshot is being written into the index.
 */
type LoadMode = "behind" | "replace" | "importing";

/** The fold of one target: its epoch, how far records lead, and whether checkpoints agree. */
export class TargetFold {
  readonly key: string;
  readonly slot: number;
  /** Its records in their order. */
  readonly track: FoldTrack;
  /** Changes whenever the state is replaced by one that further records would not lead to. */
  generation = 0;
  /** What listeners last saw. */
  reported = "";
  readonly #context: FoldContext;
  readonly #ask: AskForState;
  readonly #epochs = new EpochOrder();
  readonly #checkpoints = new CheckpointTable();
  readonly #validator: CheckpointValidator;
  #epoch: KnownEpoch | undefined;
  #load: LoadMode | undefined;
  /** While loading: the import must reach this message at least. */
  #required = -1;
  /** While the state waits to be replaced because another router has stated a different one: that router. */
  #stater: Origin | undefined;
  /** What the state becomes when the import ends, and whether it was asked for. */
  #incoming: { readonly point: FoldPoint; readonly wasAsked: boolean } | undefined;
  #stuck = { position: -1, sinceMs: 0 };

  constructor(context: FoldContext, ask: AskForState, key: string, slot: number) {
    this.#context = context;
    this.#ask = ask;
    this.key = key;
    this.slot = slot;
    this.track = new FoldTrack(context, slot);
    this.#validator = new CheckpointValidator(context.self);
  }

  get epoch(): KnownEpoch | undefined {
    return this.#epoch;
  }

  get progress(): FoldState["progress"] {
    if (this.#load !== undefined) return "loading";
    if (this.track.isOpen) return "open";
    return this.track.isStuck ? "waiting" : "current";
  }

  outranking(epoch: BatchMark): readonly string[] {
    return this.#epochs.outranking(epoch);
  }

  declare(epoch: EngineEpoch): KnownEpoch {
    const known = this.#epochs.declare(epoch);
    const { newest } = this.#epochs;
    if (newest && newest !== this.#epoch) {
      // Its state is not kept: if it becomes the newest again, the state must come from elsewhere.
      if (this.#epoch && !this.#isAtStart) this.#epoch.hasMissed = true;
      this.#epoch = newest;
      this.reset(startOf(newest.mark));
      this.track.waiting.clear();
      this.track.gaps.clear();
      this.#checkpoints.clear();
      if (newest.hasMissed) this.#beginLoad("behind", "unknown-base", undefined);
    }
    return known;
  }

  /** @returns whether more than the held blocks may have changed */
  record(origin: Origin, record: FactRecord): boolean {
    if (this.#load === undefined && this.track.applyNext(record)) return false;
    if (record.sequence <= this.#floor() || !this.track.keep(origin, record)) return false;
    this.#shed();
    this.advance();
    return true;
  }

  gap({ from, to }: GapEntry): void {
    const applied = this.#isTrusted ? this.track.position : this.#floor();
    if (to <= applied) return;
    if (!this.track.gaps.add(Math.max(from, applied + 1), to)) this.#context.meters.ignored("limit");
    this.advance();
  }

  checkpoint(origin: Origin, checkpoint: CheckpointEntry): void {
    this.refold();
    const { position, last } = this.track;
    if (!this.#isTrusted) {
      if (checkpoint.sequence > this.#required) this.#checkpoints.add({ checkpoint, origin });
    } else if (checkpoint.sequence > position) {
      this.#checkpoints.add({ checkpoint, origin });
      this.advance();
    } else if (checkpoint.sequence < (last?.sequence ?? position)) this.#checkpointBelow({ checkpoint, origin });
    else this.#checkpointHere({ checkpoint, origin });
  }

  /** Folds again from before a gap, when something arrived that changes what followed it. */
  refold(): void {
    if (!this.track.needsRefold) return;
    this.#context.meters.refold();
    this.generation++;
    this.track.restoreKept();
    this.advance();
    if (this.track.isUnfounded) this.#replace("unknown-base", undefined, -1);
    else this.track.closeIfComplete();
  }

  /** Whether the state equals that of this checkpoint or statement. O(1). */
  agrees({ blocks, digest }: TargetContent): boolean {
    const own = contentOf(this.#context.index, this.slot);
    return blocks === own.blocks && own.digest[0] === digest[0] && own.digest[1] === digest[1];
  }

  /** Another router says that the state is wrong, and its statement ranks before this router's. */
  mistrust(from: Origin): void {
    this.#replace("digest-mismatch", from, -1);
  }

  /** Asks for the state when missing messages have not come for long. */
  maintain(): void {
    if (this.#load !== undefined || !this.track.isStuck) return;
    const { clock, limits } = this.#context;
    if (clock.nowMs() - this.#stuck.sinceMs >= limits.maxHoleMs) this.#beginLoad("behind", "unknown-base", undefined);
  }

  /** Voids the state and continues from a point, with what waits beyond it. The caller fills the index. */
  reset(point: FoldPoint): void {
    this.#context.sink.void(this.slot);
    this.track.moveTo(point);
    this.#checkpoints.dropThrough(point.position);
    this.#load = undefined;
    this.#required = -1;
    this.#stater = undefined;
    this.#incoming = undefined;
    this.#validator.reset();
    this.generation++;
  }

  /** Gives up everything. */
  clear(): void {
    this.reset(this.track.point);
    this.track.waiting.clear();
  }

  /** Whether a state at this point is better than the present one, and leads to what waits. */
  canUse({ position, incompleteFrom }: FoldPoint): boolean {
    const { track } = this;
    const own = track.point;
    const highest = this.#checkpoints.highest?.checkpoint.sequence ?? -1;
    if (!track.leads(position, highest)) return false;
    if (this.#load === "importing") return false;
    if (this.#load !== undefined)
      return position >= this.#required && (this.#load === "replace" || position > own.position);
    if (position > own.position && (own.last === undefined || track.isStuck)) return true;
    return position >= own.position && incompleteFrom > own.incompleteFrom;
  }

  /** Prepares for a snapshot, which its caller puts in the index. @returns the generation that it is meant for */
  beginImport(point: FoldPoint): number {
    const wasAsked = this.#load !== undefined;
    this.reset(point);
    this.#load = "importing";
    this.#required = point.position;
    this.#incoming = { point, wasAsked };
    return this.generation;
  }

  endImport(): void {
    this.#load = undefined;
    this.#required = -1;
    this.#incoming = undefined;
    this.advance();
  }

  /** Voids what has arrived of the snapshot; the target waits for another one. */
  abortImport(): void {
    if (!this.#incoming || !this.#epoch) return;
    const { point, wasAsked } = this.#incoming;
    const start = startOf(this.#epoch.mark);
    this.reset({ ...start, incompleteFrom: start.position + 1 });
    this.#required = point.position;
    if (wasAsked) this.#load = "replace";
    else this.#beginLoad("replace", "unknown-base", undefined);
  }

  /** The router does not have what it has stated. @returns whether this state is trusted again therefore */
  lackedBy(origin: Origin): boolean {
    const isGone = this.#stater !== undefined && originKey(this.#stater) === originKey(origin);
    if (this.#load !== "replace" || !isGone) return false;
    this.#load = undefined;
    this.#required = -1;
    this.#stater = undefined;
    this.track.moveTo(this.track.point);
    this.advance();
    return true;
  }

  /** Continues with the present state, over everything that is missing. */
  giveUpLoading(): void {
    if (this.#load !== "behind" && this.#load !== "replace") return;
    const { highest } = this.#checkpoints;
    const { track } = this;
    track.markIncomplete(this.#load === "replace" ? 0 : track.position + 1);
    track.moveTo({ ...track.point, position: Math.max(track.position, this.#required) });
    this.#load = undefined;
    this.#required = -1;
    this.#stater = undefined;
    this.#checkpoints.clear();
    this.generation++;
    this.advance();
    for (let next = track.nextWaiting; next !== undefined; next = track.nextWaiting) {
      track.moveTo({ ...track.point, position: next - 1 });
      this.advance();
    }
    if (highest && highest.checkpoint.sequence > track.position) {
      const last = markOf(highest.checkpoint);
      track.moveTo({ ...track.point, position: last.sequence, last });
    }
  }

  /** A checkpoint at the present state. */
  #checkpointHere(stated: StatedCheckpoint): void {
    const { checkpoint, origin } = stated;
    const verdict = this.#validator.validate(stated, {
      agrees: this.agrees(checkpoint),
      isComplete: this.track.isComplete,
    });
    if (verdict === "settles") this.track.settle(checkpoint.sequence, checkpoint.isComplete);
    else if (verdict === "outranked") this.#context.meters.hint("cut", 1);
    else this.#replace("digest-mismatch", origin, checkpoint.sequence);
  }

  /** A checkpoint at a state that records have led on from. */
  #checkpointBelow({ checkpoint, origin }: StatedCheckpoint): void {
    if (!checkpoint.isComplete) this.track.closeBelow(checkpoint.sequence);
    else if (checkpoint.sequence >= this.track.point.incompleteFrom)
      this.#replace("behind-cut", origin, checkpoint.sequence);
  }

  /** @param sequence where the checkpoint or statement was made */
  #replace(reason: ReloadReason, from: Origin | undefined, sequence: number): void {
    const { track } = this;
    const isKept = track.kept !== undefined && sequence >= track.kept.point.position;
    const required = isKept ? sequence : (track.last?.sequence ?? track.position);
    this.generation++;
    track.dropKept();
    track.waiting.dropThrough(required);
    if (track.position > required) track.gaps.add(required + 1, track.position);
    this.#checkpoints.dropThrough(required);
    this.#required = Math.max(this.#required, required);
    // With "behind-cut" the state is known to lack something, whoever has it.
    this.#stater = reason === "digest-mismatch" ? from : undefined;
    this.#beginLoad("replace", reason, from);
  }

  #beginLoad(mode: "behind" | "replace", reason: ReloadReason, from: Origin | undefined): void {
    const isAsked = this.#load !== undefined;
    if (!isAsked || mode === "replace") this.#load = mode;
    if (isAsked) return;
    this.#context.meters.reload(reason);
    this.#ask(this, reason, from);
  }

  get #isTrusted(): boolean {
    return this.#load === undefined || this.#load === "behind";
  }

  /** Whether no journal has said anything of the present epoch. */
  get #isAtStart(): boolean {
    const { last, waiting, gaps, isComplete } = this.track;
    return this.#isTrusted && last === undefined && isComplete && waiting.count + gaps.count === 0;
  }

  #floor(): number {
    return this.#isTrusted ? this.track.floor : this.#required;
  }

  /** Applies what is next, and finds out whether anything is missing. */
  advance(): void {
    const { track } = this;
    if (!this.#isTrusted || track.needsRefold) return;
    for (let stated = track.advance(this.#checkpoints); stated; stated = track.advance(this.#checkpoints)) {
      this.#checkpointHere(stated);
      if (!this.#isTrusted) return;
    }
    const beyond = this.#checkpoints.highest;
    if (beyond) this.#beginLoad("behind", "behind-cut", beyond.origin);
    else if (this.#load === "behind" && !track.isStuck && track.position >= this.#required) {
      this.#load = undefined;
      this.#required = -1;
    }
    if (this.#stuck.position === track.position) return;
    this.#stuck = { position: track.position, sinceMs: this.#context.clock.nowMs() };
  }

  /** Over a bound, drops first what is kept for a gap, then the oldest waiting records. */
  #shed(): void {
    const { limits, waiting: shared, meters } = this.#context;
    const { track } = this;
    const { waiting } = track;
    while (
      waiting.count > limits.maxWaitingRecordsPerTarget ||
      waiting.byteLength > limits.maxWaitingBytesPerTarget ||
      shared.total > limits.maxWaitingBytes
    ) {
      if (track.kept && (waiting.firstAfter(-1) ?? -1) <= track.position) {
        meters.gapGivenUp();
        track.closeKept();
        continue;
      }
      const dropped = waiting.dropOldest();
      if (dropped === undefined) return;
      this.#required = Math.max(this.#required, dropped);
      this.#beginLoad("behind", "overflow", undefined);
    }
  }
}

/** A target's content in short: two replicas with equal content have equal values. */
export interface TargetContent {
  /** Of all tiers, and resume points. */
  readonly blocks: number;
  readonly digest: readonly [number, number];
}

/** O(1), whatever the target holds. */
export function contentOf(index: PrefixIndex, slot: number): TargetContent {
  const digest = index.digest(slot);
  return { blocks: blocksOf(index, slot), digest: [digest[0]!, digest[1]!] };
}

/** Blocks of a target in all tiers, and its resume points. */
export function blocksOf(index: Pick<PrefixIndex, "factBlockCount">, slot: number): number {
  let blocks = 0;
  for (const kind of factKinds) blocks += index.factBlockCount(slot, kind);
  return blocks;
}
