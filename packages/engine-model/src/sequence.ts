import type { HashChain } from "./kv-cache.ts";
import type { FinishReason, ImportedPrompt, RequestReport } from "./types.ts";

/** What a request brought, and what the engine must remember of it to tell its observer. */
export interface RequestChain<Id> extends HashChain {
  readonly id: Id;
  readonly priority: number;
  readonly imported: ImportedPrompt | undefined;
  readonly pinned: boolean;
}

/** One request inside the engine. */
export interface Sequence<Seat, Chain = unknown> {
  readonly chain: Chain;
  readonly seat: Seat;
  readonly priority: number;
  readonly arrivedMs: number;
  readonly promptTokens: number;
  /** Tokens of the prompt and of the whole output. */
  readonly totalTokens: number;
  /** Tokens that exist: the prompt and what was generated. */
  knownTokens: number;
  /** Tokens whose KV was computed. */
  computedTokens: number;
  /** Tokens that the step being planned or running computes. */
  stepTokens: number;
  place: "waiting" | "importing" | "running" | "gone";
  abortWanted: boolean;
  /** Prompt tokens that are wanted from outside: none when they are here, or were lost again. */
  wantedTokens: number;
  /** Up to where its tokens come from outside or from CPU memory, while they do. */
  arrivingTokens: number;
  /** When they are here; NaN until they are on their way. */
  readyMs: number;
  importedTokens: number;
  cachedTokens: number;
  scheduledMs: number;
  firstTokenMs: number;
  preemptions: number;
}

export function createSequence<Seat, Chain extends RequestChain<unknown>>(
  chain: Chain,
  seat: Seat,
  arrivedMs: number,
): Sequence<Seat, Chain> {
  const { priority, promptTokens, totalTokens, imported } = chain;
  return {
    chain,
    seat,
    priority,
    arrivedMs,
    promptTokens,
    totalTokens,
    knownTokens: promptTokens,
    computedTokens: 0,
    stepTokens: 0,
    place: "waiting",
    abortWanted: false,
    // The engine computes the last token of the prompt to have the first one of the output.
    wantedTokens: Math.min(imported?.tokens ?? 0, promptTokens - 1),
    arrivingTokens: 0,
    readyMs: Number.NaN,
    importedTokens: 0,
    cachedTokens: 0,
    scheduledMs: Number.NaN,
    firstTokenMs: Number.NaN,
    preemptions: 0,
  };
}

/** Whether the step computes the token generated last, and nothing else. */
export function isDecode(sequence: Sequence<unknown>): boolean {
  return sequence.computedTokens >= sequence.promptTokens && sequence.computedTokens + 1 === sequence.knownTokens;
}

export function reportOf<Id>(
  sequence: Sequence<unknown, RequestChain<Id>>,
  finishedMs: number,
  reason: FinishReason,
): Omit<RequestReport, "id"> & { readonly id: Id } {
  return {
    id: sequence.chain.id,
    promptTokens: sequence.promptTokens,
    cachedTokens: sequence.cachedTokens,
    importedTokens: sequence.importedTokens,
    outputTokens: sequence.knownTokens - sequence.promptTokens,
    arrivedMs: sequence.arrivedMs,
    scheduledMs: sequence.scheduledMs,
    firstTokenMs: sequence.firstTokenMs,
    finishedMs,
    preemptions: sequence.preemptions,
    finishReason: reason,
  };
}
