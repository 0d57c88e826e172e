/** What one router has sent to one target and not seen end. Whole numbers from 0. */
export interface LoadGauge {
  readonly inFlight: number;
  /** Prompt tokens to be computed for requests that have not produced a token. */
  readonly pendingPrefillTokens: number;
  /** Context tokens of requests past their first token. */
  readonly decodeTokens: number;
  /** Milliseconds that the engine is expected to compute on those prompts. */
  readonly pendingWorkMs: number;
  /** Tokens in prompt blocks of all those requests, each block once; 0 where no account of them is kept. */
  readonly activeTokens: number;
}

export const idleGauge: LoadGauge = {
  inFlight: 0,
  pendingPrefillTokens: 0,
  decodeTokens: 0,
  pendingWorkMs: 0,
  activeTokens: 0,
};

export function isIdle(gauge: LoadGauge): boolean {
  return isSameGauge(gauge, idleGauge);
}

export function isSameGauge(one: LoadGauge, other: LoadGauge): boolean {
  return (
    one.inFlight === other.inFlight &&
    one.pendingPrefillTokens === other.pendingPrefillTokens &&
    one.decodeTokens === other.decodeTokens &&
    one.pendingWorkMs === other.pendingWorkMs &&
    one.activeTokens === other.activeTokens
  );
}
