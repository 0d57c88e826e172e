import type { Random } from "@espalier/core";
import type { CandidateColumn, CandidateSet } from "./candidates.ts";

/** The policies of this package; a pool may have one of a plugin as well, see `CustomPolicy`. */
export type PolicyName =
  | "random"
  | "round_robin"
  | "least_connections"
  | "power_of_two"
  | "least_tokens"
  | "consistent_hashing"
  | "sticky"
  | "prefix_hash"
  | "cache_aware"
  | "epp_weighted"
  | "affinity_filter"
  | "dynamo"
  | "lmetric"
  | "least_work"
  | "predicted_latency";

/** What a decision knows about the request. */
export interface RequestFeatures {
  /** 0 when unknown. */
  readonly promptTokens: number;
  /** 0 when unknown. */
  readonly expectedOutputTokens: number;
  /** Keeps the requests of one conversation together. */
  readonly sessionKey: string | undefined;
  /** Separates equal session keys, of different tenants or cache salts; absent for neither. Bindings are made for both. */
  readonly sessionScope?: string | undefined;
  /**
   * A number that prompts with the same beginning share: an unsigned 32-bit integer that depends only on the first
   * `Policy.prefixKeyTokens` tokens, for example half of the chain hash of their last full block. Absent if the prompt
   * has no full block or is unknown.
   */
  readonly prefixKey: number | undefined;
  /**
   * Prefill tokens that other routers are expected to have sent to the candidates and not published yet. Absent if
   * there are none.
   */
  readonly estimatedPeerTokens?: number | undefined;
  /**
   * Milliseconds by which a cold prompt should prefer the candidates that this router owns: of the others it knows less
   * than their owners. Absent if no other router decides.
   */
  readonly ownershipMs?: number | undefined;
  /**
   * A number that prompts share if they are cold from the same block on, an unsigned 32-bit integer. Routers that get
   * such prompts at the same time should send them to the same candidate. Absent if nothing is unreported, or nothing is
   * cold.
   */
  readonly coldKey?: number | undefined;
  /** Tokens that the prompt shares with others: some candidate already holds them. Absent if none holds any. */
  readonly sharedTokens?: number | undefined;
  /** Milliseconds that prompts sharing these tokens have recently overpaid, at all routers; see `Choice.creditMs`. */
  readonly creditPaidMs?: number | undefined;
  /** Learned share of the time in which the candidates compute prompts, from 0 to below 1. Absent if unknown. */
  readonly busyShare?: number | undefined;
  /** Objective for the time to first token, in milliseconds; Infinity for none, `defaultObjectives` if absent. */
  readonly sloTtftMs?: number | undefined;
  /** The same for the time per output token. */
  readonly sloTpotMs?: number | undefined;
  /** Key of the target that the request's session is bound to, whether it is a candidate or not. Absent if unbound. */
  readonly boundKey?: string | undefined;
  /** LoRA adapter that the request names; absent if it asks for the model itself. */
  readonly adapter?: string | undefined;
}

/** Why a candidate was chosen. A bounded set, so it can label a metric. */
export type ChoiceReason =
  | "only_candidate"
  | "random"
  | "rotation"
  | "least_load"
  /** The less loaded of two drawn candidates. */
  | "better_of_two"
  /** The key's home on the ring. */
  | "hash"
  /** The key's home was past its load bound, so the next on the ring. */
  | "hash_overflow"
  /** No session key: the least loaded. */
  | "no_session_key"
  /** The session's first known request: the least work, or the fewest sessions. */
  | "session_new"
  /** The target that the session is bound to. */
  | "session_bound"
  /** The session's target is no candidate: chosen as for a new session. */
  | "session_moved"
  /** The session's target is past its load bound: chosen as for a new session, of those that are not. */
  | "session_overflow"
  /** No prefix key to hash: the least loaded. */
  | "no_prefix_key"
  /** The loads were too far apart to consider caches: the least loaded. */
  | "imbalanced"
  /** The longest match. */
  | "prefix_match"
  /** No match was long enough: the least loaded. */
  | "no_match"
  /** No match was long enough: the emptiest cache. */
  | "most_free_cache"
  | "best_score"
  /** The least loaded of those that hold most of the prompt. */
  | "affinity"
  /** Those that hold most of the prompt would start to answer too late: the least loaded of all. */
  | "affinity_too_slow"
  /** The lowest cost. */
  | "least_cost"
  /** Drawn at random; a lower cost is more likely. */
  | "softmax"
  /** The least prefill before the first token. */
  | "least_work"
  /** The least time, including what it costs later requests. */
  | "least_time"
  /** Prompts with the same prefix have paid for a second copy. */
  | "second_copy"
  /** A custom policy threw, or named no candidate: the least loaded. */
  | "policy_failed";

