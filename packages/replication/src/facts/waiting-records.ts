import type { Origin } from "../origin.ts";
import type { FactRecord } from "./fact-item.ts";
import type { SharedBytes } from "./fold-context.ts";
import type { BatchMark } from "./life.ts";

/** What a waiting record takes besides its ops, about. */
const recordOverheadBytes = 128;

/** A record as it waits: by itself, not as a part of a journal's item. */
export interface WaitingRecord extends BatchMark {
  readonly isComplete: boolean;
  readonly ops: Uint8Array;
  readonly origin: Origin;
}

/**
 * `new`: nothing was known of its sequence. `better`: it replaces another one that says something else. `same`: nothing
 * changes by it.
 */
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

  /** @returns the lowest sequence above this one that there is a record for */
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
  const { sequence, timestampUs, checksum, isComplete } = record;
  return { sequence, timestampUs, checksum, isComplete, ops: record.ops.slice(), origin };
}

/** Complete ones first, then the lowest router, then the lowest epoch. */
function ranksBefore(isComplete: boolean, { router, epoch }: Origin, other: WaitingRecord): boolean {
  if (isComplete !== other.isComplete) return isComplete;
  if (router !== other.origin.router) return router < other.origin.router;
  return epoch < other.origin.epoch;
}

function equalBytes(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && one.every((byte, index) => byte === other[index]);
}
