import type { BlockDigests, Hash64 } from "@espalier/core";
import type { BlockTree } from "./block-tree.ts";
import type { SpanHoldings } from "./holdings.ts";
import { nodeField } from "./node-table.ts";

/** The position of a run of engine blocks in an event, and what else identifies its blocks. */
export interface BlockRun {
  readonly tokens: Uint32Array;
  readonly start: number;
  readonly blocks: number;
  readonly keys: readonly (string | undefined)[] | undefined;
  /** Index of the first block's key. */
  readonly firstKey: number;
}

/** Consecutive blocks below a node, given by payload. */
interface PayloadRun {
  /** The node; 0 at the beginning of a prompt. */
  readonly parent: number;
  /** Root of chains without a parent. */
  readonly root: Hash64;
  readonly payload: Uint32Array;
  /** Word of the first block's payload. */
  readonly from: number;
  readonly blocks: number;
}

/** Longest run processed at a time, in engine blocks. */
export const maxRunBlocks = 256;

/** Words of a payload before the tokens: the digest of the engine's block, and whether it has a key. */
const digestWords = 2;
const headWords = digestWords + 1;

/**
 * Turns tokens into payloads, and payloads below a node into the chain hashes of new nodes. A payload identifies an
 * engine's block by its content alone: this is all that is known while its parent is unknown.
 */
export interface ChainBuilder {
  /** Words per payload. */
  readonly payloadWords: number;
  /** The payloads of the last run read, in sequence. */
  readonly payload: Uint32Array;
  /** Chain hashes; see `chainAt`. */
  readonly chain: Uint32Array;
  read(run: BlockRun): void;
  begin(run: PayloadRun): void;
  /**
   * The word where the chain hashes of the run's block begin, for a block with this parent. Call for blocks in order.
   */
  chainAt(block: number, parent: number): number;
  /** The block now has a node, new or existing. */
  placed(block: number, node: number): void;
}

interface PartChainOptions {
  readonly tree: BlockTree;
  readonly digests: BlockDigests;
  /** Tokens per router block. */
  readonly blockSize: number;
  readonly partsPerBlock: number;
}

/** For engine blocks of one or more router blocks: the payload is those blocks' digests, hashed in one call. */
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

interface SpanChainOptions {
  readonly tree: BlockTree;
  readonly spans: SpanHoldings;
  readonly digests: BlockDigests;
  readonly tokensPerNode: number;
  readonly nodesPerBlock: number;
}

/**
 * For several engine blocks per router block. The last node of a span has the chain hash of the router's block, made
 * from the tokens of all. The nodes before it have hashes of a separate kind, which only distinguish them. A span with
 * keys cannot equal that of any prompt, so it is hashed like those.
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
