import { EspalierError } from "@espalier/core";
import { type CandidateColumn, type CandidateSet, candidateColumns } from "./candidates.ts";
import type { Decision, Filter, MutableChoice, Picker, PickerExplanation, Scorer, Term } from "./decision.ts";
import type { ExplainedCandidate, Explanation, Policy, PolicyNeeds, RequestFeatures } from "./policy.ts";

export interface PolicyParts extends Partial<PolicyNeeds> {
  readonly name: string;
  readonly filters: readonly Filter[];
  /** Their weighted sum is the cost. */
  readonly terms: readonly Term[];
  readonly picker: Picker;
  /** See `Policy`; 0 by default. */
  readonly prefixKeyTokens?: number;
  /** See `Policy`; 0 by default. */
  readonly bindingTtlMs?: number;
  /** See `Policy`. */
  readonly readsSessions?: boolean;
}

type Scratch = { -readonly [Property in keyof Decision]: Decision[Property] };

/**
 * Builds a policy from filters, scorers and a picker. A choice allocates nothing unless the candidate set has grown.
 */
export function composePolicy(parts: PolicyParts): Policy {
  const choice: MutableChoice = {
    index: 0,
    target: 0,
    reason: "only_candidate",
    creditMs: 0,
    judged: undefined,
    filteredBy: undefined,
  };
  let decision: Scratch | undefined;

  const nameOf = (index: number): string | undefined => filterName(parts.filters, decision!.filteredBy[index]!);

  const begin = (request: RequestFeatures, candidates: CandidateSet): Scratch => {
    if (candidates.count === 0) throw new EspalierError("no_engine_available");
    const { capacity } = candidates;
    if (decision === undefined || decision.costs.length < capacity) {
      decision = {
        request,
        candidates,
        eligible: new Int32Array(capacity),
        eligibleCount: 0,
        filteredBy: new Uint8Array(capacity),
        costs: new Float64Array(capacity),
        scores: parts.terms.map(() => new Float64Array(capacity)),
      };
    }
    decision.request = request;
    decision.candidates = candidates;
    filter(decision, parts.filters);
    return decision;
  };

  return {
    name: parts.name,
    readsPrefixes: parts.readsPrefixes ?? false,
    readsActiveBlocks: parts.readsActiveBlocks,
    metricsEveryMs: parts.metricsEveryMs,
    prefixKeyTokens: parts.prefixKeyTokens ?? 0,
    bindingTtlMs: parts.bindingTtlMs ?? 0,
    readsSessions: parts.readsSessions,
    choose(request, candidates, random) {
      const current = begin(request, candidates);
      choice.creditMs = 0;
      choice.filteredBy = current.eligibleCount < candidates.count ? nameOf : undefined;
      choice.judged = current.eligibleCount > 1 && parts.terms.length > 0 ? current : undefined;
      if (current.eligibleCount === 1) {
        choice.index = current.eligible[0]!;
        choice.reason = "only_candidate";
      } else {
        addUp(current, parts.terms);
        parts.picker.pick(current, random, choice);
      }
      choice.target = candidates.target[choice.index]!;
      return choice;
    },
    explain(request, candidates) {
      const current = begin(request, candidates);
      addUp(current, parts.terms);
      return explain(current, parts);
    },
  };
}

function filter(decision: Scratch, filters: readonly Filter[]): void {
  const { count } = decision.candidates;
  for (let index = 0; index < count; index++) decision.eligible[index] = index;
  decision.eligibleCount = count;
  decision.filteredBy.fill(0, 0, count);
  for (let number = 0; number < filters.length; number++) {
    const kept = filters[number]!.keep(decision);
    if (kept === 0 || kept === decision.eligibleCount) continue;
    decision.eligibleCount = kept;
    markExcluded(decision, 1 + number);
  }
}

const passed = 255;

/** Notes the filter that left out candidates which the filters before it had kept. */
function markExcluded({ candidates, eligible, eligibleCount, filteredBy }: Scratch, number: number): void {
  for (let place = 0; place < eligibleCount; place++) filteredBy[eligible[place]!] = passed;
  for (let index = 0; index < candidates.count; index++) {
    if (filteredBy[index] === passed) filteredBy[index] = 0;
    else if (filteredBy[index] === 0) filteredBy[index] = number;
  }
}

/** @param number as in `Decision.filteredBy` */
function filterName(filters: readonly Filter[], number: number): string | undefined {
  return filters[number - 1]?.name;
}

function addUp(decision: Decision, terms: readonly Term[]): void {
  const { eligible, eligibleCount, costs, scores } = decision;
  if (terms.length === 0) costs.fill(0, 0, decision.candidates.count);
  for (let number = 0; number < terms.length; number++) {
    const { scorer, weight } = terms[number]!;
    const isFirst = number === 0;
    const isLast = number === terms.length - 1;
    const values = scores[number]!;
    scorer.score(decision, values);
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      const cost = (isFirst ? 0 : costs[index]!) + weight * values[index]!;
      // A candidate without a known cost is the last resort. Comparisons with NaN would not sort it last.
      costs[index] = isLast && Number.isNaN(cost) ? Number.POSITIVE_INFINITY : cost;
    }
  }
}

function explain(decision: Decision, parts: PolicyParts): Explanation {
  const { candidates, eligible, eligibleCount } = decision;
  const isEligible = new Set(eligible.subarray(0, eligibleCount));
  const probabilities = new Float64Array(candidates.count);
  let picked: PickerExplanation = { reason: "only_candidate" };
  if (eligibleCount === 1) probabilities[eligible[0]!] = 1;
  else picked = parts.picker.explain(decision, probabilities);

  const columns = parts.terms.flatMap(({ scorer, weight }, number): [string, Float64Array][] => [
    [scorer.name, decision.scores[number]!.map((value) => value * weight)],
    ...(scorer.parts ?? []).map((part): [string, Float64Array] => [part.name, scoresOf(part, decision)]),
  ]);
  columns.push(...Object.entries(picked.terms ?? {}));

  const weights = Object.fromEntries(parts.terms.map(({ scorer, weight }) => [scorer.name, weight]));
  const explained: ExplainedCandidate[] = [];
  for (let index = 0; index < candidates.count; index++) {
    const judged = isEligible.has(index);
    const known = judged ? columns : [];
    explained.push({
      key: candidates.key[index]!,
      target: candidates.target[index]!,
      eligible: judged,
      filteredBy: filterName(parts.filters, decision.filteredBy[index]!) ?? null,
      probability: probabilities[index]!,
      cost: judged && parts.terms.length > 0 ? jsonNumber(decision.costs[index]!) : null,
      scores: Object.fromEntries(
        (judged ? parts.terms : []).map(({ scorer }, number) => [
          scorer.name,
          jsonNumber(decision.scores[number]![index]!),
        ]),
      ),
      terms: Object.fromEntries(known.map(([name, values]) => [name, jsonNumber(values[index]!)])),
      signals: Object.fromEntries(
        candidateColumns.map((name) => [name, jsonNumber(candidates[name][index]!)]),
      ) as Record<CandidateColumn, number | null>,
    });
  }
  return { policy: parts.name, reason: picked.reason, weights, candidates: explained };
}

function scoresOf(scorer: Scorer, decision: Decision): Float64Array {
  const values = new Float64Array(decision.costs.length);
  scorer.score(decision, values);
  return values;
}

function jsonNumber(value: number): number | null {
  // JSON has no negative zero, which a merit of 0 would give. Adding 0 makes it positive.
  return Number.isFinite(value) ? value + 0 : null;
}
