import type { RequestOutcome, SimRequest } from "../clients/workload.ts";

/** An answer, and what is known of the way it took. */
export interface FrontOutcome extends RequestOutcome {
  /** -1 for none. */
  readonly engine: number;
  /** The engine that computed the prompt for it, where that was another one. */
  readonly prefillEngine?: number;
  /** Prompt tokens that the engine was thought to hold. */
  readonly predictedTokens: number;
  readonly isSpill: boolean;
}

/** What a client's connection reaches: a router, or engines behind a plain service address. */
export interface SimFront {
  /** @param ended called once */
  handle(request: SimRequest, ended: (outcome: FrontOutcome) => void): void;
}
