const decoder = new TextDecoder("utf-8", { fatal: true });

/** @returns what `read` makes of bytes from outside; undefined where it throws a RangeError, as `ByteReader` does */
export function readOrUndefined<Read>(read: () => Read): Read | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/**
 * Reads what `ByteWriter` writes. Every method throws a RangeError if unexpected end of bytes or are malformed; a caller that
 * reads from a socket catches it once.
 */
export class ByteReader {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  /**
   * Behind the first byte, which says the version of what follows.
   *
   * @throws RangeError for another version
   */
  static ofVersion(version: number, bytes: Uint8Array): ByteReader {
    const reader = new ByteReader(bytes);
    const found = reader.u8();
    if (found !== version) throw new RangeError(`version ${found} is not known`);
    return reader;
  }

  get position(): number {
    return this.#at;
  }

  get remaining(): number {
    return this.#bytes.length - this.#at;
  }

  u8(): number {
    return this.#bytes[this.#take(1)]!;
  }

  u32(): number {
    const at = this.#take(4);
    const bytes = this.#bytes;
    return (bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24)) >>> 0;
  }

  f64(): number {
    const at = this.#take(8);
    return new DataView(this.#bytes.buffer, this.#bytes.byteOffset).getFloat64(at, true);
  }

  /** @throws RangeError for more than a safe integer */
  varint(): number {
    let value = 0;
    let factor = 1;
    for (;;) {
      const byte = this.u8();
      value += (byte & 127) * factor;
      if (!Number.isSafeInteger(value)) throw new RangeError("a varint is too large");
      if (byte < 128) return value;
      factor *= 128;
      if (factor > 2 ** 56) throw new RangeError("a varint is too long");
    }
  }

  signedVarint(): number {
    const value = this.varint();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }

  /** @throws RangeError for a longer text, and for bytes that are not UTF-8 */
  text(maxBytes: number): string {
    const bytes = this.bytes(maxBytes);
    try {
      return decoder.decode(bytes);
    } catch {
      throw new RangeError("text is not UTF-8");
    }
  }

  /** A view of length-prefixed bytes. */
  bytes(maxBytes: number): Uint8Array {
    const length = this.varint();
    if (length > maxBytes) throw new RangeError(`${length} bytes, maximum ${maxBytes}`);
    return this.raw(length);
  }

  /** A view of the next bytes. */
  raw(length: number): Uint8Array {
    const at = this.#take(length);
    return this.#bytes.subarray(at, at + length);
  }

  /** Reads `count` words into `into`, from its word `at` on. */
  words(count: number, into: Uint32Array, at: number): void {
    let from = this.#take(count * 4);
    const bytes = this.#bytes;
    for (let index = at; index < at + count; index++) {
      into[index] = bytes[from]! | (bytes[from + 1]! << 8) | (bytes[from + 2]! << 16) | (bytes[from + 3]! << 24);
      from += 4;
    }
  }

  /** @throws RangeError if bytes are left */
  end(): void {
    if (this.remaining > 0) throw new RangeError(`${this.remaining} bytes too many`);
  }

  #take(length: number): number {
    const at = this.#at;
    if (length > this.#bytes.length - at) throw new RangeError("unexpected end of bytes");
    this.#at = at + length;
    return at;
  }
}

const encoder = new TextEncoder();
const two32 = 0x1_0000_0000;
/** Largest varint of a safe integer, in bytes. */
const maxVarintBytes = 8;

/** Writes the project's wire formats: little-endian words, and varints of seven bits per byte, lowest first. */
export class ByteWriter {
  #bytes: Uint8Array<ArrayBuffer>;
  #length = 0;

  constructor(initialBytes = 256) {
    this.#bytes = new Uint8Array(initialBytes);
  }

  get length(): number {
    return this.#length;
  }

  /** Empties the writer and keeps its memory. */
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

  /** Bytes, after their length. */
  bytes(value: Uint8Array): void {
    this.varint(value.length);
    this.raw(value);
  }

  /** Bytes without their length. */
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
