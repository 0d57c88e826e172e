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
  | "prefix_hash"
  | "cache_aware"
  | "epp_weighted"
  | "least_work";

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
  readonly unseenTokens?: number;
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
  /** There was no session key to hash: the least loaded. */
  | "no_session_key"
  /** There was no prefix key to hash: the least loaded. */
  | "no_prefix_key"
  /** The loads were too far apart to look at caches: the least loaded. */
  | "imbalanced"
  /** The longest match. */
  | "prefix_match"
  /** No match was long enough: the most room in the cache. */
  | "most_free_cache"
  | "best_score"
  /** The least prefill before the first token. */
  | "least_work";

/** A decision. The object is reused: it is valid until the policy's next `choose`. */
export interface Choice {
  /** Index in the candidate set. */
  readonly index: number;
  /** The caller's own index for that candidate. */
  readonly target: number;
  readonly reason: ChoiceReason;
}

/** What a decision made now would see, as plain JSON: `null` stands for "no signal" and for a cost without bound. */
export interface Explanation {
  readonly policy: PolicyName;
  readonly reason: ChoiceReason;
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
  /** Every scorer's term as it enters the cost, and what the picker looks at besides. */
  readonly terms: Readonly<Record<string, number | null>>;
  readonly signals: Readonly<Record<CandidateColumn, number | null>>;
}

export interface Policy {
  readonly name: PolicyName;
  /** How many tokens of the prompt `RequestFeatures.prefixKey` should cover; 0 when the policy does not look at it. */
  readonly prefixKeyTokens: number;
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
