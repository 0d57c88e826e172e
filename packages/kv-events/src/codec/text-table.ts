const lengths = 32;
const bytesOfCode = 128;
const encoder = new TextEncoder();

/** Finds which of a few short ASCII names some bytes are, four bytes at a time, without making a string of them. */
export class TextTable {
  readonly #candidates = new Int8Array(lengths * bytesOfCode).fill(-1);
  /** Of each name, its bytes one by one, or four to a word, the last word overlapping the one before. */
  readonly #spelled: readonly Int32Array[];

  /**
   * @param names no two of which share both their length and their first letter, so that one comparison decides
   * @throws RangeError when two do, or a name is empty or longer than 31 bytes
   */
  constructor(names: readonly string[]) {
    this.#spelled = names.map((name) => spell(encoder.encode(name)));
    for (const [place, name] of names.entries()) {
      if (name.length === 0 || name.length >= lengths) throw new RangeError(`"${name}" does not fit`);
      const slot = name.length * bytesOfCode + (name.charCodeAt(0) & 0x7f);
      const other = this.#candidates[slot]!;
      if (other >= 0) throw new RangeError(`"${name}" resembles "${names[other]}"`);
      this.#candidates[slot] = place;
    }
  }

  /** @returns the place of the name in the table; -1 when it is not there */
  find(view: DataView, start: number, end: number): number {
    const length = end - start;
    if (length === 0 || length >= lengths) return -1;
    const place = this.#candidates[length * bytesOfCode + (view.getUint8(start) & 0x7f)]!;
    if (place < 0) return -1;
    const name = this.#spelled[place]!;
    if (length < 4) {
      for (let at = 0; at < length; at++) if (view.getUint8(start + at) !== name[at]) return -1;
      return place;
    }
    let word = 0;
    for (let at = start; at < end - 4; at += 4) if (view.getInt32(at, true) !== name[word++]) return -1;
    return view.getInt32(end - 4, true) === name[word] ? place : -1;
  }
}

function spell(name: Uint8Array): Int32Array {
  if (name.length < 4) return Int32Array.from(name);
  const view = new DataView(name.buffer, name.byteOffset, name.length);
  const words: number[] = [];
  for (let at = 0; at < name.length - 4; at += 4) words.push(view.getInt32(at, true));
  words.push(view.getInt32(name.length - 4, true));
  return Int32Array.from(words);
}
