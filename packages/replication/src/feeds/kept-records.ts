import type { BatchMark } from "../facts/life.ts";

/** A message's effects or a gap, as it will be written when this router takes over. */
export type KeptEntry =
  | (BatchMark & { readonly kind: "record"; readonly isComplete: boolean; readonly ops: Uint8Array })
  | { readonly kind: "gap"; readonly from: number; readonly to: number };

/** Memory of an entry beside its bytes. */
const entryOverheadBytes = 160;

/** The last message that an entry is about. */
export const lastMessageOf = (entry: KeptEntry): number => (entry.kind === "record" ? entry.sequence : entry.to);

/** The latest records of a feed, in order; over a bound the oldest go. */
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

  /** Drops what is not needed any more. */
  dropTo(sequence: number): void {
    while (this.count > 0 && lastMessageOf(this.#entries[this.#first]!) <= sequence) this.#dropFirst();
  }

  /** Everything is dropped; what is needed from now on comes after this message. */
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

  /** What reaches to this message or beyond it, in order. */
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
