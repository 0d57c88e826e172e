import type { TokenChain } from "./token-chain.ts";
import type { EngineRequest, FinishReason, RequestReport } from "./types.ts";

/** One request inside the engine. */
export interface Sequence<Seat> {
  readonly request: EngineRequest;
  readonly priority: number;
  readonly arrivedMs: number;
  readonly chain: TokenChain;
  readonly seat: Seat;
  /** Tokens that exist: the prompt and what was generated. */
  knownTokens: number;
  /** Tokens whose KV was computed. */
  computedTokens: number;
  /** Tokens that the step being planned or running computes. */
  stepTokens: number;
  place: "waiting" | "running" | "gone";
  abortWanted: boolean;
  cachedTokens: number;
  scheduledMs: number;
  firstTokenMs: number;
  preemptions: number;
}

export function createSequence<Seat>(
  request: EngineRequest,
  arrivedMs: number,
  chain: TokenChain,
  seat: Seat,
): Sequence<Seat> {
  return {
    request,
    priority: request.priority ?? 0,
    arrivedMs,
    chain,
    seat,
    knownTokens: chain.promptTokens,
    computedTokens: 0,
    stepTokens: 0,
    place: "waiting",
    abortWanted: false,
    cachedTokens: 0,
    scheduledMs: Number.NaN,
    firstTokenMs: Number.NaN,
    preemptions: 0,
  };
}

/** Whether the step computes the token generated last, and nothing else. */
export function isDecode<Seat>(sequence: Sequence<Seat>): boolean {
  return sequence.computedTokens >= sequence.chain.promptTokens && sequence.computedTokens + 1 === sequence.knownTokens;
}

export function reportOf<Seat>(sequence: Sequence<Seat>, finishedMs: number, reason: FinishReason): RequestReport {
  return {
    id: sequence.request.id,
    promptTokens: sequence.chain.promptTokens,
    cachedTokens: sequence.cachedTokens,
    outputTokens: sequence.knownTokens - sequence.chain.promptTokens,
    arrivedMs: sequence.arrivedMs,
    scheduledMs: sequence.scheduledMs,
    firstTokenMs: sequence.firstTokenMs,
    finishedMs,
    preemptions: sequence.preemptions,
    finishReason: reason,
  };
}
