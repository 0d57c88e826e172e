import type { BatchMark } from "../facts/engine-epoch.ts";
import type { FoldState } from "../facts/fact-fold.ts";
import { lastMessageOf } from "../facts/fact-item.ts";

/** A message's effects or a gap, to be written when this router takes over. */
export type KeptEntry =
  | (BatchMark & { readonly kind: "record"; readonly isComplete: boolean; readonly ops: Uint8Array })
  | { readonly kind: "gap"; readonly from: number; readonly to: number };

/** Memory of an entry next to its bytes. */
const entryOverheadBytes = 160;

/** The latest records of a feed, in order; over a bound the oldest are dropped. */
export class KeptRecords {
  /** Everything that was read from this message on is here. Undefined before the first. */
  start: number | undefined;
  byteLength = 0;
  #entries: KeptEntry[] = [];
  /** Entries before it are dropped. */
  #first = 0;
  readonly #maxRecords: number;
  readonly #maxBytes: number;

  constructor(limits: { readonly maxKeptRecords: number; readonly maxKeptBytes: number }) {
    this.#maxRecords = limits.maxKeptRecords;
    this.#maxBytes = limits.maxKeptBytes;
  }

  get count(): number {
    return this.#entries.length - this.#first;
  }

  push(entry: KeptEntry): void {
    this.start ??= entry.kind === "record" ? entry.sequence : entry.from;
    this.#entries.push(entry);
    this.byteLength += bytesOf(entry);
    while (this.count > this.#maxRecords || this.byteLength > this.#maxBytes) this.#dropFirst();
  }

  /** Drops what is obsolete. */
  dropTo(sequence: number): void {
    while (this.count > 0 && lastMessageOf(this.#entries[this.#first]!) <= sequence) this.#dropFirst();
  }

  /** Drops everything; what is needed from now on follows this message. */
  restartAfter(sequence: number): void {
    this.clear();
    this.start = sequence + 1;
  }

  clear(): void {
    this.start = undefined;
    this.byteLength = 0;
    this.#entries = [];
    this.#first = 0;
  }

  /** Entries that reach this message or go beyond it, in order. */
  since(sequence: number): KeptEntry[] {
    return this.#entries.slice(this.#first).filter((entry) => lastMessageOf(entry) >= sequence);
  }

  #dropFirst(): void {
    const entry = this.#entries[this.#first]!;
    this.byteLength -= bytesOf(entry);
    this.start = lastMessageOf(entry) + 1;
    this.#first++;
    if (this.#first * 2 <= this.#entries.length) return;
    this.#entries = this.#entries.slice(this.#first);
    this.#first = 0;
  }
}

function bytesOf(entry: KeptEntry): number {
  return entryOverheadBytes + (entry.kind === "record" ? entry.ops.length : 0);
}

export interface TakeoverFacts {
  /** Its epoch is the one that is read. */
  readonly state: FoldState;
  readonly earliest: BatchMark;
  readonly newest: BatchMark;
  /** Whether every message of the epoch up to `newest` was read. */
  readonly isComplete: boolean;
  /** Everything that was read from this message on is kept. */
  readonly keptFrom: number | undefined;
  /**
   * The fold is known to have had everything up to this message, which is at least the one before the epoch's first.
   */
  readonly completeTo: number;
  /** What the router that named the epoch has written of it may still be on its way. */
  readonly isAwaited: boolean;
}

/**
 * How a reader continues from the fold's state. `records`: it writes the records that it keeps, from this message on,
 * if there are any; before them it declares the gap from `gapFrom` to its first record. `state`: it states all that its
 * ledger holds. `wait`: it does not know more than the fold yet.
 */
export type TakeoverPlan =
  | { readonly how: "records"; readonly from: number; readonly gapFrom?: number }
  | { readonly how: "state" }
  | { readonly how: "wait" };

export function planTakeover(facts: TakeoverFacts): TakeoverPlan {
  const { state, earliest, newest, isComplete, keptFrom, completeTo, isAwaited } = facts;
  const last = lastSequenceOf(state);
  const epochStart = state.epoch?.sequence ?? 0;
  // A ledger with holes would replace a better state, which would then replace it in turn.
  const mayBeWorse = isAwaited && !isComplete && state.last === undefined;
  const byState: TakeoverPlan = newest.sequence >= last && !mayBeWorse ? { how: "state" } : { how: "wait" };
  if (state.progress === "loading") return isComplete ? byState : { how: "wait" };
  // No record covers what was read before the message that names the epoch, and the fold takes that for nothing.
  const isUnfounded = earliest.sequence < epochStart && completeTo < epochStart;
  if (isUnfounded && (isComplete || state.last === undefined)) return byState;
  // A reader that has everything repeats what another one has missed.
  const from = (isComplete && !state.isComplete ? Math.min(completeTo, last) : last) + 1;
  if (newest.sequence < from || (keptFrom !== undefined && keptFrom <= from)) return { how: "records", from };
  // A ledger that began later knows less than the inherited state.
  if (!isComplete && keptFrom === earliest.sequence) return { how: "records", from: keptFrom, gapFrom: from };
  return byState;
}

/** The latest applied message; without one, the message before the epoch's first. */
export function lastSequenceOf({ last, epoch }: FoldState): number {
  return last?.sequence ?? (epoch ? epoch.sequence - 1 : -1);
}
