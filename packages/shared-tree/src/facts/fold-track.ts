import type { Origin } from "@espalier/mesh";
import type { CheckpointTable, StatedCheckpoint } from "./checkpoint-table.ts";
import { type BatchMark, type FoldPoint, markOf, never } from "./engine-epoch.ts";
import type { FactRecord } from "./fact-item.ts";
import { applyFactOps } from "./fact-ops.ts";
import type { FoldContext, SharedBytes } from "./fold-context.ts";
import { KeptState } from "./kept-state.ts";

const none = -1;

/**
 * Applies the records of one epoch of a target in the order of their sequences, and skips declared gaps. Where
 * something better may still arrive, it keeps the state at that point and what followed, to fold it again.
 */
export class FoldTrack {
  readonly waiting: WaitingRecords;
  readonly gaps: SequenceRanges;
  /** Whether something arrived that changes what was applied since `kept`. */
  needsRefold = false;
  /** Whether it was folded again from an unknown state, and no message has dropped everything since. */
  isUnfounded = false;
  readonly #context: FoldContext;
  readonly #slot: number;
  #kept: KeptState | undefined;
  /** The last message that was skipped since `kept`. */
  #skippedTo = none;
  #position = none;
  #last: BatchMark | undefined;
  #incompleteFrom = never;

  constructor(context: FoldContext, slot: number) {
    this.#context = context;
    this.#slot = slot;
    this.waiting = new WaitingRecords(context.waiting);
    this.gaps = new SequenceRanges(context.limits.maxGapsPerTarget);
  }

  get position(): number {
    return this.#position;
  }

  get last(): BatchMark | undefined {
    return this.#last;
  }

  get isComplete(): boolean {
    return this.#incompleteFrom === never;
  }

