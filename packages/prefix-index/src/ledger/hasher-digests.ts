import { addContentKey } from "../hash/add-content-key.ts";
import type { BlockHasher } from "../hash/block-hasher.ts";
import type { Hash64 } from "../hash/hash64.ts";
import type { BlockDigests } from "./block-digests.ts";

/** The digests of blocks by themselves do not depend on what is before them. */
const noParent: Hash64 = { low: 0, high: 0 };

export interface HasherDigestsOptions {
  readonly hasher: BlockHasher;
  /** The root of the chains of an adapter and a cache salt; both undefined for most. */
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
