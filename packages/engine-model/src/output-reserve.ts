import type { Sequence } from "./sequence.ts";

/** How much room SGLang leaves for the output of what runs before it admits more. */
export interface OutputReserve {
  /** Tokens that the running sequences are expected to generate yet. */
  expected(running: readonly Sequence<unknown>[]): number;
  /** A step decoded without trouble: expect less. */
  decoded(): void;
  /** Sequences lost their place for want of room: expect what the others show. */
  preempted(running: readonly Sequence<unknown>[]): void;
  /** Nothing runs: start over. */
  rested(): void;
}

/** `SGLANG_INIT_NEW_TOKEN_RATIO`, `SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR`, `SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS`. */
const FIRST_SHARE = 0.7;
const LEAST_SHARE = FIRST_SHARE * 0.14;
const SHARE_STEP = (FIRST_SHARE - LEAST_SHARE) / 600;
/** `SGLANG_RETRACT_DECODE_STEPS`. */
const STEPS_AHEAD = 20;
/** `SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION`. */
const MOST_TOKENS = 4_096;

/** Output tokens that a sequence has yet to generate, as far as admission counts them. */
export function remainingOutput(sequence: Sequence<unknown>): number {
  return Math.min(sequence.totalTokens - sequence.knownTokens, MOST_TOKENS);
}

/** `NewTokenRatioTracker` and the offsets of `PrefillAdder`, SGLang 0.5.23. */
export function createOutputReserve(): OutputReserve {
  let share = FIRST_SHARE;
  return {
    expected(running) {
      let tokens = 0;
      for (const sequence of running) tokens += remainingOutput(sequence);
      return tokens * share;
    },
    decoded() {
      share = Math.max(share - SHARE_STEP, LEAST_SHARE);
    },
    preempted(running) {
      let generated = 0;
      let wanted = 0;
      for (const { knownTokens, promptTokens, totalTokens } of running) {
        generated += knownTokens - promptTokens;
        wanted += totalTokens - promptTokens;
      }
      share = Math.min(1, (generated + STEPS_AHEAD * running.length) / (wanted + 1));
    },
    rested() {
      share = FIRST_SHARE;
    },
  };
}
