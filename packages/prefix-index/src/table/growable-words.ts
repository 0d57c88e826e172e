interface GrowableBuffer extends SharedArrayBuffer {
  grow(byteLength: number): void;
}

/** Growable shared buffers are in V8 since Node 20; the library of ES2023 does not declare them. */
const GrowableSharedBuffer = SharedArrayBuffer as unknown as new (
  byteLength: number,
  options: { readonly maxByteLength: number },
) => GrowableBuffer;

const wordBytes = 4;

/**
 * Words that grow in place: the address space for the maximum is reserved at once, memory is taken when it is first
 * written. Growing copies nothing. `words` is replaced when it grows, and has a fixed length, which keeps access to it
 * as fast as to a plain array.
 */
export class GrowableWords {
  words: Uint32Array;
  /** The same memory as 64-bit floats. */
  floats: Float64Array;
  readonly maxWords: number;
  readonly #buffer: GrowableBuffer;

  constructor(maxWords: number, initialWords: number) {
    this.maxWords = maxWords;
    const byteLength = Math.min(initialWords, maxWords) * wordBytes;
    this.#buffer = new GrowableSharedBuffer(byteLength, { maxByteLength: maxWords * wordBytes });
    this.words = new Uint32Array(this.#buffer, 0, byteLength / wordBytes);
    this.floats = new Float64Array(this.#buffer, 0, this.words.length >> 1);
  }

  /**
   * Makes at least `count` words, the new ones zero.
   *
   * @returns false when that is beyond the maximum, in which case nothing changes
   */
  ensure(count: number): boolean {
    if (count <= this.words.length) return true;
    if (count > this.maxWords) return false;
    this.#buffer.grow(Math.max(count * wordBytes, this.#buffer.byteLength));
    this.words = new Uint32Array(this.#buffer, 0, count);
    this.floats = new Float64Array(this.#buffer, 0, count >> 1);
    return true;
  }
}
