import type { HashChain } from "./kv-cache.ts";
import type { CancelPull, RemoteSource } from "./kv-pull.ts";
import type { Reservation } from "./offload-tier.ts";
import type { FinishReason, ImportedPrompt, RequestReport } from "./types.ts";

/** A request with the fields that its observer's reports need. */
export interface RequestChain<Id> extends HashChain {
  readonly id: Id;
  readonly priority: number;
  readonly imported: ImportedPrompt | undefined;
  readonly remote: RemoteSource | undefined;
  readonly pinned: boolean;
}

/** One request inside the engine. */
export interface Sequence<Allocation, Chain = unknown> {
  readonly chain: Chain;
  readonly allocation: Allocation;
  readonly priority: number;
  readonly arrivedMs: number;
  readonly promptTokens: number;
  /** Tokens of the prompt and of the whole output. */
  readonly totalTokens: number;
  /** Prompt and generated tokens. */
  knownTokens: number;
  /** Tokens with computed KV. */
  computedTokens: number;
  /** Tokens that the planned or running step computes. */
  stepTokens: number;
  state: "waiting" | "pulling" | "importing" | "running" | "done";
  abortWanted: boolean;
  /** Prompt tokens that are still to be imported; 0 once they have arrived, or were preempted. */
  wantedTokens: number;
  /** End of the running import, in tokens. */
  arrivingTokens: number;
  /** When the import arrives; NaN before it starts. */
  readyMs: number;
  importedTokens: number;
  /** The other engine that it is still to pull from. */
  remote: RemoteSource | undefined;
  /** Where its pull began, in tokens. */
  pullFromTokens: number;
  /** Where the blocks end that it asks for, or that were found. */
  pullToTokens: number;
  cancelPull: CancelPull | undefined;
  /** Sequences that wait for the blocks of its pull. */
  readonly followers: Sequence<Allocation, Chain>[];
  /** Room in CPU memory for the blocks that were found. */
  reservation: Reservation | undefined;
  pulledTokens: number;
  cachedTokens: number;
  scheduledMs: number;
  firstTokenMs: number;
  preemptions: number;
}

export function createSequence<Allocation, Chain extends RequestChain<unknown>>(
  chain: Chain,
  allocation: Allocation,
  arrivedMs: number,
): Sequence<Allocation, Chain> {
  const { priority, promptTokens, totalTokens, imported, remote } = chain;
  return {
    chain,
    allocation,
    priority,
    arrivedMs,
    promptTokens,
    totalTokens,
    knownTokens: promptTokens,
    computedTokens: 0,
    stepTokens: 0,
    state: "waiting",
    abortWanted: false,
    // The engine computes the last token of the prompt to have the first one of the output.
    wantedTokens: Math.min(imported?.tokens ?? 0, promptTokens - 1),
    arrivingTokens: 0,
    readyMs: Number.NaN,
    importedTokens: 0,
    remote,
    pullFromTokens: 0,
    pullToTokens: 0,
    cancelPull: undefined,
    followers: [],
    reservation: undefined,
    pulledTokens: 0,
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
    pulledTokens: sequence.pulledTokens,
    outputTokens: sequence.knownTokens - sequence.promptTokens,
    arrivedMs: sequence.arrivedMs,
    scheduledMs: sequence.scheduledMs,
    firstTokenMs: sequence.firstTokenMs,
    finishedMs,
    preemptions: sequence.preemptions,
    finishReason: reason,
  };
}