/** What candidates were compared by. The arrays are reused: they are valid until the next choice of the policy. */
export interface Judgement {
  /** Indices of the candidates that passed the filters, in its first `eligibleCount` entries. */
  readonly eligible: Int32Array;
  readonly eligibleCount: number;
  /** Cost by candidate index, lower is better; only the entries of eligible candidates are defined. */
  readonly costs: Float64Array;
}

/** A decision. The object is reused: it is valid until the next `choose` of the policy. */
export interface Choice {
  /** Index in the candidate set. */
  readonly index: number;
  /** The caller's index of that candidate. */
  readonly target: number;
  readonly reason: ChoiceReason;
  /**
   * Milliseconds that the request overpays to go where its shared prefix is cached instead of to a candidate without
   * it. If the request makes a copy instead: minus the price of that copy. Otherwise 0.
   */
  readonly creditMs: number;
  /** The filter that left a candidate out, by its index; undefined for one that passed. Absent while all passed. */
  readonly filteredBy?: ((index: number) => string | undefined) | undefined;
  /** Undefined if only one candidate was eligible, or if the policy has no costs. */
  readonly judged?: Judgement | undefined;
}

/** What a decision would see now, as plain JSON. `null` means "no signal", or an infinite cost. */
export interface Explanation {
  readonly policy: string;
  readonly reason: ChoiceReason;
  /** Factor of each scorer in the cost; negative for a merit. */
  readonly weights: Readonly<Record<string, number>>;
  readonly candidates: readonly ExplainedCandidate[];
}

export interface ExplainedCandidate {
  readonly key: string;
  readonly target: number;
  /** Whether the candidate passed the filters. */
  readonly eligible: boolean;
  /** The filter that left it out; null for one that passed. */
  readonly filteredBy: string | null;
  /** Probability that the policy chooses it. The probabilities add up to 1. */
  readonly probability: number;
  /** The weighted sum of the scorers' terms, lower is better. */
  readonly cost: number | null;
  /** Every scorer's number before its weight, in the scorer's unit. */
  readonly scores: Readonly<Record<string, number | null>>;
  /** Every scorer's term in the cost, the parts of a term if they are not obvious, and what else the picker reads. */
  readonly terms: Readonly<Record<string, number | null>>;
  readonly signals: Readonly<Record<CandidateColumn, number | null>>;
}

/** What a router has to do for a policy. */
export interface PolicyNeeds {
  /** Whether it reads what the candidates hold of the prompt, or the prompt's beginning. */
  readonly readsPrefixes: boolean;
  /**
   * Whether it reads the distinct blocks of all requests in flight. Routers keep that account only for such a policy,
   * because it takes time in proportion to the blocks of a prompt.
   */
  readonly readsActiveBlocks?: boolean | undefined;
  /**
   * Milliseconds between two reads of the engines' metrics for which the rule is made; the common default unless given.
   * An operator's setting overrides it.
   */
  readonly metricsEveryMs?: number | undefined;
}

export interface Policy extends PolicyNeeds {
  readonly name: string;
  /** Number of prompt tokens that `RequestFeatures.prefixKey` should cover; 0 if the policy does not read it. */
  readonly prefixKeyTokens: number;
  /**
   * How long an idle session stays bound to its last target, in milliseconds; 0 if the policy does not read
   * `RequestFeatures.boundKey`.
   */
  readonly bindingTtlMs: number;
  /** Whether it reads how many sessions are bound to the candidates. */
  readonly readsSessions?: boolean | undefined;
  /**
   * Chooses one of the candidates.
   *
   * @throws EspalierError `no_engine_available` if there are none
   */
  choose(request: RequestFeatures, candidates: CandidateSet, random: Random): Choice;
  /**
   * Explains what `choose` would see and do now. Changes nothing.
   *
   * @throws EspalierError `no_engine_available` if there are none
   */
  explain(request: RequestFeatures, candidates: CandidateSet): Explanation;
}
