import type { Hash64 } from "../hash/hash64.ts";
import type { BlockDigests } from "./block-digests.ts";
import type { BlockTree } from "./block-tree.ts";
import { type ChainBuilder, maxRunBlocks, type PayloadRun } from "./chain-builder.ts";
import { nodeField } from "./node-table.ts";
import type { SpanHoldings } from "./span-holdings.ts";

export interface SpanChainOptions {
  readonly tree: BlockTree;
  readonly spans: SpanHoldings;
  readonly digests: BlockDigests;
  readonly tokensPerNode: number;
  readonly nodesPerBlock: number;
}

/** Words of a payload before the tokens: the digest of the engine's block, and whether it has a key. */
const digestWords = 2;
const headWords = digestWords + 1;

/**
 * For several engine blocks to a router block. The last node of a span has the chain hash of the router's block, made
 * from the tokens of all; the nodes before it have hashes of their own kind, which only tell them apart. A span with
 * keys cannot equal that of any prompt, so it is hashed like those as well.
 */
export function createSpanChainBuilder(options: SpanChainOptions): ChainBuilder {
  const { tree, spans, digests, tokensPerNode, nodesPerBlock } = options;
  const payloadWords = headWords + tokensPerNode;
  const payload = new Uint32Array(maxRunBlocks * payloadWords);
  const contents = new Uint32Array(maxRunBlocks * digestWords);
  const chain = new Uint32Array(2);
  const span = new Uint32Array(nodesPerBlock * tokensPerNode);
  let run: PayloadRun = { parent: 0, root: { low: 0, high: 0 }, payload, from: 0, blocks: 0 };
  let base: Hash64 = run.root;

  const hashOf = (node: number): Hash64 => {
    const at = node * tree.table.stride + nodeField.chain;
    return { low: tree.table.words[at]!, high: tree.table.words[at + 1]! };
  };
  return {
    payloadWords,
    payload,
    chain,
    read({ tokens, start, blocks, keys, firstKey }) {
      digests.contents(tokens, start, start + blocks * tokensPerNode, tokensPerNode, contents);
      for (let block = 0; block < blocks; block++) {
        const key = keys?.[firstKey + block];
        if (key !== undefined) digests.keyed(contents, block, key);
        const at = block * payloadWords;
        payload[at] = contents[block * digestWords]!;
        payload[at + 1] = contents[block * digestWords + 1]!;
        payload[at + digestWords] = key === undefined ? 0 : 1;
        const from = start + block * tokensPerNode;
        for (let token = 0; token < tokensPerNode; token++) payload[at + headWords + token] = tokens[from + token]!;
      }
    },
    begin(next) {
      run = next;
    },
    chainAt(block, parent) {
      const at = run.from + block * payloadWords;
      const place = spans.placeBelow(parent);
      base = place > 0 ? spans.baseOf(parent) : parent === 0 ? run.root : hashOf(parent);
      const keyed = run.payload[at + digestWords] === 1 || (place > 0 && spans.isKeyed(parent));
      if (place < nodesPerBlock - 1 || keyed) {
        digests.mix(place === 0 ? base : hashOf(parent), run.payload, at, 1, chain);
        return 0;
      }
      spans.copyTokens(parent, span, span.length - tokensPerNode);
      span.set(run.payload.subarray(at + headWords, at + payloadWords), span.length - tokensPerNode);
      digests.contents(span, 0, span.length, span.length, contents);
      digests.mix(base, contents, 0, 1, chain);
      return 0;
    },
    placed(block, node) {
      const start = run.from + block * payloadWords;
      const keyed = run.payload[start + digestWords] === 1;
      spans.describe(node, { tokens: run.payload, start: start + headWords, base, keyed });
    },
  };
}
