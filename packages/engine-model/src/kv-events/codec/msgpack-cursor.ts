/**
 * Messages up to this size are copied before reading: the copy costs half of a new DataView. Larger ones are read in
 * place, because copying them costs more.
 */
const copiedBytes = 64 * 1024;
const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });

/**
 * Reads msgpack values one at a time. No method throws or reads past the end. A method that fails to read a value does
 * not move the cursor, so that the caller can try another type; a failed `skip` stops anywhere.
 */
export class MsgpackCursor {
  bytes: Uint8Array;
  /** The same bytes. */
  view: DataView;
  /** Where the next value begins. */
  at = 0;
  end = 0;
  /** The bytes found by the last `readText` or `readBinary`. */
  spanStart = 0;
  spanEnd = 0;
  /** Why the last `skip` failed. */
  failure: "truncated" | "invalid" = "truncated";

  readonly #copy = new Uint8Array(copiedBytes);
  readonly #copyView = new DataView(this.#copy.buffer);

  constructor() {
    this.bytes = this.#copy;
    this.view = this.#copyView;
  }

  reset(bytes: Uint8Array): void {
    this.at = 0;
    this.end = bytes.length;
    if (bytes.length <= copiedBytes) {
      this.#copy.set(bytes);
      return;
    }
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  /** Drops the reference to the bytes, which belong to the caller. */
  release(): void {
    this.bytes = this.#copy;
    this.view = this.#copyView;
    this.at = 0;
    this.end = 0;
  }

  /** The first byte of the next value; -1 at the end. */
  peek(): number {
    return this.at < this.end ? this.bytes[this.at]! : -1;
  }

  /** Skips a nil. */
  readNil(): boolean {
    if (this.peek() !== 0xc0) return false;
    this.at += 1;
    return true;
  }

  /** @returns the number of elements; -1 for anything but an array, or for more elements than bytes left */
  readArrayHeader(): number {
    const head = this.peek();
    if ((head & 0xf0) === 0x90) return this.#count(1, head & 0x0f, 1);
    if (head === 0xdc) return this.#count(3, this.#unsigned(2), 1);
    if (head === 0xdd) return this.#count(5, this.#unsigned(4), 1);
    return -1;
  }

  /** @returns the number of pairs; -1 for anything but a map, or for more pairs than the bytes left allow */
  readMapHeader(): number {
    const head = this.peek();
    if ((head & 0xf0) === 0x80) return this.#count(1, head & 0x0f, 2);
    if (head === 0xde) return this.#count(3, this.#unsigned(2), 2);
    if (head === 0xdf) return this.#count(5, this.#unsigned(4), 2);
    return -1;
  }

  /** Finds the bytes of a string. */
  readText(): boolean {
    const head = this.peek();
    if ((head & 0xe0) === 0xa0) return this.#span(1, head & 0x1f);
    if (head < 0xd9 || head > 0xdb) return false;
    const sizeBytes = 1 << (head - 0xd9);
    return this.#span(1 + sizeBytes, this.#unsigned(sizeBytes));
  }

  /** Finds the bytes of a binary value. */
  readBinary(): boolean {
    const head = this.peek();
    if (head < 0xc4 || head > 0xc6) return false;
    const sizeBytes = 1 << (head - 0xc4);
    return this.#span(1 + sizeBytes, this.#unsigned(sizeBytes));
  }

  /** The bytes found last, as text; invalid UTF-8 becomes replacement characters. */
  spanText(): string {
    return utf8.decode(this.bytes.subarray(this.spanStart, this.spanEnd));
  }

  /** @returns the integer, rounded beyond 2^53; NaN for anything else */
  readInteger(): number {
    const head = this.peek();
    if (head >= 0 && head < 0x80) {
      this.at += 1;
      return head;
    }
    if (head >= 0xe0) {
      this.at += 1;
      return head - 0x100;
    }
    if (head >= 0xcc && head <= 0xcf) return this.#wide(1 << (head - 0xcc), false);
    if (head >= 0xd0 && head <= 0xd3) return this.#wide(1 << (head - 0xd0), true);
    return Number.NaN;
  }

  /** @returns the float or integer; NaN for anything else */
  readNumber(): number {
    const head = this.peek();
    if (head !== 0xca && head !== 0xcb) return this.readInteger();
    const size = head === 0xca ? 4 : 8;
    const start = this.at + 1;
    if (start + size > this.end) return Number.NaN;
    this.at = start + size;
    return size === 4 ? this.view.getFloat32(start) : this.view.getFloat64(start);
  }

  /**
   * Skips one value of any kind. Nesting costs no memory: only the number of values left is kept, which never exceeds
   * the bytes left.
   *
   * @returns false when the bytes end first or are not msgpack; `failure` says which
   */
  skip(): boolean {
    for (let pending = 1; pending > 0; pending--) {
      const head = this.peek();
      const content = head < 0 ? -1 : this.#contentBytes(head);
      if (head === 0xc1) return this.#fail("invalid");
      if (content < 0 || this.at + content > this.end) return this.#fail("truncated");
      this.at += content;
      pending += this.#children;
      if (pending - 1 > this.end - this.at) return this.#fail("truncated");
    }
    return true;
  }

  #children = 0;

  /**
   * Skips the head of a value and counts the values it contains.
   *
   * @returns the bytes of content that follow the head; -1 when the bytes end within the head
   */
  #contentBytes(head: number): number {
    this.#children = 0;
    if (head >= 0xa0 && head <= 0xbf) {
      this.at += 1;
      return head & 0x1f;
    }
    if (head < 0x80 || head >= 0xe0 || head <= 0x9f) {
      this.at += 1;
      if (head >= 0x90 && head <= 0x9f) this.#children = head & 0x0f;
      else if (head >= 0x80 && head <= 0x8f) this.#children = 2 * (head & 0x0f);
      return 0;
    }
    const code = head - 0xc0;
    const fixed = fixedContentBytes[code]!;
    if (fixed >= 0) {
      this.at += 1;
      return fixed;
    }
    const size = this.#unsigned(lengthBytes[code]!);
    if (size < 0) return -1;
    this.at += 1 + lengthBytes[code]!;
    if (head >= 0xdc) {
      this.#children = head >= 0xde ? 2 * size : size;
      return 0;
    }
    // An extension has one byte for its type in addition to its content.
    return head >= 0xc7 && head <= 0xc9 ? size + 1 : size;
  }

