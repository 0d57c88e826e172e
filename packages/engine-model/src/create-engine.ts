import { checkParameters } from "./check-parameters.ts";
import { createLoop } from "./create-loop.ts";
import { createTokenForm, createTokenLog } from "./token-form.ts";
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
  const log = createTokenLog(parameters, observer);
  return createLoop(parameters, createTokenForm({ parameters, hashSeed, observer, log }), log);
}
