import { finishLane, firstLane, secondLane } from "../word-lanes.ts";

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
    // Four bytes at a time: every byte of a journal is hashed when it comes, and again when it goes.
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const whole = bytes.length - (bytes.length % 4);
    for (let at = 0; at < whole; at += 4) {
      const word = view.getInt32(at, true);
      first = firstLane(first, word);
      second = secondLane(second, word);
    }
    if (whole < bytes.length) {
      const word = bytes[whole]! | (bytes[whole + 1]! << 8) | (bytes[whole + 2]! << 16);
      first = firstLane(first, word);
      second = secondLane(second, word);
    }
    items += sign;
    byteLength += sign * bytes.length;
    low = (low + sign * finishLane(first)) >>> 0;
    high = (high + sign * finishLane(second)) >>> 0;
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
