/** Most ranks, cache groups and the like in the keys of one store. */
export const maxKeyPrefixes = 4_096;

const hashDigits = 16;
const newline = "\n";

/** One key of a list: the engines' hash of a block, as two signed words, low first. */
export type OnKey = (low: number, high: number) => void;

/** What the keys of a list are of. */
export interface ListedKeys {
  /** Keys of a complete block. */
  readonly perBlock: number;
  /** Why the keys cannot be used; undefined if they can. */
  readonly unusable: string | undefined;
}

/**
 * Reads the keys of vLLM's MooncakeStoreConnector (0.32) in a list of keys, one a line:
 * `MODEL@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@HASH`, where HASH is the engine's hash in hexadecimal. A block has a key for
 * every rank and cache group. Keys of other forms are skipped.
 *
 * @param keyPrefix only keys that begin with it are read
 * @param pause awaited now and then, so that long lists do not hold up the event loop
 */
export async function readMooncakeKeys(
  list: string,
  keyPrefix: string,
  onKey: OnKey,
  pause: () => Promise<void> | undefined,
): Promise<ListedKeys> {
  /** Of what comes before a hash: whether it is of the form above. */
  const prefixes = new Map<string, boolean>();
  const models = new Set<string>();
  let perBlock = 0;
  let lines = 0;
  for (let start = 0, end: number; start < list.length; start = end + 1) {
    end = list.indexOf(newline, start);
    if (end < 0) end = list.length;
    const at = list.lastIndexOf("@", end);
    if (at <= start || end - at - 1 < hashDigits || !list.startsWith(keyPrefix, start)) continue;
    const prefix = list.slice(start, at);
    let isOurs = prefixes.get(prefix);
    if (isOurs === undefined) {
      const rank = prefix.lastIndexOf("@tp_rank:");
      isOurs = rank > 0;
      if (isOurs) {
        models.add(prefix.slice(0, rank));
        perBlock++;
      }
      prefixes.set(prefix, isOurs);
      if (prefixes.size > maxKeyPrefixes) return { perBlock, unusable: `keys of more than ${maxKeyPrefixes} ranks` };
    }
    const [high, low] = [wordAt(list, end - hashDigits), wordAt(list, end - hashDigits / 2)];
    if (isOurs && !Number.isNaN(low + high)) onKey(low | 0, high | 0);
    if (++lines % 4_096 === 0) await pause();
  }
  const names = [...models].slice(0, 2).join(", ");
  return { perBlock, unusable: models.size > 1 ? `keys of several models (${names}): set key-prefix` : undefined };
}

const wordAt = (text: string, from: number): number => Number(`0x${text.slice(from, from + hashDigits / 2)}`);

/** The key of a block in a store of one model, for an engine of one rank: the hash as in its events, in 32 bytes. */
export function mooncakeKey(model: string, hash: bigint): string {
  const digits = BigInt.asUintN(64, hash).toString(16).padStart(hashDigits, "0");
  return `${model}@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@${digits.repeat(4)}`;
}
