/**
 * How a message relates to those accepted before it. `next`: in order. `ahead`: something is missing before it. `same`:
 * it was accepted before. `changed`: its number was accepted with other bytes. `unknown`: its number is behind, and what
 * it had then is not remembered.
 */
export type SequenceRelation = "next" | "ahead" | "same" | "changed" | "unknown";

/** Stands for "nothing remembered"; a checksum of 0 is stored as 1. */
const nothing = 0;

/** Where a stream of numbered messages stands, with the checksums of the latest ones. */
export class SequenceTracker {
  readonly #checksums: Uint32Array;
  #last = -1;

  /** @param remembered how many of the latest numbers keep their checksum, 4 bytes each */
  constructor(remembered: number) {
    this.#checksums = new Uint32Array(remembered);
  }

  /** The highest number accepted, -1 before the first. */
  get last(): number {
    return this.#last;
  }

  relate(sequence: number, checksum: number): SequenceRelation {
    if (sequence === this.#last + 1) return "next";
    if (sequence > this.#last) return "ahead";
    const size = this.#checksums.length;
    const kept = sequence > this.#last - size ? this.#checksums[sequence % size]! : nothing;
    if (kept === nothing) return "unknown";
    return kept === stored(checksum) ? "same" : "changed";
  }

  /** Takes a number beyond the last. Those between the two are not remembered. */
  accept(sequence: number, checksum: number): void {
    const size = this.#checksums.length;
    if (sequence - this.#last > size) this.#checksums.fill(nothing);
    else for (let at = this.#last + 1; at < sequence; at++) this.#checksums[at % size] = nothing;
    this.#checksums[sequence % size] = stored(checksum);
    this.#last = sequence;
  }

  reset(): void {
    this.#checksums.fill(nothing);
    this.#last = -1;
  }
}

const stored = (checksum: number): number => checksum >>> 0 || 1;
