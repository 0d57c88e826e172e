const decoder = new TextDecoder("utf-8", { fatal: true });

/**
 * Reads what `ByteWriter` writes. Every method throws a RangeError when the bytes end too early, or hold what no writer
 * writes; a caller that reads from a socket catches it once.
 */
export class ByteReader {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
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

  /** @throws RangeError for a longer text, and for bytes that are no UTF-8 */
  text(maxBytes: number): string {
    const bytes = this.bytes(maxBytes);
    try {
      return decoder.decode(bytes);
    } catch {
      throw new RangeError("a text is no UTF-8");
    }
  }

  /** A view of bytes that follow their number. */
  bytes(maxBytes: number): Uint8Array {
    const length = this.varint();
    if (length > maxBytes) throw new RangeError(`${length} bytes where ${maxBytes} are the most`);
    return this.raw(length);
  }

  /** A view of so many bytes. */
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

  /** @throws RangeError when anything is left */
  end(): void {
    if (this.remaining > 0) throw new RangeError(`${this.remaining} bytes too many`);
  }

  #take(length: number): number {
    const at = this.#at;
    if (length > this.#bytes.length - at) throw new RangeError("the bytes end too early");
    this.#at = at + length;
    return at;
  }
}
