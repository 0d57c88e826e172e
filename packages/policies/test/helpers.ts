import { createSeededRandom } from "@espalier/core";
import {
  type CandidateColumn,
  type CandidateSet,
  createCandidateSet,
  createPolicy,
  type Explanation,
  type Policy,
  type PolicyName,
  type RequestFeatures,
} from "@espalier/policies";

export const anyRequest: RequestFeatures = {
  promptTokens: 500,
  expectedOutputTokens: 100,
  sessionKey: undefined,
  prefixKey: undefined,
};

export const inSession = (sessionKey: string): RequestFeatures => ({ ...anyRequest, sessionKey });

export const boundTo = (boundKey: string): RequestFeatures => ({ ...inSession("a session"), boundKey });

export const withPrefix = (prefixKey: number): RequestFeatures => ({ ...anyRequest, prefixKey });

export const ofTokens = (promptTokens: number): RequestFeatures => ({ ...anyRequest, promptTokens });

export type CandidateRow = { readonly key: string } & Partial<Record<CandidateColumn, number>>;

/** Candidates from rows; the target of row i is 100 + i, so that an index cannot pass for a target. */
export function candidatesOf(rows: readonly CandidateRow[]): CandidateSet {
  const set = createCandidateSet(rows.length);
  for (const [position, { key, ...signals }] of rows.entries()) {
    const index = set.add(key, 100 + position);
    for (const [column, value] of Object.entries(signals)) set[column as CandidateColumn][index] = value;
  }
  return set;
}

/** `count` idle candidates e0, e1, ... */
export const idleRows = (count: number): CandidateRow[] => Array.from({ length: count }, (_, i) => ({ key: `e${i}` }));

export interface Tally {
  readonly byKey: Readonly<Record<string, number>>;
  readonly reasons: ReadonlySet<string>;
}

/** How often each key is chosen in `draws` decisions over the same candidates. */
export function tally(policy: Policy, rows: readonly CandidateRow[], draws: number, request = anyRequest): Tally {
  const candidates = candidatesOf(rows);
  const random = createSeededRandom(12);
  const byKey: Record<string, number> = Object.fromEntries(rows.map((row) => [row.key, 0]));
  const reasons = new Set<string>();
  for (let draw = 0; draw < draws; draw++) {
    const choice = policy.choose(request, candidates, random);
    const key = candidates.key[choice.index] ?? "outside";
    byKey[key] = (byKey[key] ?? 0) + 1;
    reasons.add(choice.reason);
  }
  return { byKey, reasons };
}

/** The probabilities that a fresh policy of this name explains, by key. */
export function probabilities(
  name: PolicyName,
  rows: readonly CandidateRow[],
  request = anyRequest,
): Record<string, number> {
  return byKey(createPolicy(name).explain(request, candidatesOf(rows)));
}

export function byKey(explanation: Explanation): Record<string, number> {
  return Object.fromEntries(explanation.candidates.map((one) => [one.key, one.probability]));
}

/**
 * Pearson's statistic of observed against expected counts over its 99.9 % quantile (Wilson-Hilferty): above 1 means
 * that such a deviation comes about by chance once in a thousand.
 */
export function chiSquareExcess(observed: readonly number[], expected: readonly number[]): number {
  const degrees = observed.length - 1;
  const statistic = observed.reduce((sum, count, i) => sum + (count - expected[i]!) ** 2 / expected[i]!, 0);
  const spread = 2 / (9 * degrees);
  return statistic / (degrees * (1 - spread + 3.0902 * Math.sqrt(spread)) ** 3);
}
