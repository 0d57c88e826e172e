/** Records that expire in the same span of so many milliseconds have one sum. */
export const digestSpanMs = 16_384;
/** Spans for which sums are kept; with more, the earliest go. Together longer than any record lives. */
export const maxDigestSpans = 8_192;

interface SpanSum {
  low: number;
  high: number;
}

/**
 * A digest of a multiset of records that expire: sums of their hashes by the span of time in which they do, so that it can be
 * told for those that are alive at any moment, whatever has been forgotten before.
 */
export class RecordDigest {
  readonly #sums = new Map<number, SpanSum>();

  /** @param expiresMs by the stamp of the record, so the same in every router */
  add(low: number, high: number, expiresMs: number): void {
    const span = Math.floor(expiresMs / digestSpanMs);
    let sum = this.#sums.get(span);
    if (!sum) {
      sum = { low: 0, high: 0 };
      this.#sums.set(span, sum);
      if (this.#sums.size > maxDigestSpans) this.#dropEarliest();
    }
    sum.low = (sum.low + low) >>> 0;
    sum.high = (sum.high + high) >>> 0;
  }

  /** The digest of the records that expire later than `wallMs`, without those that do so in the same span. */
  after(wallMs: number): readonly [number, number] {
    let low = 0;
    let high = 0;
    for (const [span, sum] of this.#sums) {
      if (span * digestSpanMs <= wallMs) continue;
      low = (low + sum.low) >>> 0;
      high = (high + sum.high) >>> 0;
    }
    return [low, high];
  }

  get spans(): number {
    return this.#sums.size;
  }

  /** Drops an eighth at a time, so that it costs little per record. */
  #dropEarliest(): void {
    const spans = [...this.#sums.keys()].sort((one, other) => one - other);
    for (const span of spans.slice(0, maxDigestSpans / 8)) this.#sums.delete(span);
  }
}
