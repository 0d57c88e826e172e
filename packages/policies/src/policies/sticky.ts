import { composePolicy } from "../compose-policy.ts";
import type { Decision, Picker } from "../decision.ts";
import { amount, type PolicyDefinition } from "../definition.ts";
import { estimateRequests, writeLoadBounds } from "../load.ts";
import type { ChoiceReason } from "../policy.ts";
import { countingWeight, weightedOnly } from "../weights.ts";
import { leastWork, leastWorkParts } from "./least-work.ts";

/** Largest `max-idle-seconds`: a day. */
const maxIdleSeconds = 86_400;

export const sticky: PolicyDefinition = {
  summary:
    "The engine bound to the session, at every router. least_work or fewest-sessions chooses it for the first turn, " +
    "and again if the engine is gone or overloaded. Without a session key: least_work.",
  source:
    "SMG's manual policy and NVIDIA Dynamo's session affinity; vLLM Router's sticky_least_loaded; bounded loads as in " +
    "consistent_hashing",
  readsPrefixes: true,
  options: [
    {
      name: "max-idle-seconds",
      default: 14_400,
      range: `a number from 1 to ${maxIdleSeconds}`,
      accepts: (value) => value >= 1 && value <= maxIdleSeconds,
      meaning: "Lifetime of the binding of an idle session; it may end after three quarters of it.",
    },
    {
      name: "session-load-factor",
      default: 2,
      range: "0, or 1 or more",
      accepts: (value) => value === 0 || (value >= 1 && value < Number.POSITIVE_INFINITY),
      meaning:
        "Maximum requests in flight of an engine, as a multiple of its even share, before its sessions move; 0 " +
        "removes the bound.",
    },
    amount({
      name: "session-free-requests",
      default: 8,
      meaning: "Requests in flight of an engine of weight 1 below which its sessions never move.",
    }),
    {
      name: "fewest-sessions",
      default: 0,
      range: "0 or 1",
      accepts: (value) => value === 0 || value === 1,
      meaning:
        "1: a session begins at the engine with the fewest live sessions per weight, over all routers; least_work " +
        "decides between equals. A session lives until `/finish_session`, or for `max-idle-seconds`. 0: least_work.",
    },
    ...leastWork.options,
  ],
  create: (option) => {
    const { terms, picker: leastWorkPicker } = leastWorkParts(option);
    const readsSessions = option("fewest-sessions") === 1;
    return composePolicy({
      name: "sticky",
      bindingTtlMs: option("max-idle-seconds") * 1_000,
      readsSessions,
      filters: [weightedOnly],
      terms,
      picker: createBoundSessionPicker({
        unbound: leastWorkPicker,
        inner: readsSessions ? createFewestSessionsPicker(leastWorkPicker) : leastWorkPicker,
        loadFactor: option("session-load-factor"),
        freeRequests: option("session-free-requests"),
      }),
    });
  },
};

interface BoundSessionPickerOptions {
  /** Picks a candidate for a request without a session. */
  readonly unbound: Picker;
  /** Picks a candidate if the session is not bound, or cannot stay. */
  readonly inner: Picker;
  /**
   * Highest load of a candidate, relative to its fair share of the requests, before sessions leave it; 0 removes the
   * bound.
   */
  readonly loadFactor: number;
  /** Below this many requests, at weight 1, a candidate is never at its bound. */
  readonly freeRequests: number;
}

/** Indices of candidates in the first `count` entries. */
interface Indices {
  indices: Int32Array;
  count: number;
}

/**
 * Takes the target that the session is bound to, if it is a candidate and below its bound. If it is at its bound, takes
 * one of the candidates that are not. This is a function of the decision: the caller keeps the bindings.
 */
function createBoundSessionPicker(options: BoundSessionPickerOptions): Picker {
  const { inner, unbound, loadFactor, freeRequests } = options;
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
      else if (reason === "no_session_key") unbound.pick(decision, random, choice);
      else if (reason !== "session_overflow") inner.pick(decision, random, choice);
      else if (below.count === 1) choice.index = below.indices[0]!;
      else inner.pick(within(decision), random, choice);
      choice.reason = reason;
    },
    explain(decision, out) {
      const home = homeOf(decision);
      const reason = reasonOf(decision, home);
      if (reason === "session_bound") out[home] = 1;
      else if (reason === "no_session_key") return { ...unbound.explain(decision, out), reason };
      else if (reason !== "session_overflow") return { ...inner.explain(decision, out), reason };
      else if (below.count === 1) out[below.indices[0]!] = 1;
      else inner.explain(within(decision), out);
      const bound = new Float64Array(out.length);
      bound[home] = 1;
      return { reason, terms: { bound, load: loads.slice(), load_bound: bounds.slice() } };
    },
  };
}

/** Lets another picker choose among the candidates that, with one session more, have the fewest per weight. */
function createFewestSessionsPicker(inner: Picker): Picker {
  let fewest = new Int32Array(0);
  const narrowed = (decision: Decision): Decision => {
    const { candidates, eligible, eligibleCount, costs } = decision;
    if (fewest.length < costs.length) fewest = new Int32Array(costs.length);
    let least = Number.POSITIVE_INFINITY;
    let count = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      const sessions = (candidates.sessions[index]! + 1) / countingWeight(candidates.weight[index]!);
      if (sessions > least) continue;
      if (sessions < least) count = 0;
      least = sessions;
      fewest[count++] = index;
    }
    return { ...decision, eligible: fewest, eligibleCount: count };
  };
  return {
    pick(decision, random, choice) {
      const among = narrowed(decision);
      if (among.eligibleCount === 1) choice.index = among.eligible[0]!;
      else inner.pick(among, random, choice);
    },
    explain(decision, out) {
      const among = narrowed(decision);
      if (among.eligibleCount > 1) return inner.explain(among, out);
      out[among.eligible[0]!] = 1;
      return { reason: "session_new" };
    },
  };
}

/** The index of the candidate that the session is bound to; -1 if it is not eligible. */
function homeOf({ request, candidates, eligible, eligibleCount }: Decision): number {
  const { sessionKey, boundKey } = request;
  if (!sessionKey || boundKey === undefined) return -1;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    if (candidates.key[index] === boundKey) return index;
  }
  return -1;
}
