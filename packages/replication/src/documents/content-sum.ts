const encoder = new TextEncoder();

/** Number, size and digest of a set of items, kept up as items come and go. */
export interface ContentSum {
  readonly items: number;
  readonly byteLength: number;
  /** Two words; does not depend on the order in which items came. */
  readonly digest: readonly [number, number];
  /** @param sign -1 takes away what was added with 1 */
  add(clock: number, bytes: Uint8Array, sign: 1 | -1): void;
  addText(clock: number, text: string, sign: 1 | -1): void;
}

/** Each item is hashed with its clock; the digest is the sum of the hashes, word by word. */
export function createContentSum(): ContentSum {
  let items = 0;
  let byteLength = 0;
  let low = 0;
  let high = 0;
  const add = (clock: number, bytes: Uint8Array, sign: 1 | -1): void => {
    let first = Math.imul(clock, 0x9e3779b1) ^ bytes.length;
    let second = Math.imul(clock ^ (clock / 0x1_0000_0000), 0x85ebca77);
    const { length } = bytes;
    // Four bytes at a time: every byte of a journal is hashed when it comes, and again when it goes.
    for (let at = 0; at < length; at += 4) {
      const word = bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
      first = Math.imul(first ^ word, 0x9e3779b1);
      first ^= first >>> 15;
      second = Math.imul(second + word, 0xc2b2ae3d) ^ (second >>> 15);
    }
    items += sign;
    byteLength += sign * bytes.length;
    low = (low + sign * (finish(first) >>> 0)) >>> 0;
    high = (high + sign * (finish(second) >>> 0)) >>> 0;
  };
  return {
    get items() {
      return items;
    },
    get byteLength() {
      return byteLength;
    },
    get digest() {
      return [low, high] as const;
    },
    add,
    addText: (clock, text, sign) => add(clock, encoder.encode(text), sign),
  };
}

function finish(hash: number): number {
  const mixed = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  return Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35) ^ (mixed >>> 16);
}