  #fail(reason: "truncated" | "invalid"): false {
    this.failure = reason;
    return false;
  }

  /** Skips a head of `headBytes`, unless the bytes left cannot contain all its values. */
  #count(headBytes: number, count: number, bytesEach: number): number {
    const start = this.at + headBytes;
    if (count < 0 || count * bytesEach > this.end - start) return -1;
    this.at = start;
    return count;
  }

  #span(headBytes: number, length: number): boolean {
    const start = this.at + headBytes;
    if (length < 0 || start + length > this.end) return false;
    this.spanStart = start;
    this.spanEnd = start + length;
    this.at = start + length;
    return true;
  }

  /** @returns the unsigned integer of 1, 2 or 4 bytes after the head; -1 when the bytes end first */
  #unsigned(size: number): number {
    const start = this.at + 1;
    if (start + size > this.end) return -1;
    if (size === 1) return this.view.getUint8(start);
    return size === 2 ? this.view.getUint16(start) : this.view.getUint32(start);
  }

  #wide(size: number, signed: boolean): number {
    const start = this.at + 1;
    if (start + size > this.end) return Number.NaN;
    const first = this.bytes[start]!;
    let value = signed && first >= 0x80 ? first - 0x100 : first;
    for (let index = 1; index < size; index++) value = value * 0x100 + this.bytes[start + index]!;
    this.at = start + size;
    return value;
  }
}

/** For heads 0xc0 to 0xdf: the bytes of content after the head, or -1 if a length follows it. */
const fixedContentBytes = Int8Array.from([
  // nil, the unused byte, false, true; binary; extensions with a length
  0, 0, 0, 0, -1, -1, -1, -1, -1, -1,
  // floats; unsigned; signed; extensions of fixed length, with a byte for their type
  4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 3, 5, 9, 17,
  // strings, arrays, maps
  -1, -1, -1, -1, -1, -1, -1,
]);

/** For heads 0xc0 to 0xdf: the bytes of the length that follows the head. */
const lengthBytes = Uint8Array.from([
  0, 0, 0, 0, 1, 2, 4, 1, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 2, 4, 2, 4,
]);
