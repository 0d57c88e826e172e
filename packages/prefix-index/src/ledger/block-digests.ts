import type { Hash64 } from "../hash/hash64.ts";

/**
 * The hashing that a ledger needs. Hashes are two words each, low word first.
 */
export interface BlockDigests {
  /** Writes the digests of the full blocks of `tokens` from `start` to `end` to the beginning of `out`. */
  contents(tokens: Uint32Array, start: number, end: number, blockSize: number, out: Uint32Array): void;
  /** Mixes `count` digests, the first at word `from`, into the chain that ends in `parent`; `out` gets the hashes. */
  mix(parent: Hash64, contents: Uint32Array, from: number, count: number, out: Uint32Array): void;
  /** Mixes what else identifies a block into the digest of block `block`. */
  keyed(contents: Uint32Array, block: number, key: string): void;
  /** Where the chains of an adapter and a cache salt begin. */
  root(adapter: string | undefined, cacheSalt: string | undefined): Hash64;
}
