import {
  asList,
  asNumber,
  asNumberOrNull,
  asObject,
  asText,
  asTextOrNull,
  type JsonObject,
  listOf,
  objectOf,
} from "./read-json.ts";

/** What a router would do with a request: the answer of `POST /admin/explain`. */
export interface Explanation {
  readonly router: string;
  readonly policy: string;
  readonly reason: string;
  /** Null when no engine can take it. */
  readonly choice: string | null;
  readonly promptTokens: number;
  readonly blocks: number | null;
  /** The one with the lowest cost first; without costs, the likeliest. */
  readonly candidates: readonly ExplainedCandidate[];
  readonly excluded: readonly { readonly key: string; readonly reasons: string }[];
}

export interface ExplainedCandidate {
  readonly key: string;
  readonly isEligible: boolean;
  /** The filter that left it out; null for one that passed. */
  readonly filteredBy: string | null;
  /** From 0 to 1. */
  readonly probability: number;
  readonly cost: number | null;
  /** Requests of all routers. */
  readonly inFlight: number;
  /** Blocks of the prompt that it has, by what it reported or else by what was sent there. */
  readonly knownBlocks: number;
  /** The parts of the cost that are not zero. */
  readonly terms: readonly (readonly [name: string, value: number])[];
}

export function readExplanation(answer: unknown): Explanation {
  const { router, policy, reason, choice, prompt, candidates, excluded } = asObject(answer);
  const read = asList(candidates).map((one) => readCandidate(asObject(one)));
  return {
    ...{ router: asText(router), policy: asText(policy), reason: asText(reason) },
    choice: asTextOrNull(asObject(choice).key),
    promptTokens: asNumber(asObject(prompt).tokens),
    blocks: asNumberOrNull(asObject(prompt).blocks),
    candidates: read.sort(
      (one, other) => (one.cost ?? Infinity) - (other.cost ?? Infinity) || other.probability - one.probability || 0,
    ),
    excluded: listOf(readExcluded)(excluded),
  };
}

const readExcluded = objectOf({ key: asText, reasons: (reasons) => listOf(asText)(reasons).join("; ") });

function readCandidate(candidate: JsonObject): ExplainedCandidate {
  const { own, others } = asObject(candidate.load);
  const { blocks } = asObject(candidate.facts);
  const facts = Object.values(asObject(blocks)).reduce<number>((sum, each) => sum + asNumber(each), 0);
  return {
    key: asText(candidate.key),
    isEligible: candidate.eligible !== false,
    filteredBy: asTextOrNull(candidate.filteredBy),
    probability: asNumber(candidate.probability),
    cost: asNumberOrNull(candidate.cost),
    inFlight: asNumber(asObject(own).inFlight) + asNumber(asObject(others).inFlight),
    knownBlocks: Math.max(facts, asNumber(asObject(candidate.placement).blocks)),
    terms: Object.entries(asObject(candidate.terms)).flatMap(([name, value]) =>
      typeof value === "number" && value !== 0 ? [[name, value] as const] : [],
    ),
  };
}

/** Why a request went where it went: an attempt in the answer of `GET /admin/requests/{id}`. */
export type PastDecision = ReturnType<typeof readPastDecision>;

const readPastDecision = objectOf({
  /** In one sentence. */
  summary: asText,
  target: asText,
  /** The chosen one first. */
  candidates: listOf(
    objectOf({
      ...{ key: asText, cost: asNumberOrNull, matchedTokens: asNumber, inFlight: asNumber },
      /** Milliseconds of a round trip to it; null where unknown. */
      networkMs: asNumberOrNull,
    }),
  ),
  /** Those that could not be chosen. */
  excluded: listOf(objectOf({ key: asText, reason: asText })),
});

export function readPastRequest(answer: unknown): readonly PastDecision[] {
  return listOf(readPastDecision)(asObject(answer).decisions);
}
