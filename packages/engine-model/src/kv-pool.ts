import { type BlockChanges, type BlockRequest, blockChange, createChangeLog } from "./block-engine.ts";
import type { KvHold, RemoteSource, TokenRange } from "./kv-pull.ts";
import { createOffloadTier } from "./offload-tier.ts";
import { createPullSource, type PullLimits, type PullStats } from "./pull-source.ts";
import { maxCpuBlocks } from "./validation.ts";

/** Size and link of a pool. `pairBytesPerSecond` is the link of one engine, `bytesPerSecond` that of the pool. */
export interface KvPoolSettings extends Pick<PullLimits, "latencyMs" | "bytesPerSecond" | "pairBytesPerSecond"> {
  readonly blocks: number;
  /** Blocks that are found and read together, as LMCache's chunks of 256 tokens; 1 by default. */
  readonly chunkBlocks?: number;
}

/** Memory outside the engines that all of them write to and read from. It runs on engine time: the caller advances it. */
export interface KvPool {
  /** Copies what an engine has stored in its KV memory. */
  write(changes: BlockChanges): void;
  /**
   * The pool as one request of an engine sees it.
   *
   * @param engine its name: reads of one engine share its link
   */
  sourceFor(request: BlockRequest, engine: string): RemoteSource;
  /** Handles everything up to `timeMs`. Engines are called from within. */
  advanceTo(timeMs: number): void;
  nextEventMs(): number | undefined;
  /** Blocks in it. */
  blocks(): number;
  stats(): PullStats;
}

interface KvPoolOptions extends KvPoolSettings {
  readonly blockSize: number;
  readonly bytesPerToken: number;
  /** Time in which an engine computes a token: what is not read faster than that is computed. */
  readonly computeMsPerToken: number;
  /** Receives what was copied to the pool, and what had to leave it. */
  readonly onChanges: (changes: BlockChanges) => void;
  /** `nextEventMs` may have changed. It must not call back. */
  readonly changed: () => void;
}

/**
 * A pool of KV blocks as Mooncake Store and LMCache's remote backends are, with LRU eviction. Engines write every block
 * through, which costs them nothing, because writes overlap with steps. They look a prompt up from its beginning, whatever
 * they have of it, and in whole chunks. Reads share the link of the pool and that of the
 * engine, and go to its CPU memory. Blocks that are read are not evicted meanwhile.
 *
 * @throws RangeError when a setting makes no sense
 */
export function createKvPool(options: KvPoolOptions): KvPool {
  const { blocks, chunkBlocks = 1, blockSize, computeMsPerToken, onChanges, changed, ...limits } = options;
  if (!(Number.isSafeInteger(blocks) && blocks >= 1 && blocks <= maxCpuBlocks)) {
    throw new RangeError(`a pool of ${blocks} blocks is not between 1 and ${maxCpuBlocks}`);
  }
  if (!(Number.isSafeInteger(chunkBlocks) && chunkBlocks >= 1)) {
    throw new RangeError(`chunks of ${chunkBlocks} blocks are not a whole number > 0`);
  }
  const log = createChangeLog({ copied: blockChange.pooled, left: blockChange.dropped });
  const memory = createOffloadTier({ capacity: blocks, blockSize, loadMsPerBlock: 0, log });
  const readMsPerToken = (limits.bytesPerToken / limits.pairBytesPerSecond) * 1_000;
  const hold = (request: BlockRequest, { fromTokens, toTokens }: TokenRange): KvHold | undefined => {
    const { promptTokens, outputTokens, chain: hashes, adapter } = request;
    const chain = { promptTokens, totalTokens: promptTokens + outputTokens, hashes, adapter, hashBlocks() {} };
    const reached = memory.reach(chain, 0, toTokens);
    const found = memory.hold(chain, fromTokens, reached - (reached % (chunkBlocks * blockSize)));
    const tokens = (found?.toTokens ?? fromTokens) - fromTokens;
    if (limits.latencyMs + tokens * readMsPerToken < tokens * computeMsPerToken) return found;
    found?.release();
    return undefined;
  };
  const source = createPullSource<BlockRequest>({ engine: () => ({ hold }), limits, changed });
  return {
    write({ runs, kinds, ends, words }) {
      for (let run = 0, from = 0; run < runs; run++) {
        const to = ends[run]!;
        if (kinds[run] === blockChange.stored) memory.keep(words.subarray(2 * from, 2 * to));
        from = to;
      }
      const changes = log.take();
      if (changes) onChanges(changes);
    },
    sourceFor: source.sourceFor,
    advanceTo: source.advanceTo,
    nextEventMs: source.nextEventMs,
    blocks: memory.blocks,
    stats: source.stats,
  };
}
