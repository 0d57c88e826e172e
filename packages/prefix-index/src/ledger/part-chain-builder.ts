import type { BlockDigests } from "./block-digests.ts";
import type { BlockTree } from "./block-tree.ts";
import { type ChainBuilder, maxRunBlocks } from "./chain-builder.ts";
import { nodeField } from "./node-table.ts";

export interface PartChainOptions {
  readonly tree: BlockTree;
  readonly digests: BlockDigests;
  /** Tokens of a router block. */
  readonly blockSize: number;
  readonly partsPerBlock: number;
}

/** For engine blocks that are one or more router blocks: the payload is those blocks' digests, hashed in one go. */
export function createPartChainBuilder(options: PartChainOptions): ChainBuilder {
  const { tree, digests, blockSize, partsPerBlock } = options;
  const words = 2 * partsPerBlock;
  const payload = new Uint32Array(maxRunBlocks * words);
  const chain = new Uint32Array(maxRunBlocks * words);
  const head = { low: 0, high: 0 };
  return {
    payloadWords: words,
    payload,
    chain,
    read({ tokens, start, blocks, keys, firstKey }) {
      digests.contents(tokens, start, start + blocks * partsPerBlock * blockSize, blockSize, payload);
      if (keys === undefined) return;
      for (let block = 0; block < blocks; block++) {
        const key = keys[firstKey + block];
        if (key === undefined) continue;
        for (let part = 0; part < partsPerBlock; part++) digests.keyed(payload, block * partsPerBlock + part, key);
      }
    },
    begin({ parent, root, payload: contents, from, blocks }) {
      const at = parent * tree.table.stride + nodeField.chain;
      head.low = parent === 0 ? root.low : tree.table.words[at]!;
      head.high = parent === 0 ? root.high : tree.table.words[at + 1]!;
      digests.mix(head, contents, from, blocks * partsPerBlock, chain);
    },
    chainAt: (block) => block * words,
    placed() {},
  };
}
