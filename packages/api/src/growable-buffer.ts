const empty = Buffer.alloc(0);

/**
 * Bytes of something incomplete, whose user bounds its size. Grows by doubling, so that appending a million chunks of
 * one byte costs no more than one chunk of a million.
 */
export class GrowableBuffer {
  size = 0;
  #buffer = empty;

  append(bytes: Buffer): void {
    const needed = this.size + bytes.length;
    if (needed > this.#buffer.length) {
      const grown = Buffer.allocUnsafe(Math.max(needed, 2 * this.#buffer.length));
      this.#buffer.copy(grown, 0, 0, this.size);
      this.#buffer = grown;
    }
    bytes.copy(this.#buffer, this.size);
    this.size = needed;
  }

  /** Returns the appended bytes and empties the buffer. */
  take(): Buffer {
    const taken = this.#buffer.subarray(0, this.size);
    this.#buffer = empty;
    this.size = 0;
    return taken;
  }
}
