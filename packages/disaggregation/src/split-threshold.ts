import type { TransferCost } from "./transfer-cost.ts";

/** What one request would do to the engine that served it alone, and to the pair that could serve it. */
export interface SplitSituation {
  /**
   * Answers that wait for the prefill at the engine that would serve alone, less those that would at the prefill engine.
   */
  readonly answersRunning: number;
  /** What the engine takes to compute a prompt token. */
  readonly prefillMsPerToken: number;
  /** And for every token before it that it attends to; 0 where that is not known. */
  readonly prefillMsPerTokenPair: number;
  /** Prefill that waits at that engine, less what waits at the prefill engine. */
  readonly waitSavedMs: number;
}

export interface SplitThresholdOptions {
  /** Given, it is always this. */
  readonly fixedTokens: number | undefined;
  readonly minTokens: number;
  readonly maxTokens: number;
}

/**
 * From how many uncached prompt tokens on two engines are better than one, in milliseconds that requests wait. With u
 * tokens to compute, which takes w = b u + c u^2 / 2, splitting saves w for each of the n answers that stand still
 * meanwhile at the one engine and not at the other, and the difference q of the two queues; it costs the transfer, s + t u.
 * So it is worth it from the root of n w - t u = s - q on, and between the bounds in any case.
 *
 * @returns tokens
 */
export function splitThreshold(
  { answersRunning, prefillMsPerToken, prefillMsPerTokenPair, waitSavedMs }: SplitSituation,
  cost: Pick<TransferCost, "setupMs" | "msPerToken">,
  { fixedTokens, minTokens, maxTokens }: SplitThresholdOptions,
): number {
  if (fixedTokens !== undefined) return fixedTokens;
  const perToken = prefillMsPerToken * answersRunning - cost.msPerToken;
  const perSquare = (prefillMsPerTokenPair * answersRunning) / 2;
  const startingLoss = cost.setupMs - waitSavedMs;
  const gainAt = (tokens: number): number => tokens * (perToken + perSquare * tokens) - startingLoss;
  if (gainAt(minTokens) >= 0) return minTokens;
  // Every root beyond the lower bound is the larger one: the gain is below zero there.
  const root =
    perSquare > 0
      ? (Math.sqrt(Math.max(0, perToken ** 2 + 4 * perSquare * startingLoss)) - perToken) / (2 * perSquare)
      : perToken > 0
        ? startingLoss / perToken
        : maxTokens;
  return Math.min(maxTokens, Math.max(minTokens, Math.ceil(root)));
}
