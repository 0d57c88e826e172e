import { EspalierError } from "@espalier/core";
import { composePolicy } from "./compose-policy.ts";
import type { Filter, MutableChoice, Picker, Scorer } from "./decision.ts";
import { createTokenLoad, requestLoad } from "./load.ts";
import { createMatchShare, defaultTierCredits } from "./match.ts";
import { createLeastCostPicker } from "./pickers/least-cost.ts";
import { betterOfTwo, leastConnections } from "./policies/basic-policies.ts";
import type { Policy, PolicyNeeds } from "./policy.ts";
import { createForeignPrefill, createUncachedTokens, pendingPrefill } from "./scorers/prefill-work.ts";
import { weightedOnly } from "./weights.ts";

/** What a queued request of a client outside the fleet is taken to weigh, in tokens. */
const foreignTokens = 1_024;

/** Scorers that custom policies may name. Each policy has its own. */
const namedScorers = {
  requests: () => requestLoad,
  tokens: () => createTokenLoad(foreignTokens),
  pending_prefill_tokens: () => pendingPrefill,
  foreign_prefill_tokens: () => createForeignPrefill(foreignTokens),
  uncached_tokens: () => createUncachedTokens(defaultTierCredits),
  cached_share: () => createMatchShare("cached_share", defaultTierCredits),
} satisfies Readonly<Record<string, () => Scorer>>;

const namedPickers = {
  least_cost: createLeastCostPicker("least_cost"),
  better_of_two: betterOfTwo,
} satisfies Readonly<Record<string, Picker>>;

/**
 * A policy of your own: the weighted sum of scorers is each candidate's cost, and a picker takes one. Candidates of
 * weight 0 are left out while others have a weight.
 *
 * @example
 * const shortQueue: CustomPolicy = { terms: [{ scorer: queue, weight: 1 }, { scorer: "requests", weight: 0.1 }] };
 */
export interface CustomPolicy extends Partial<PolicyNeeds> {
  readonly terms: readonly {
    /** Yours, or the name of one of this package. */
    readonly scorer: Scorer | keyof typeof namedScorers;
    /** Negative for a merit. */
    readonly weight: number;
  }[];
  /** Yours, or the name of one of this package; `least_cost` by default. */
  readonly picker?: Picker | keyof typeof namedPickers;
  /** Applied in this order. */
  readonly filters?: readonly Filter[];
}

/** By name: lower-case letters, digits and underscores. */
export type CustomPolicies = Readonly<Record<string, CustomPolicy>>;

export type PolicyFailed = (policy: string, error: unknown) => void;

/** Most custom policies of a router. Each is a label of metrics. */
export const maxCustomPolicies = 32;

/**
 * Composes a policy without the guard that a router puts around it: what its parts throw is thrown.
 *
 * @throws EspalierError `config_invalid` saying which part is wrong, and what it should be
 */
export function composeCustomPolicy(name: string, custom: CustomPolicy): Policy {
  const { terms, picker = "least_cost", filters = [], ...needs } = readCustomPolicy(name, custom);
  return composePolicy({
    name,
    ...needs,
    filters: [weightedOnly, ...filters],
    terms: terms.map(({ scorer, weight }) => ({
      scorer: typeof scorer === "string" ? namedScorers[scorer]() : scorer,
      weight,
    })),
    picker: typeof picker === "string" ? namedPickers[picker] : picker,
  });
}

/** The same for a router: where it fails, the least loaded candidate is taken, with the reason `policy_failed`. */
export function createCustomPolicy(name: string, custom: CustomPolicy, onFailure: PolicyFailed = () => {}): Policy {
  const policy = composeCustomPolicy(name, custom);
  const fallback = leastConnections.create(() => 0);
  const choice: MutableChoice = {
    index: 0,
    target: 0,
    reason: "policy_failed",
    creditMs: 0,
    judged: undefined,
    filteredBy: undefined,
  };
  return {
    ...policy,
    choose(request, candidates, random) {
      if (candidates.count === 0) throw new EspalierError("no_engine_available");
      try {
        const chosen = policy.choose(request, candidates, random);
        if (Number.isInteger(chosen.index) && chosen.index >= 0 && chosen.index < candidates.count) return chosen;
        throw new RangeError(`its picker chose ${chosen.index} of ${candidates.count} candidates`);
      } catch (error) {
        onFailure(name, error);
      }
      choice.index = fallback.choose(request, candidates, random).index;
      choice.target = candidates.target[choice.index]!;
      return choice;
    },
    explain(request, candidates) {
      if (candidates.count === 0) throw new EspalierError("no_engine_available");
      try {
        return policy.explain(request, candidates);
      } catch (error) {
        onFailure(name, error);
      }
      return { ...fallback.explain(request, candidates), policy: name, reason: "policy_failed" };
    },
  };
}

/** Plugins are often JavaScript: what the types say is checked. */
function readCustomPolicy(name: string, custom: CustomPolicy): CustomPolicy {
  const wrong = (place: string, expected: string): EspalierError =>
    new EspalierError("config_invalid", `policy ${name}: ${place} ${expected}; see docs/guides/extend.md`);
  if (!/^[a-z][a-z0-9_]{0,63}$/.test(name)) {
    throw wrong("its name", "must be up to 64 lower-case letters, digits and underscores");
  }
  if (!Array.isArray(custom?.terms)) throw wrong("terms", "must be a list of { scorer, weight }");
  for (const [at, term] of custom.terms.entries()) {
    const { scorer, weight } = (term ?? {}) as Partial<CustomPolicy["terms"][number]>;
    if (!isPart(scorer, namedScorers, ["score"]) || (typeof scorer === "object" && typeof scorer.name !== "string")) {
      throw wrong(`terms[${at}].scorer`, `must be { name, score } or one of ${Object.keys(namedScorers).join(", ")}`);
    }
    if (!Number.isFinite(weight)) throw wrong(`terms[${at}].weight`, "must be a number");
  }
  if (custom.picker !== undefined && !isPart(custom.picker, namedPickers, ["pick", "explain"])) {
    throw wrong("picker", `must be { pick, explain } or one of ${Object.keys(namedPickers).join(", ")}`);
  }
  if (custom.filters !== undefined && !custom.filters.every?.((filter) => isPart(filter, {}, ["keep"]))) {
    throw wrong("filters", "must be a list of { name, keep }");
  }
  return custom;
}

/** Whether it is the name of a part, or has the functions of one. */
function isPart(part: unknown, named: object, functions: readonly string[]): boolean {
  if (typeof part === "string") return Object.hasOwn(named, part);
  if (typeof part !== "object" || part === null) return false;
  return functions.every((name) => typeof (part as Readonly<Record<string, unknown>>)[name] === "function");
}
