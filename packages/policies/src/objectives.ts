/** What an answer has to keep to be of use to its user; Infinity where there is no objective. */
export interface Objectives {
  /** Time to first token, in milliseconds. */
  readonly ttftMs: number;
  /** Milliseconds for each token after the first: the mean over the answer. */
  readonly tpotMs: number;
}

/** Those of an interactive chat. */
export const defaultObjectives: Objectives = { ttftMs: 2_000, tpotMs: 50 };

/** Every answer keeps these. */
export const noObjectives: Objectives = { ttftMs: Number.POSITIVE_INFINITY, tpotMs: Number.POSITIVE_INFINITY };

/** Times of an answer, in milliseconds; NaN for what there was none of. */
interface AnswerTimes {
  readonly firstTokenMs: number;
  readonly endMs: number;
  readonly outputTokens: number;
}

/** The time per output token after the first; NaN for an answer of one token. */
export function timePerOutputTokenMs({ firstTokenMs, endMs, outputTokens }: AnswerTimes): number {
  return outputTokens > 1 ? (endMs - firstTokenMs) / (outputTokens - 1) : Number.NaN;
}

/** Whether an answer met its objectives, or which of them it missed. */
export type ObjectivesResult = "met" | "ttft_missed" | "tpot_missed" | "both_missed";

/** Compares the times of an answer with its objectives. An answer of one token, whose `tpotMs` is NaN, has only its first to keep. */
export function compareWith(objectives: Objectives, { ttftMs, tpotMs }: Objectives): ObjectivesResult {
  const isLate = !(ttftMs <= objectives.ttftMs);
  const isSlow = tpotMs > objectives.tpotMs;
  if (isLate) return isSlow ? "both_missed" : "ttft_missed";
  return isSlow ? "tpot_missed" : "met";
}
