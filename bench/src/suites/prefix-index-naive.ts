import type { FactKind } from "@espalier/prefix-index";

/** The measured part of an index. Chains are hashes of two words each, low word first. */
export interface MeasuredIndex {
  store(target: number, words: Uint32Array, from: number, to: number): void;
  remove(target: number, words: Uint32Array, from: number, to: number): void;
  /** Stores blocks in another tier than the GPU, or makes them resume points. Absent: there are neither. */
  storeAs?(kind: FactKind, target: number, words: Uint32Array, from: number, to: number): void;
  /** Finds how many leading blocks each target has. Returns how many targets have any. */
  match(words: Uint32Array, blockCount: number): number;
  /** The depth of a target in the last `match`. */
  depthOf(target: number): number;
  /** Undefined when unknown. */
  readonly byteLength: number | undefined;
}

/** The simplest index: a set of targets for every hash, and a walk over the whole chain. */
export function createNaiveIndex(): MeasuredIndex {
  const holders = new Map<bigint, Set<number>>();
  let depths = new Map<number, number>();
  const keysOf = (words: Uint32Array): BigUint64Array =>
    new BigUint64Array(words.buffer, words.byteOffset, words.length >> 1);
  return {
    store(target, words, from, to) {
      const keys = keysOf(words);
      for (let block = from; block < to; block++) {
        const set = holders.get(keys[block]!);
        if (set) set.add(target);
        else holders.set(keys[block]!, new Set([target]));
      }
    },
    remove(target, words, from, to) {
      const keys = keysOf(words);
      for (let block = from; block < to; block++) {
        const set = holders.get(keys[block]!);
        if (set?.delete(target) && set.size === 0) holders.delete(keys[block]!);
      }
    },
    match(words, blockCount) {
      const keys = keysOf(words);
      depths = new Map();
      let alive = [...(holders.get(keys[0]!) ?? [])];
      for (let block = 0; alive.length > 0; block++) {
        const set = block < blockCount ? holders.get(keys[block]!) : undefined;
        const staying: number[] = [];
        for (const target of alive) {
          if (set?.has(target)) staying.push(target);
          else depths.set(target, block);
        }
        alive = staying;
      }
      return depths.size;
    },
    depthOf: (target) => depths.get(target) ?? 0,
    byteLength: undefined,
  };
}
