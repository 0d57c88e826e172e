import type { Sequence } from "./sequence.ts";
import { isDecode } from "./sequence.ts";
import type { EngineParameters } from "./types.ts";

/** What one step computes. */
export interface StepWork {
  prefillTokens: number;
  /** Sum over those tokens of the context that each one attends to, itself included. */
  attentionPairs: number;
  /** Sequences that decode. */
  decodes: number;
  /** Tokens of context of those, the ones they compute included. */
  decodeContext: number;
  /** LoRA adapters that are loaded before it. */
  adapterLoads: number;
}

export function createStepWork(): StepWork {
  return { prefillTokens: 0, attentionPairs: 0, decodes: 0, decodeContext: 0, adapterLoads: 0 };
}

/** Adds up the planned step. */
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

/** How long a step takes, in milliseconds; the formula stands at `EngineParameters`. */
export function stepDurationMs(work: StepWork, parameters: EngineParameters): number {
  return (
    parameters.stepBaseMs +
    parameters.prefillMsPerToken * work.prefillTokens +
    parameters.attentionMsPerTokenPair * work.attentionPairs +
    parameters.decodeMsPerSequence * work.decodes +
    parameters.decodeMsPerContextToken * work.decodeContext +
    (parameters.adapterLoadMs ?? 0) * work.adapterLoads
  );
}

/**
 * When the last of so many steps ends that decode the same sequences, after one that ends at `endMs` and does `work`. The
 * sum is taken step by step: any other way of adding would round differently.
 */
export function endOfDecodesMs(endMs: number, steps: number, work: StepWork, parameters: EngineParameters): number {
  const next = { ...work };
  let lastMs = endMs;
  for (let step = 0; step < steps; step++) {
    next.decodeContext += next.decodes;
    lastMs += stepDurationMs(next, parameters);
  }
  return lastMs;
}
