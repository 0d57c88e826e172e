import { type CandidateColumn, type CandidateSet, candidateColumns } from "./candidates.ts";
import { composePolicy } from "./compose-policy.ts";
import { readOptions } from "./create-policy.ts";
import type { Term } from "./decision.ts";
import { predictedLatency, predictedLatencyParts } from "./policies/predicted-latency.ts";
import type { Policy, RequestFeatures } from "./policy.ts";
import { tokenMsAt } from "./scorers/prefill-time.ts";
import { weightedOnly } from "./weights.ts";

/** How one part of `predicted_latency` is left out. The others stay as they are. */
interface LeftOut {
  /** Composes the policy without it ... */
  readonly compose?: typeof predictedLatencyParts;
  /** ... or hides what it works on: features of the request, and columns of the candidates. */
  readonly features?: Partial<RequestFeatures>;
  readonly columns?: Partial<Record<CandidateColumn, (candidates: CandidateSet, index: number) => number>>;
}

/** A term that scores 0 keeps its place, because pickers name terms by number. */
const withoutTerm = (name: string): LeftOut => ({
  compose(option) {
    const parts = predictedLatencyParts(option);
    const scoresNothing = { name, score: (_: unknown, out: Float64Array) => void out.fill(0) };
    const terms = parts.terms.map(
      (term): Term => (term.scorer.name === name ? { ...term, scorer: scoresNothing } : term),
    );
    return { ...parts, terms };
  },
});

const withoutFilter = (name: string): LeftOut => ({
  compose(option) {
    const parts = predictedLatencyParts(option);
    return { ...parts, filters: parts.filters.filter((filter) => filter.name !== name) };
  },
});

const usual = predictedLatencyParts(readOptions("predicted_latency", predictedLatency, {}));
const byName = (names: readonly string[], leftOut: (name: string) => LeftOut): Readonly<Record<string, LeftOut>> =>
  Object.fromEntries(names.map((name) => [name, leftOut(name)]));

const parts: Readonly<Record<string, LeftOut>> = {
  ...byName(
    usual.terms.map(({ scorer }) => scorer.name),
    withoutTerm,
  ),
  // Work counts the same on idle engines and busy ones.
  cost_to_others: { features: { busyShare: undefined } },
  stalled_answers: { columns: { answers: () => 0 } },
  long_stalls: { compose: (option) => predictedLatencyParts(option, { stallMs: Number.POSITIVE_INFINITY }) },
  avoidable_stalls: { compose: (option) => predictedLatencyParts(option, { avoidableStalls: 0 }) },
  // The prompts before this one, by their tokens, however long the engine computes already.
  dead_reckoning: {
    columns: { backlogMs: (set, index) => set.pendingPrefillTokens[index]! * tokenMsAt(set, index) },
  },
  ...byName(
    // An engine of weight 0 gets nothing because its operator says so.
    usual.filters.filter((filter) => filter !== weightedOnly).map(({ name }) => name),
    withoutFilter,
  ),
  second_copy: { features: { sharedTokens: undefined } },
  near_ties: { compose: (option) => predictedLatencyParts(option, { nearTieMs: 0 }) },
  peer_level: { features: { estimatedPeerTokens: undefined } },
  burst_rendezvous: { features: { coldKey: undefined } },
  // The price, and among equals the preference.
  own_engines: { features: { ownershipMs: undefined }, columns: { own: () => 0 } },
};

/** The parts of `predicted_latency` that can be left out: its terms and filters by their own names, and the rest. */
export const defaultPolicyParts: readonly string[] = Object.keys(parts);

/**
 * Makes `predicted_latency` without one part, to measure what that earns.
 *
 * @param options as for `createPolicy`
 * @throws EspalierError `config_invalid` for a wrong option; RangeError for a part that there is not
 */
export function createPolicyWithout(part: string, options: Readonly<Record<string, unknown>> = {}): Policy {
  const leftOut = parts[part];
  if (leftOut === undefined) throw new RangeError(`predicted_latency has no part ${part}`);
  const { compose = predictedLatencyParts, features, columns } = leftOut;
  const { readsPrefixes } = predictedLatency;
  const composed = composePolicy({
    ...compose(readOptions("predicted_latency", predictedLatency, options)),
    readsPrefixes,
  });
  const hide = (request: RequestFeatures): RequestFeatures => ({ ...request, ...features });
  return {
    ...composed,
    choose: (request, candidates, random) => composed.choose(hide(request), replace(candidates, columns), random),
    explain: (request, candidates) => composed.explain(hide(request), replace(candidates, columns)),
  };
}

/** The caller's candidates with other columns. */
function replace(candidates: CandidateSet, columns: LeftOut["columns"] = {}): CandidateSet {
  const replaced: Partial<Record<CandidateColumn, Float64Array>> = {};
  for (const name of candidateColumns) {
    const column = columns[name];
    if (column) replaced[name] = candidates[name].map((_, index) => column(candidates, index));
  }
  return { ...candidates, ...replaced };
}
