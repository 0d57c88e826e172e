/** Searches chunks for some bytes, each part once. */
export class Needle {
  readonly #needle: Buffer;
  /** The chunk last searched, and where the bytes come next in it; its length for nowhere. */
  #chunk: Buffer | undefined;
  #at = 0;

  constructor(needle: Buffer) {
    this.#needle = needle;
  }

  /** The offset where they begin between two offsets, or -1. Call it with ascending offsets for each chunk in turn. */
  findIn(chunk: Buffer, start: number, end: number): number {
    if (this.#chunk !== chunk || this.#at < start) {
      const found = chunk.indexOf(this.#needle, start);
      this.#chunk = chunk;
      this.#at = found < 0 ? chunk.length : found;
    }
    return this.#at < end ? this.#at : -1;
  }
}
