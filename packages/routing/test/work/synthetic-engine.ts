import type { Random } from "@espalier/core";
import type { PrefillRates, PrefillSample, PromptPart, RatedTarget } from "../../src/work/prefill-rates.ts";

/** What an engine needs for a first token, in milliseconds. */
export interface EngineTruth {
  readonly fixedMs: number;
  readonly msPerToken: number;
  readonly msPerTokenPair: number;
}

export const usualEngine: EngineTruth = { fixedMs: 12, msPerToken: 0.06, msPerTokenPair: 1.5e-6 };

export const targetOf = (index: number): RatedTarget => ({ index, key: `engine-${index}` });

function computingMs(truth: EngineTruth, { uncachedTokens, matchedTokens }: PromptPart): number {
  const pairs = uncachedTokens * (matchedTokens + uncachedTokens / 2);
  return truth.msPerToken * uncachedTokens + truth.msPerTokenPair * pairs;
}

/** Prompts of conversations: from a few hundred to some ten thousand tokens, of which much is in the cache. */
export function anyPrompt(random: Random): PromptPart {
  const tokens = Math.round(200 * 100 ** random.float());
  const matchedTokens = random.integer(3) === 0 ? 0 : Math.round(tokens * random.float());
  return { uncachedTokens: Math.max(1, tokens - matchedTokens), matchedTokens };
}

/** How long a prompt takes; up to 15 % off in either direction. */
export function measured(truth: EngineTruth, part: PromptPart, random: Random): PrefillSample {
  const elapsedMs = (truth.fixedMs + computingMs(truth, part)) * (0.85 + 0.3 * random.float());
  return { ...part, elapsedMs, hasWaited: false };
}

/** Has a target compute so many prompts. */
export function teach(
  rates: PrefillRates,
  count: number,
  { target = targetOf(0), truth = usualEngine, random }: { target?: RatedTarget; truth?: EngineTruth; random: Random },
): void {
  for (let at = 0; at < count; at++) rates.observe(target, measured(truth, anyPrompt(random), random));
}

/** The mean of how far what is expected of prompts is off, as a share of the truth. */
export function errorOf(
  rates: PrefillRates,
  { target = targetOf(0), truth = usualEngine, random }: { target?: RatedTarget; truth?: EngineTruth; random: Random },
): number {
  let sum = 0;
  const prompts = 500;
  for (let at = 0; at < prompts; at++) {
    // Short prompts take what a step takes, and nothing hangs on them.
    const part = { ...anyPrompt(random), uncachedTokens: 500 + random.integer(20_000) };
    sum += Math.abs(rates.workMs(target, part) / computingMs(truth, part) - 1);
  }
  return sum / prompts;
}
