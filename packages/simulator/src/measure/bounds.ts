import type { SimRequest } from "../clients/workload.ts";
import type { RunRecord } from "../run/run-result.ts";
import { createInfiniteCache } from "./infinite-cache.ts";
import { createPooledCache } from "./pooled-cache.ts";

/** Sums up what no fleet could exceed, while a run goes on. */
export interface BoundsMeter {
  /** Of every request, in order of sending. */
  add(request: SimRequest): void;
  /** Shares of the prompt tokens so far; NaN without requests, and when a cache had more blocks than it can keep. */
  result(): RunRecord["bounds"];
}

/**
 * Upper bounds of the cached share, over requests in order of sending. `infiniteCache`: all engines share one cache that
 * never evicts; `infiniteCacheFollowup` is the same over the requests of a session but its first. `pooledLru`: they share
 * one cache of the size of all theirs together. Both hold an answer from the moment its request is sent, though an
 * engine has not yet made it then; that only raises the first bound, and keeps both independent of the fleet.
 *
 * @param options.capacityBlocks KV blocks of all engines together, at least 1
 * @throws RangeError when there is no capacity
 */
export function createBoundsMeter(options: {
  readonly capacityBlocks: number;
  /** Blocks that each of the caches keeps at most. */
  readonly maxBlocks?: number;
}): BoundsMeter {
  const infinite = createInfiniteCache(options);
  const pooled = createPooledCache(options);
  let promptTokens = 0;
  let followupTokens = 0;
  let infiniteTokens = 0;
  let infiniteFollowupTokens = 0;
  let pooledTokens = 0;
  return {
    add(request) {
      promptTokens += request.promptTokens;
      const found = infinite.add(request);
      infiniteTokens += found;
      if (request.turn > 0) {
        followupTokens += request.promptTokens;
        infiniteFollowupTokens += found;
      }
      pooledTokens += pooled.add(request);
    },
    result() {
      return {
        infiniteCache: infinite.isComplete ? infiniteTokens / promptTokens : Number.NaN,
        infiniteCacheFollowup: infinite.isComplete ? infiniteFollowupTokens / followupTokens : Number.NaN,
        pooledLru: pooled.isComplete ? pooledTokens / promptTokens : Number.NaN,
      };
    },
  };
}
