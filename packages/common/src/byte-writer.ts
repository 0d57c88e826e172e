const encoder = new TextEncoder();
const two32 = 0x1_0000_0000;
/** Bytes that a varint of a safe integer takes at most. */
const maxVarintBytes = 8;

/** Writes the project's own wire forms: little-endian words, and varints of seven bits per byte, the lowest first. */
export class ByteWriter {
  #bytes: Uint8Array<ArrayBuffer>;
  #length = 0;

  constructor(initialBytes = 256) {
    this.#bytes = new Uint8Array(initialBytes);
  }

  get length(): number {
    return this.#length;
  }

  /** Forgets what was written and keeps the memory. */
  reset(): void {
    this.#length = 0;
  }

  u8(value: number): void {
    this.#reserve(1);
    this.#bytes[this.#length++] = value;
  }

  u32(value: number): void {
    this.#reserve(4);
    const bytes = this.#bytes;
    const at = this.#length;
    bytes[at] = value;
    bytes[at + 1] = value >>> 8;
    bytes[at + 2] = value >>> 16;
    bytes[at + 3] = value >>> 24;
    this.#length = at + 4;
  }

  f64(value: number): void {
    this.#reserve(8);
    new DataView(this.#bytes.buffer).setFloat64(this.#length, value, true);
    this.#length += 8;
  }

  /** @param value a safe integer from 0 */
  varint(value: number): void {
    this.#reserve(maxVarintBytes);
    let rest = value;
    while (rest >= two32) {
      this.#bytes[this.#length++] = (rest % 128) | 128;
      rest = Math.floor(rest / 128);
    }
    rest >>>= 0;
    while (rest > 127) {
      this.#bytes[this.#length++] = (rest & 127) | 128;
      rest >>>= 7;
    }
    this.#bytes[this.#length++] = rest;
  }

  /** A safe integer of either sign, zigzag. */
  signedVarint(value: number): void {
    this.varint(value < 0 ? -2 * value - 1 : 2 * value);
  }

  /** UTF-8, after its length in bytes. */
  text(value: string): void {
    this.bytes(encoder.encode(value));
  }

  /** Bytes, after their number. */
  bytes(value: Uint8Array): void {
    this.varint(value.length);
    this.raw(value);
  }

  /** Bytes without their number. */
  raw(value: Uint8Array): void {
    this.#reserve(value.length);
    this.#bytes.set(value, this.#length);
    this.#length += value.length;
  }

  /** The words `from` to `to` (exclusive), four bytes each. */
  words(words: Uint32Array, from: number, to: number): void {
    this.#reserve((to - from) * 4);
    const bytes = this.#bytes;
    let at = this.#length;
    for (let index = from; index < to; index++) {
      const word = words[index]!;
      bytes[at++] = word;
      bytes[at++] = word >>> 8;
      bytes[at++] = word >>> 16;
      bytes[at++] = word >>> 24;
    }
    this.#length = at;
  }

  /** A copy of what was written. */
  copy(): Uint8Array<ArrayBuffer> {
    return this.#bytes.slice(0, this.#length);
  }

  #reserve(more: number): void {
    if (this.#length + more <= this.#bytes.length) return;
    const longer = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length + more));
    longer.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = longer;
  }
}
