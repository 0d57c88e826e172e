import type { Decision, Picker } from "../decision.ts";
import { estimateRequests } from "../load.ts";
import { writeLoadBounds } from "../load-bounds.ts";
import type { ChoiceReason } from "../policy.ts";
import { countingWeight } from "../weights.ts";

export interface BoundSessionPickerOptions {
  /** Takes one where the session is bound to none, or cannot stay. */
  readonly inner: Picker;
  /** How far above its even share of the requests a candidate may go before sessions leave it; 0 removes the bound. */
  readonly loadFactor: number;
  /** Requests, at weight 1, below which a candidate is never at its bound. */
  readonly freeRequests: number;
}

/** Indices of candidates in the first `count` entries. */
interface Indices {
  indices: Int32Array;
  count: number;
}

/**
 * Takes the candidate to which the request's session is bound, as long as it is one and has fewer requests than its
 * bound; where it is at its bound, one of those that are not. Who binds the session, and to what, is the caller's
 * business: this is a function of the decision.
 */
export function createBoundSessionPicker({ inner, loadFactor, freeRequests }: BoundSessionPickerOptions): Picker {
  let loads = new Float64Array(0);
  let bounds = new Float64Array(0);
  const below: Indices = { indices: new Int32Array(0), count: 0 };

  const judge = (decision: Decision): void => {
    const { candidates, eligible, eligibleCount, costs } = decision;
    if (loads.length < costs.length) {
      loads = new Float64Array(costs.length);
      bounds = new Float64Array(costs.length);
      below.indices = new Int32Array(costs.length);
    }
    estimateRequests(decision, loads);
    writeLoadBounds(decision, loads, loadFactor, bounds);
    below.count = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      bounds[index] = Math.max(bounds[index]!, freeRequests * countingWeight(candidates.weight[index]!));
      if (loads[index]! < bounds[index]!) below.indices[below.count++] = index;
    }
  };
  const reasonOf = (decision: Decision, home: number): ChoiceReason => {
    const { sessionKey, boundKey } = decision.request;
    if (!sessionKey) return "no_session_key";
    if (boundKey === undefined) return "session_new";
    if (home === -1) return "session_moved";
    judge(decision);
    return loads[home]! < bounds[home]! ? "session_bound" : "session_overflow";
  };
  const within = (decision: Decision): Decision => ({
    ...decision,
    eligible: below.indices,
    eligibleCount: below.count,
  });

  return {
    pick(decision, random, choice) {
      const home = homeOf(decision);
      const reason = reasonOf(decision, home);
      if (reason === "session_bound") choice.index = home;
      else if (reason !== "session_overflow") inner.pick(decision, random, choice);
      else if (below.count === 1) choice.index = below.indices[0]!;
      else inner.pick(within(decision), random, choice);
      choice.reason = reason;
    },
    explain(decision, out) {
      const home = homeOf(decision);
      const reason = reasonOf(decision, home);
      if (reason === "session_bound") out[home] = 1;
      else if (reason !== "session_overflow") return { ...inner.explain(decision, out), reason };
      else if (below.count === 1) out[below.indices[0]!] = 1;
      else inner.explain(within(decision), out);
      const bound = new Float64Array(out.length);
      bound[home] = 1;
      return { reason, terms: { bound, load: loads.slice(), load_bound: bounds.slice() } };
    },
  };
}

/** The index of the candidate to which the session is bound; -1 where that is none of the eligible ones. */
function homeOf({ request, candidates, eligible, eligibleCount }: Decision): number {
  const { sessionKey, boundKey } = request;
  if (!sessionKey || boundKey === undefined) return -1;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    if (candidates.key[index] === boundKey) return index;
  }
  return -1;
}
