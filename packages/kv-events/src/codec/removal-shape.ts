import type { MsgpackCursor } from "./msgpack-cursor.ts";

/** A removal of one block takes 40 (array) to 70 bytes (map). */
const maxShapeBytes = 128;
/** The head and the 64 bits of an integer hash. */
const hashBytes = 9;

/**
 * Remembers the bytes of the last removal of one block. vLLM sends one such event per block, and those of one engine
 * are the same but for the hash: comparing four bytes at a time costs a fraction of reading the fields again.
 */
export class RemovalShape {
  /** The bytes from the start, and from behind the hash, four to a word; what is left of each in bytes. */
  readonly #words = new Int32Array(maxShapeBytes / 4 + 1);
  readonly #bytes = new Uint8Array(maxShapeBytes);
  #length = 0;
  #hashAt = 0;
  tier = 0;
  group = -1;
  knownMedium = true;

  /**
   * @param start where the event begins, which ends at the cursor
   * @param hashAt where its only hash begins
   * @returns false when it does not lend itself to this
   */
  remember(cursor: MsgpackCursor, start: number, hashAt: number): boolean {
    const length = cursor.at - start;
    const head = cursor.bytes[hashAt]!;
    if (length > maxShapeBytes || (head !== 0xcf && head !== 0xd3)) return false;
    const hashEnd = hashAt - start + hashBytes;
    this.#copy(cursor, start, 0, hashAt - start);
    this.#copy(cursor, start, hashEnd, length);
    this.#length = length;
    this.#hashAt = hashAt - start;
    return true;
  }

  /** @returns where the hash begins when the next event is one like the last, and the cursor is behind it; else -1 */
  match(cursor: MsgpackCursor): number {
    const { view, at } = cursor;
    const length = this.#length;
    if (length === 0 || at + length > cursor.end) return -1;
    const hashAt = this.#hashAt;
    if (!this.#equal(view, at, 0, hashAt)) return -1;
    const head = view.getUint8(at + hashAt);
    if (head !== 0xcf && head !== 0xd3) return -1;
    if (!this.#equal(view, at, hashAt + hashBytes, length)) return -1;
    cursor.at = at + length;
    return at + hashAt;
  }

  #copy({ view }: MsgpackCursor, base: number, from: number, to: number): void {
    let at = from;
    for (let word = (from + 3) >> 2; at + 4 <= to; at += 4, word++) this.#words[word] = view.getInt32(base + at, true);
    for (; at < to; at++) this.#bytes[at] = view.getUint8(base + at);
  }

  #equal(view: DataView, base: number, from: number, to: number): boolean {
    const words = this.#words;
    let at = from;
    for (let word = (from + 3) >> 2; at + 4 <= to; at += 4, word++) {
      if (view.getInt32(base + at, true) !== words[word]) return false;
    }
    const bytes = this.#bytes;
    for (; at < to; at++) if (view.getUint8(base + at) !== bytes[at]) return false;
    return true;
  }
}
