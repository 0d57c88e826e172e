import { BlockCache } from "./block-cache.ts";
import { EngineLoop } from "./engine-loop.ts";
import { createEventLog, silentEventLog } from "./event-log.ts";
import { RadixCache } from "./radix-cache.ts";
import type { Engine, EngineObserver, EngineParameters } from "./types.ts";

export interface EngineOptions {
  readonly parameters: EngineParameters;
  /** Makes this engine's block hashes its own: the same content has different hashes under different seeds. */
  readonly hashSeed: number;
  /** Whom to tell. An observer without `events` spares the engine the work of making them. */
  readonly observer: EngineObserver;
}

/**
 * One LLM engine in virtual time. The same calls give the same results.
 *
 * @throws RangeError when a parameter makes no sense
 */
export function createEngine({ parameters, hashSeed, observer }: EngineOptions): Engine {
  checkParameters(parameters);
  const { flavour, blockCount, blockSize, prefixCaching, freeOrder = "uncached-first" } = parameters;
  const events = observer.events ? createEventLog(flavour) : silentEventLog;
  if (flavour === "sglang") {
    const cache = new RadixCache({ blockCount, blockSize, prefixCaching, events });
    return new EngineLoop({ parameters, hashSeed, observer, cache, events });
  }
  const cache = new BlockCache({ blockCount, blockSize, prefixCaching, freeOrder, events });
  return new EngineLoop({ parameters, hashSeed, observer, cache, events });
}

function checkParameters(parameters: EngineParameters): void {
  for (const name of ["blockSize", "blockCount", "maxBatchedTokens", "maxRunning", "maxModelLength"] as const) {
    const value = parameters[name];
    if (!(Number.isSafeInteger(value) && value >= 1))
      throw new RangeError(`${name} ${value} is not a whole number > 0`);
  }
  for (const name of [
    "stepBaseMs",
    "prefillMsPerToken",
    "attentionMsPerTokenPair",
    "decodeMsPerSequence",
    "decodeMsPerContextToken",
  ] as const) {
    const value = parameters[name];
    if (!(Number.isFinite(value) && value >= 0)) throw new RangeError(`${name} ${value} is not a duration`);
  }
  // A step without duration would let time stand still.
  if (parameters.stepBaseMs === 0) throw new RangeError("stepBaseMs must be above 0");
}
