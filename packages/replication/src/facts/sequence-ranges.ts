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
   * @returns false when they found no room
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