  get point(): FoldPoint {
    return { position: this.#position, last: this.#last, incompleteFrom: this.#incompleteFrom };
  }

  get kept(): KeptState | undefined {
    return this.#kept;
  }

  /** Whether it skipped a gap that may still be filled. */
  get isOpen(): boolean {
    return this.#skippedTo !== none;
  }

  /** Whether records wait for earlier ones. */
  get isStuck(): boolean {
    return this.nextWaiting !== undefined;
  }

  /** The sequence of the next waiting record. */
  get nextWaiting(): number | undefined {
    return this.waiting.firstAfter(this.#position);
  }

  /** Records and gaps up to this one are obsolete. */
  get floor(): number {
    return this.#kept ? this.#kept.point.position : this.#position;
  }

  /** Continues from this point; what waits beyond it stays. The index holds its state, or will when it is advanced. */
  moveTo(point: FoldPoint): void {
    this.dropKept();
    this.isUnfounded = false;
    this.#position = point.position;
    this.#last = point.last;
    this.#incompleteFrom = point.incompleteFrom;
    this.#dropThrough(point.position);
  }

  /** Applies a record at once when it is the next one and nothing of it must be kept. */
  applyNext(record: FactRecord): boolean {
    if (record.sequence !== this.#position + 1 || this.#kept || this.waiting.count > 0) return false;
    if (!record.isComplete && this.#incompleteFrom === never) return false;
    this.#step(record);
    return true;
  }

  /** Keeps a record until its turn, and longer while there is a kept state. @returns whether anything changed */
  keep(origin: Origin, record: FactRecord): boolean {
    const added = this.waiting.add(origin, record);
    if (added === "same") return false;
    if (this.#kept && record.sequence <= this.#position) this.needsRefold = true;
    return true;
  }

  /**
   * Applies what is next as far as possible. Stops after every message that has a checkpoint, and before a gap that has
   * a checkpoint within.
   *
   * @returns the checkpoint that it has reached
   */
  advance(checkpoints: CheckpointTable): StatedCheckpoint | undefined {
    for (;;) {
      const next = this.#position + 1;
      const record = this.waiting.at(next);
      if (record) {
        if (!record.isComplete && this.isComplete) this.#keepState();
        this.#step(record);
        if (!this.#kept) this.#dropThrough(next);
        const stated = checkpoints.count > 0 ? checkpoints.take(next) : undefined;
        if (stated) return stated;
      } else if (!this.#skip(next, checkpoints)) return undefined;
    }
  }

  /** Folds again from the kept state. The caller advances it. */
  restoreKept(): void {
    const kept = this.#kept;
    this.needsRefold = false;
    if (!kept) return;
    this.#context.kept.total -= kept.byteLength;
    this.isUnfounded = kept.isVoid;
    kept.restore(this.#context.index, this.#slot);
    this.#skippedTo = none;
    this.#position = kept.point.position;
    this.#last = kept.point.last;
    this.#incompleteFrom = kept.point.incompleteFrom;
  }

  /** Closes the gaps if complete records have filled them all: nothing better can arrive. */
  closeIfComplete(): void {
    if (this.#kept && this.isComplete && !this.isOpen) this.closeKept();
  }

  /** A checkpoint says that there is no better state up to here. */
  settle(sequence: number, isComplete: boolean): void {
    if (sequence < this.#skippedTo) return;
    if (isComplete) this.#incompleteFrom = never;
    this.closeKept();
  }

  /** A checkpoint agrees on what is missing below it, and is behind every gap. */
  closeBelow(sequence: number): void {
    if (sequence >= this.#skippedTo && sequence >= this.#incompleteFrom) this.closeKept();
  }

  /** The kept state is not needed any more. */
  closeKept(): void {
    if (!this.#kept) return;
    this.dropKept();
    this.#dropThrough(this.#position);
  }

  /** Forgets the kept state, but not what followed it. */
  dropKept(): void {
    if (this.#kept) this.#context.kept.total -= this.#kept.byteLength;
    this.#kept = undefined;
    this.#skippedTo = none;
    this.needsRefold = false;
  }

  /** Notes that the state may lack something from this message on. */
  markIncomplete(sequence: number): void {
    this.#incompleteFrom = Math.min(this.#incompleteFrom, sequence);
  }

  /** Whether records and gaps lead from one message to another. */
  leads(from: number, to: number): boolean {
    for (let at = from; at < to; ) {
      if (this.waiting.at(at + 1)) at++;
      else {
        const end = this.gaps.endOf(at + 1);
        if (end === undefined) return false;
        at = end;
      }
    }
    return true;
  }

  #step(record: Omit<FactRecord, "kind" | "feed">): void {
    const { sequence } = record;
    const { sink } = this.#context;
    sink.aim(this.#slot, this.#kept);
    const keptBytes = this.#kept?.byteLength ?? 0;
    applyFactOps(record.ops, sink);
    if (sink.wasCleared) this.isUnfounded = false;
    this.#position = sequence;
    this.#last = markOf(record);
    if (!record.isComplete) this.markIncomplete(sequence);
    if (this.#kept) this.#accountKept(keptBytes);
  }

  /** Accounts for what is kept in addition; when it is too much, the gap is closed. */
  #accountKept(beforeBytes: number): void {
    const { kept, limits, meters } = this.#context;
    kept.total += (this.#kept?.byteLength ?? 0) - beforeBytes;
    if (kept.total <= limits.maxKeptBytes) return;
    meters.gapGivenUp();
    this.closeKept();
  }

  /** Skips a gap that holds the next message, up to the next message that has a record. */
  #skip(next: number, checkpoints: CheckpointTable): boolean {
    const end = this.gaps.endOf(next);
    if (end === undefined) return false;
    const record = this.waiting.firstAfter(next) ?? end + 1;
    const to = Math.min(end, record - 1);
    if (checkpoints.hasWithin(next, to)) return false;
    if (!this.#kept || this.isComplete) this.#keepState();
    this.markIncomplete(next);
    this.#position = to;
    this.#skippedTo = to;
    return true;
  }

  /** Nothing better can arrive for complete records, so an earlier kept state is obsolete. */
  #keepState(): void {
    this.closeKept();
    this.#kept = new KeptState(this.point, this.#context.sink.mayHaveHoles(this.#slot));
  }

  #dropThrough(sequence: number): void {
    this.waiting.dropThrough(sequence);
    this.gaps.dropThrough(sequence);
  }
}

interface Range {
  from: number;
  to: number;
}

/** Ranges of sequence numbers that do not touch. */
export class SequenceRanges {
  readonly #maxRanges: number;
  #ranges: Range[] = [];

  constructor(maxRanges: number) {
    this.#maxRanges = maxRanges;
  }

  get count(): number {
    return this.#ranges.length;
  }

  /**
   * Adds the numbers from `from` to `to`, inclusive.
   *
   * @returns false when they did not fit
   */
  add(from: number, to: number): boolean {
    const before: Range[] = [];
    const after: Range[] = [];
    const merged: Range = { from, to };
    for (const range of this.#ranges) {
      if (range.to < from - 1) before.push(range);
      else if (range.from > to + 1) after.push(range);
      else {
        merged.from = Math.min(merged.from, range.from);
        merged.to = Math.max(merged.to, range.to);
      }
    }
    if (before.length + after.length >= this.#maxRanges) return false;
    this.#ranges = [...before, merged, ...after];
    return true;
  }

  /** @returns the last number of the range that holds this one; undefined when none does */
  endOf(sequence: number): number | undefined {
    for (const { from, to } of this.#ranges) if (from <= sequence && sequence <= to) return to;
    return undefined;
  }

  /** Forgets this number and all below it. */
  dropThrough(sequence: number): void {
    if (this.#ranges.length === 0 || this.#ranges[0]!.from > sequence) return;
    this.#ranges = this.#ranges.filter(({ to }) => to > sequence);
    const [first] = this.#ranges;
    if (first && first.from <= sequence) first.from = sequence + 1;
  }

  clear(): void {
    this.#ranges = [];
  }
}

/** Approximate bytes of a waiting record without its ops. */
const recordOverheadBytes = 128;

/** A record as it waits: a copy, not a view of a journal's item. */
export interface WaitingRecord extends BatchMark {
  readonly isComplete: boolean;
  readonly ops: Uint8Array;
  readonly origin: Origin;
}

/** `new`: the first record of its sequence. `better`: it replaces a different one. `same`: it changes nothing. */
export type AddedAs = "new" | "better" | "same";

/** Records of one target in the order of their sequences, the best one for each. */
export class WaitingRecords {
  readonly #bytes: SharedBytes;
  #records: WaitingRecord[] = [];
  /** Records before it are gone. */
  #head = 0;
  #byteLength = 0;

  constructor(bytes: SharedBytes) {
    this.#bytes = bytes;
  }

  get count(): number {
    return this.#records.length - this.#head;
  }

  get byteLength(): number {
    return this.#byteLength;
  }

  add(origin: Origin, record: FactRecord): AddedAs {
    const at = this.#indexFrom(record.sequence);
    const known = this.#records[at];
    if (known?.sequence !== record.sequence) {
      this.#records.splice(at, 0, waitingRecord(origin, record));
      this.#account(record.ops.length + recordOverheadBytes);
      return "new";
    }
    if (!ranksBefore(record.isComplete, origin, known)) return "same";
    this.#records[at] = waitingRecord(origin, record);
    this.#account(record.ops.length - known.ops.length);
    return record.isComplete === known.isComplete && equalBytes(record.ops, known.ops) ? "same" : "better";
  }

  at(sequence: number): WaitingRecord | undefined {
    const record = this.#records[this.#indexFrom(sequence)];
    return record?.sequence === sequence ? record : undefined;
  }

  /** @returns the lowest sequence above this one that has a record */
  firstAfter(sequence: number): number | undefined {
    return this.#records[this.#indexFrom(sequence + 1)]?.sequence;
  }

  /** Forgets the record with this sequence and all before it. */
  dropThrough(sequence: number): void {
    while (this.#head < this.#records.length && this.#records[this.#head]!.sequence <= sequence) this.dropOldest();
  }

  /** @returns the sequence of what was dropped */
  dropOldest(): number | undefined {
    const oldest = this.#records[this.#head];
    if (!oldest) return undefined;
    this.#account(-(oldest.ops.length + recordOverheadBytes));
    this.#head++;
    if (this.#head * 2 > this.#records.length) {
      this.#records = this.#records.slice(this.#head);
      this.#head = 0;
    }
    return oldest.sequence;
  }

  clear(): void {
    this.#account(-this.#byteLength);
    this.#records = [];
    this.#head = 0;
  }

  #account(bytes: number): void {
    this.#byteLength += bytes;
    this.#bytes.total += bytes;
  }

  /** Index of the first record at or above a sequence. */
  #indexFrom(sequence: number): number {
    let low = this.#head;
    let high = this.#records.length;
    if (high > low && this.#records[low]!.sequence >= sequence) return low;
    if (high > low && this.#records[high - 1]!.sequence < sequence) return high;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#records[middle]!.sequence < sequence) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function waitingRecord(origin: Origin, record: FactRecord): WaitingRecord {
  return { ...markOf(record), isComplete: record.isComplete, ops: record.ops.slice(), origin };
}

/** Complete ones rank first, then the lowest router, then the lowest epoch. */
function ranksBefore(isComplete: boolean, { router, epoch }: Origin, other: WaitingRecord): boolean {
  if (isComplete !== other.isComplete) return isComplete;
  if (router !== other.origin.router) return router < other.origin.router;
  return epoch < other.origin.epoch;
}

function equalBytes(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && one.every((byte, index) => byte === other[index]);
}
