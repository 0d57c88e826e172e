import type { BlockHasher } from "./block-hasher.ts";
import { hashKernel, kernelMemory } from "./hash-kernel.ts";
import { type Hash64, hashOf } from "./text-hasher.ts";

/**
 * The hashing that a ledger needs. Hashes are two words each, low word first.
 */
export interface BlockDigests {
  /** Writes the digests of the full blocks of `tokens` from `start` to `end` to the beginning of `out`. */
  contents(tokens: Uint32Array, start: number, end: number, blockSize: number, out: Uint32Array): void;
  /**
   * Mixes `count` digests, the first at word `from`, into the chain that ends in `parent`; writes the hashes to `out`.
   */
  mix(parent: Hash64, contents: Uint32Array, from: number, count: number, out: Uint32Array): void;
  /** Mixes an extra key into the digest of block `block`. */
  keyed(contents: Uint32Array, block: number, key: string): void;
  /** The root of the chains of an adapter and a cache salt. */
  root(adapter: string | undefined, cacheSalt: string | undefined): Hash64;
}

/** A block's own digest does not depend on the blocks before it. */
const noParent: Hash64 = { low: 0, high: 0 };

export interface HasherDigestsOptions {
  readonly hasher: BlockHasher;
  /** The root of the chains of an adapter and a cache salt; usually both are undefined. */
  readonly root: (adapter: string | undefined, cacheSalt: string | undefined) => Hash64;
}

/** The digests of the router's own hashing. */
export function createHasherDigests({ hasher, root }: HasherDigestsOptions): BlockDigests {
  let unused = new Uint32Array(0);
  return {
    contents(tokens, start, end, blockSize, out) {
      if (unused.length < out.length) unused = new Uint32Array(out.length);
      const chain = unused.length === out.length ? unused : unused.subarray(0, out.length);
      hasher.hashTokens({ tokens, start, end, blockSize, parent: noParent, chain, contents: out });
    },
    mix(parent, contents, from, count, out) {
      const run = from === 0 ? contents : contents.subarray(from, from + 2 * count);
      hasher.mixContents({ parent, contents: run, blocks: count, chain: out });
    },
    keyed: addContentKey,
    root,
  };
}

const { contentsAt, chainAt, valueAt } = kernelMemory;

/**
 * Mixes an extra key into the digest of one block, in place: for example the identifier of an image whose placeholder
 * tokens the block contains. Every key changes the digest, including the empty one; the order of several keys counts.
 *
 * @param contents digests, two words each, low word first
 * @param block index of the digest to change, from 0
 * @throws RangeError if `contents` has no such block
 */
export function addContentKey(contents: Uint32Array, block: number, key: string): void {
  if (!Number.isInteger(block) || block < 0 || 2 * block + 1 >= contents.length) {
    throw new RangeError(`no block ${block} in ${contents.length} words`);
  }
  const { low, high } = hashOf(key);
  const { words, mixContents } = hashKernel();
  words[valueAt / 4] = contents[2 * block]!;
  words[valueAt / 4 + 1] = contents[2 * block + 1]!;
  words[contentsAt / 4] = low;
  words[contentsAt / 4 + 1] = high;
  mixContents(1);
  contents[2 * block] = words[chainAt / 4]!;
  contents[2 * block + 1] = words[chainAt / 4 + 1]!;
}
