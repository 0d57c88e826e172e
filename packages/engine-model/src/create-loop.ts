import { BlockCache } from "./block-cache.ts";
import type { CacheLog } from "./cache-log.ts";
import type { EngineForm } from "./engine-form.ts";
import { EngineLoop } from "./engine-loop.ts";
import { createOffloadTier } from "./offload-tier.ts";
import { RadixCache } from "./radix-cache.ts";
import type { RequestChain } from "./sequence.ts";
import type { Engine, EngineParameters } from "./types.ts";

/** An engine for one form of requests. */
export interface LoopEngine<Id, Request> extends Omit<Engine, "submit" | "abort" | "release" | "cachedTokens"> {
  submit(request: Request, timeMs: number): void;
  abort(requestId: Id, timeMs: number): void;
  release(requestId: Id, timeMs: number): boolean;
  cachedTokens(request: Request, timeMs: number): number;
}

/** The loop of an engine with the cache of its flavour, which tells `log` of its blocks. */
export function createLoop<Id, Request extends { readonly id: Id }, Chain extends RequestChain<Id>>(
  parameters: EngineParameters,
  form: EngineForm<Id, Request, Chain>,
  log: CacheLog<NoInfer<Chain>>,
): LoopEngine<Id, Request> {
  const { flavour, blockCount, blockSize, prefixCaching, freeOrder = "uncached-first" } = parameters;
  const { cpuBlocks = 0, cpuLoadMsPerBlock = 0 } = parameters;
  const offload =
    cpuBlocks > 0 && prefixCaching
      ? createOffloadTier({ capacity: cpuBlocks, blockSize, loadMsPerBlock: cpuLoadMsPerBlock, log })
      : undefined;
  if (flavour === "sglang") {
    const cache = new RadixCache({ blockCount, blockSize, prefixCaching, log, offload });
    return new EngineLoop({ parameters, form, cache, offload });
  }
  const cache = new BlockCache({ blockCount, blockSize, prefixCaching, freeOrder, log, offload });
  return new EngineLoop({ parameters, form, cache, offload });
}
