import { createBlockForm } from "./block-form.ts";
import type { BlockEngine, BlockEngineObserver } from "./block-types.ts";
import { silentLog } from "./cache-log.ts";
import { createChangeLog } from "./change-log.ts";
import { checkParameters } from "./check-parameters.ts";
import { createLoop } from "./create-loop.ts";
import type { EngineParameters } from "./types.ts";

export interface BlockEngineOptions {
  readonly parameters: EngineParameters;
  readonly observer: BlockEngineObserver;
  /** Tokens of an output that are told of together, at most; 16 by default. */
  readonly progressTokens?: number;
}

/**
 * One LLM engine in virtual time, for requests without tokens. It schedules, times, caches and evicts with the code of
 * `createEngine`, and the same calls give the same results.
 *
 * @throws RangeError when a parameter makes no sense
 */
export function createBlockEngine(options: BlockEngineOptions): BlockEngine {
  const { parameters, observer, progressTokens = 16 } = options;
  checkParameters(parameters);
  if (!(Number.isSafeInteger(progressTokens) && progressTokens >= 1)) {
    throw new RangeError(`progressTokens ${progressTokens} is not a whole number > 0`);
  }
  const log = observer.blocks ? createChangeLog() : { ...silentLog, isEmpty: () => true, take: () => undefined };
  return createLoop(parameters, createBlockForm({ parameters, observer, log, progressTokens }), log);
}
