import { asList, asNumber, asNumberOrNull, asObject, asText } from "./read-json.ts";

/** Why a request went where it went: an attempt in the answer of `GET /admin/requests/{id}`. */
export interface PastDecision {
  /** In one sentence. */
  readonly summary: string;
  readonly target: string;
  /** The chosen one first. */
  readonly candidates: readonly PastCandidate[];
}

export interface PastCandidate {
  readonly key: string;
  readonly cost: number | null;
  readonly matchedTokens: number;
  readonly inFlight: number;
  /** Milliseconds of a round trip to it; null where unknown. */
  readonly networkMs: number | null;
}

export function readPastRequest(answer: unknown): readonly PastDecision[] {
  return asList(asObject(answer).decisions).map((one) => {
    const { summary, target, candidates } = asObject(one);
    return { summary: asText(summary), target: asText(target), candidates: asList(candidates).map(readCandidate) };
  });
}

function readCandidate(candidate: unknown): PastCandidate {
  const { key, cost, matchedTokens, inFlight, networkMs } = asObject(candidate);
  return {
    key: asText(key),
    cost: asNumberOrNull(cost),
    matchedTokens: asNumber(matchedTokens),
    inFlight: asNumber(inFlight),
    networkMs: asNumberOrNull(networkMs),
  };
}
