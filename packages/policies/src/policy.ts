import type { Random } from "@espalier/common";
import type { CandidateColumn, CandidateSet } from "./candidates.ts";

/** The policies that can be asked for by name. */
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
  /** What keeps the requests of one conversation together. */
  readonly sessionKey: string | undefined;
  /**
   * What prompts with the same beginning have in common: an unsigned 32-bit number that depends on the first
   * `Policy.prefixKeyTokens` tokens alone, for example half of the chain hash of their last full block. Absent when the
   * prompt has no full block or is not known.
   */
  readonly prefixKey: number | undefined;
  /**
   * Prefill tokens that other routers are expected to have sent to the candidates, unknown to this one. Absent where
   * there are none.
   */
  readonly unseenTokens?: number | undefined;
  /**
   * What prompts that are cold from the same place on have in common, an unsigned 32-bit number: routers to which such prompts
   * come at the same time are to send them to the same candidate. Absent where nothing is unseen, and where nothing is cold.
   */
  readonly coldKey?: number | undefined;
  /** Tokens that the prompt shares with others: a candidate holds them already. Absent where none holds anything. */
  readonly sharedTokens?: number | undefined;
  /** Milliseconds by which prompts that share these tokens have overpaid lately, at all routers; see `Choice.rentMs`. */
  readonly rentPaidMs?: number | undefined;
  /** Share of the time in which the candidates compute prompts, 0 to below 1, as learned. Absent where nothing is. */
  readonly busyShare?: number | undefined;
  /** Milliseconds that an answer takes for each token after its first, as learned. Absent where nothing is. */
  readonly msPerOutputToken?: number | undefined;
  /** Key of the candidate to which the request's session is bound, candidate or not. Absent where it is to none. */
  readonly boundKey?: string | undefined;
  /** The LoRA adapter that it asks for by name; absent when it asks for the model itself. */
  readonly adapter?: string | undefined;
}

/** Why a candidate was chosen. A bounded set, so that it can label a metric. */
export type ChoiceReason =
  | "only_candidate"
  | "random"
  | "rotation"
  | "least_load"
  /** The less loaded of two that were drawn. */
  | "better_of_two"
  /** The key's own place on the ring. */
  | "hash"
  /** The key's own place was past its load bound, so the walk went on. */
  | "hash_overflow"
  /** There was no session key: the least loaded. */
  | "no_session_key"
  /** The session's first request, as far as is known: the least work. */
  | "session_new"
  /** Where the session is bound. */
  | "session_bound"
  /** Where the session is bound is no candidate: the least work. */
  | "session_moved"
  /** Where the session is bound is past its load bound: the least work of those that are not. */
  | "session_overflow"
  /** There was no prefix key to hash: the least loaded. */
  | "no_prefix_key"
  /** The loads were too far apart to look at caches: the least loaded. */
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
  /** Those that hold most of the prompt would begin to answer too late: the least loaded of all. */
  | "affinity_too_slow"
  /** The lowest cost. */
  | "least_cost"
  /** Drawn, the likelier the lower the cost. */
  | "softmax"
  /** The least prefill before the first token. */
  | "least_work"
  /** The least time, that which it costs later requests counted in. */
  | "least_time"
  /** Prompts with the same prefix have paid for a copy of it elsewhere. */
  | "second_copy";

/** A decision. The object is reused: it is valid until the policy's next `choose`. */
export interface Choice {
  /** Index in the candidate set. */
  readonly index: number;
  /** The caller's own index for that candidate. */
  readonly target: number;
  readonly reason: ChoiceReason;
  /**
   * Milliseconds by which the request overpays for going where its shared prefix is cached, in place of a candidate without
   * it; minus the price of a copy where one is made. 0 where neither is so.
   */
  readonly rentMs: number;
}

/** What a decision made now would see, as plain JSON: `null` stands for "no signal" and for a cost without bound. */
export interface Explanation {
  readonly policy: PolicyName;
  readonly reason: ChoiceReason;
  /** What each scorer's number is multiplied with to become its term of the cost; a merit has a negative one. */
  readonly weights: Readonly<Record<string, number>>;
  readonly candidates: readonly ExplainedCandidate[];
}

export interface ExplainedCandidate {
  readonly key: string;
  readonly target: number;
  /** Whether it passed the filters. */
  readonly eligible: boolean;
  /** How probable it is that the policy chooses it; the probabilities add up to 1. */
  readonly probability: number;
  /** The weighted sum of the scorers' terms, lower is better. */
  readonly cost: number | null;
  /** Every scorer's number before its weight, in whatever unit it has. */
  readonly scores: Readonly<Record<string, number | null>>;
  /**
   * Every scorer's term as it enters the cost, what such a term is made of where that is not plain from it, and what the
   * picker looks at besides.
   */
  readonly terms: Readonly<Record<string, number | null>>;
  readonly signals: Readonly<Record<CandidateColumn, number | null>>;
}

export interface Policy {
  readonly name: PolicyName;
  /** How many tokens of the prompt `RequestFeatures.prefixKey` should cover; 0 when the policy does not look at it. */
  readonly prefixKeyTokens: number;
  /**
   * How long a session without requests stays bound to where its last one went, in milliseconds; 0 when the policy does
   * not look at `RequestFeatures.boundKey`.
   */
  readonly bindingTtlMs: number;
  /**
   * Chooses one of the candidates.
   *
   * @throws EspalierError `no_engine_available` when there are none
   */
  choose(request: RequestFeatures, candidates: CandidateSet, random: Random): Choice;
  /**
   * Says what `choose` would see and do now, and changes nothing.
   *
   * @throws EspalierError `no_engine_available` when there are none
   */
  explain(request: RequestFeatures, candidates: CandidateSet): Explanation;
}
