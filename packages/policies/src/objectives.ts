/** What an answer has to keep to be of use to its user; Infinity where there is no objective. */
export interface Objectives {
  /** Time to first token, in milliseconds. */
  readonly ttftMs: number;
  /** Milliseconds for each token after the first: the mean over the answer. */
  readonly tpotMs: number;
}

/** Those of an interactive chat. */
export const defaultObjectives: Objectives = { ttftMs: 2_000, tpotMs: 50 };
