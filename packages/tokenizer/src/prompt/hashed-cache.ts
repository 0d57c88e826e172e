import type { Hash64 } from "@espalier/core";
import { RecencyMap } from "@espalier/core";

/** Estimated cost of an entry in addition to its value, in bytes: the entry itself and its place in the map. */
const entryBytes = 160;

/** Identifies a text: 64 bits of hash and its length. Both must match. */
export interface TextKey extends Hash64 {
  readonly length: number;
}

interface Entry<Value> extends TextKey {
  readonly value: Value;
  readonly sizeBytes: number;
}

/**
 * A cache bounded in bytes that evicts the least recently used entry first.
 *
 * @param maxBytes for values and entries together
 */
export function createHashedCache<Value>(maxBytes: number) {
  const entries = new RecencyMap<number, Entry<Value>>();
  let sizeBytes = 0;
  const drop = (index: number, entry: Entry<Value>): void => {
    entries.delete(index);
    sizeBytes -= entry.sizeBytes;
  };
  return {
    get({ low, high, length }: TextKey): Value | undefined {
      const index = indexOf(low, high);
      const entry = entries.get(index);
      if (entry?.low !== low || entry.high !== high || entry.length !== length) return undefined;
      entries.use(index);
      return entry.value;
    },
    /** @param valueBytes size of the value; one beyond the bound is not kept */
    set({ low, high, length }: TextKey, value: Value, valueBytes: number): void {
      const index = indexOf(low, high);
      const before = entries.get(index);
      const size = valueBytes + entryBytes;
      if (size > maxBytes) {
        if (before) drop(index, before);
        return;
      }
      // Replaces in place: each delete and insert leaves a hole, and all holes of a key form one chain.
      entries.set(index, { low, high, length, value, sizeBytes: size });
      sizeBytes += size - (before?.sizeBytes ?? 0);
      while (sizeBytes > maxBytes) drop(...entries.oldest()!);
    },
    get sizeBytes(): number {
      return sizeBytes;
    },
    get entries(): number {
      return entries.size;
    },
  };
}

/**
 * 53 bits of the hash, as many as a number represents exactly. Of two keys with the same bits one replaces the other.
 */
const indexOf = (low: number, high: number): number => (high & 0x1f_ffff) * 0x1_0000_0000 + low;
