import type { Sequence } from "./sequence.ts";
import { isDecode } from "./sequence.ts";
import type { EngineParameters } from "./types.ts";

/** The work of one step. */
export interface StepWork {
  prefillTokens: number;
  /** Sum over those tokens of the context that each one attends to, itself included. */
  attentionPairs: number;
  /** Sequences that decode. */
  decodes: number;
  /** Context tokens of those sequences, including the ones they compute. */
  decodeContext: number;
  /** LoRA adapters to load before the step. */
  adapterLoads: number;
}

export function createStepWork(): StepWork {
  return { prefillTokens: 0, attentionPairs: 0, decodes: 0, decodeContext: 0, adapterLoads: 0 };
}

/** Sums the planned step. */
export function measureStep(sequences: readonly Sequence<unknown>[], work: StepWork): void {
  let prefillTokens = 0;
  let attentionPairs = 0;
  let decodes = 0;
  let decodeContext = 0;
  for (let at = 0; at < sequences.length; at++) {
    const sequence = sequences[at]!;
    const tokens = sequence.stepTokens;
    if (tokens === 0) continue;
    const computed = sequence.computedTokens;
    if (isDecode(sequence)) {
      decodes++;
      decodeContext += computed + 1;
    } else {
      prefillTokens += tokens;
      attentionPairs += tokens * computed + (tokens * (tokens + 1)) / 2;
    }
  }
  work.prefillTokens = prefillTokens;
  work.attentionPairs = attentionPairs;
  work.decodes = decodes;
  work.decodeContext = decodeContext;
}

/** The durations that make up a step. */
export type StepTimes = Pick<
  EngineParameters,
  | "stepBaseMs"
  | "prefillMsPerToken"
  | "attentionMsPerTokenPair"
  | "decodeMsPerSequence"
  | "decodeMsPerContextToken"
  | "adapterLoadMs"
>;

/**
 * The times of an engine whose steps all take `factor` times as long.
 *
 * @throws RangeError when the factor is not above 0
 */
export function slowedSteps(times: StepTimes, factor: number): StepTimes {
  if (!(Number.isFinite(factor) && factor > 0))
    throw new RangeError(`${factor} is not a valid factor of a step's duration`);
  return {
    stepBaseMs: times.stepBaseMs * factor,
    prefillMsPerToken: times.prefillMsPerToken * factor,
    attentionMsPerTokenPair: times.attentionMsPerTokenPair * factor,
    decodeMsPerSequence: times.decodeMsPerSequence * factor,
    decodeMsPerContextToken: times.decodeMsPerContextToken * factor,
    ...(times.adapterLoadMs === undefined ? {} : { adapterLoadMs: times.adapterLoadMs * factor }),
  };
}

/** Duration of a step in milliseconds, by the formula in `EngineParameters`. */
export function stepDurationMs(work: StepWork, times: StepTimes): number {
  return (
    times.stepBaseMs +
    times.prefillMsPerToken * work.prefillTokens +
    times.attentionMsPerTokenPair * work.attentionPairs +
    times.decodeMsPerSequence * work.decodes +
    times.decodeMsPerContextToken * work.decodeContext +
    (times.adapterLoadMs ?? 0) * work.adapterLoads
  );
}

/**
 * When the last of `steps` steps ends. They decode the same sequences, after a step that ends at `endMs` and does
 * `work`. The sum is taken step by step: any other order would round differently.
 */
export function endOfDecodesMs(endMs: number, steps: number, work: StepWork, times: StepTimes): number {
  const next = { ...work };
  let lastMs = endMs;
  for (let step = 0; step < steps; step++) {
    next.decodeContext += next.decodes;
    lastMs += stepDurationMs(next, times);
  }
  return lastMs;
}
