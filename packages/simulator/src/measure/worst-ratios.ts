import type { SimulateRow } from "./rows.ts";

/** The figures by which policies are compared. */
export const comparedFigures = [
  "ttft_mean_s",
  "ttft_p99_s",
  "e2e_mean_s",
  "tpot_p99_s",
  "total_tokens_per_s",
  "goodput_share",
] as const;

export type ComparedFigure = (typeof comparedFigures)[number];

/** Minimum answered requests; with fewer, the figures of a run mean nothing. */
export const minComparedRequests = 100;

/** Shorter times count as this value: clients cannot distinguish them. */
export const leastTimeS = 0.001;

/** Where the best policy has less, no fleet of this size keeps the objectives, and the shares say nothing. */
export const leastGoodput = 0.05;

/**
 * A policy that fails more than this share of a case's requests has no figures there, because its other requests had it
 * easier.
 */
const maxFailedShare = 0.01;

/** One planned run. */
export interface ComparedRun {
  /** Name of the case: runs with the same case are compared. */
  readonly name: string;
  readonly policy: string;
  readonly routers: number;
  readonly seed: number;
  /** Undefined when the run was not made. */
  readonly row: Pick<SimulateRow, ComparedFigure | "requests" | "errors"> | undefined;
}

/** Whether a run failed so many of its requests that its figures would look too good. */
export function hasFailed({ requests, errors }: Pick<SimulateRow, "requests" | "errors">): boolean {
  return errors > maxFailedShare * requests;
}

type Figures = Partial<Record<ComparedFigure, number>>;

/** The result of a policy in one case. A meaningless figure and its ratio are absent. */
interface ComparedCase {
  readonly case: string;
  readonly policy: string;
  readonly routers: number;
  /** Seeds that count: those for which every policy has a run. */
  readonly seeds: readonly number[];
  readonly requests: number;
  readonly errors: number;
  /** It failed so many requests that its figures would look too good; it has none. */
  readonly isFailed: boolean;
  /** Medians across the seeds. */
  readonly figures: Figures;
  /** Ratio to the best policy of the case with the same number of routers: 1 is best, more is worse. */
  readonly ratios: Figures;
}

/** How far a policy is behind the best one in one figure, over all cases. */
export interface WorstRatio {
  readonly policy: string;
  readonly routers: number;
  readonly figure: ComparedFigure;
  readonly worst_ratio: number;
  readonly worst_scenario: string;
  readonly mean_ratio: number;
  /** Cases in which it has a ratio. */
  readonly cases: number;
  /** Cases in which it has no ratio for any figure because it failed too many requests. */
  readonly failed_cases: number;
}

export interface PolicyComparison {
  /**
   * Policies in order of failed cases, then of their worst ratio, then of their mean ratio. Each policy's figures are
   * sorted by routers and figure.
   */
  readonly rows: readonly WorstRatio[];
  readonly cases: readonly ComparedCase[];
  /** Whether runs are missing, so that cases or seeds are omitted. */
  readonly isPartial: boolean;
}

/**
 * Compares policies case by case and separately for each number of routers, over the seeds with no missing run. A
 * policy whose runs with these seeds failed is absent from the case.
 *
 * @param runs all planned runs except those that failed
 */
export function comparePolicies(runs: readonly ComparedRun[]): PolicyComparison {
  const contests = new Map<string, ComparedRun[]>();
  for (const run of runs) {
    const key = JSON.stringify([run.name, run.routers]);
    const contest = contests.get(key);
    if (contest === undefined) contests.set(key, [run]);
    else contest.push(run);
  }
  const cases = [...contests.values()].flatMap(judgeCase);
  return { rows: ranked(worstRatios(cases)), cases, isPartial: runs.some(({ row }) => row === undefined) };
}

function judgeCase(runs: readonly ComparedRun[]): readonly ComparedCase[] {
  const missing = new Set(runs.filter(({ row }) => row === undefined).map(({ seed }) => seed));
  const counted = runs.filter(({ seed }) => !missing.has(seed));
  const entries = [...new Set(counted.map(({ policy }) => policy))].map((policy) =>
    summarize(counted.filter((run) => run.policy === policy)),
  );
  const best: Figures = {};
  for (const { figures } of entries) {
    for (const figure of comparedFigures) {
      const value = figures[figure];
      if (value === undefined) continue;
      const known = best[figure];
      best[figure] = known === undefined || isBetter(figure, value, known) ? value : known;
    }
  }
  return entries.map((entry) => ({ ...entry, ratios: ratiosTo(best, entry.figures) }));
}

export const isHigherBetter = (figure: ComparedFigure): boolean =>
  figure === "total_tokens_per_s" || figure === "goodput_share";

const isBetter = (figure: ComparedFigure, value: number, other: number): boolean =>
  isHigherBetter(figure) ? value > other : value < other;

/** @param runs of one policy in one case, at least one */
function summarize(runs: readonly ComparedRun[]): Omit<ComparedCase, "ratios"> {
  const { name, policy, routers } = runs[0]!;
  const rows = runs.flatMap(({ row }) => (row === undefined ? [] : [row]));
  const figures: Figures = {};
  const isFailed = rows.some(hasFailed);
  if (!isFailed && rows.every(({ requests, errors }) => requests - errors >= minComparedRequests)) {
    for (const figure of comparedFigures) {
      const values = rows.flatMap((row) => row[figure] ?? []);
      if (values.length === rows.length) figures[figure] = medianOf(values);
    }
  }
  return {
    ...{ case: name, policy, routers, seeds: runs.map(({ seed }) => seed) },
    requests: rows.reduce((sum, { requests }) => sum + requests, 0),
    errors: rows.reduce((sum, { errors }) => sum + errors, 0),
    isFailed,
    figures,
  };
}

function ratiosTo(best: Figures, own: Figures): Figures {
  const ratios: Figures = {};
  for (const figure of comparedFigures) {
    const [value, least] = [own[figure], best[figure]];
    if (value === undefined || least === undefined) continue;
    if (figure === "goodput_share" && least < leastGoodput) continue;
    const ratio = isHigherBetter(figure) ? least / value : Math.max(leastTimeS, value) / Math.max(leastTimeS, least);
    if (Number.isFinite(ratio)) ratios[figure] = ratio;
  }
  return ratios;
}

function worstRatios(cases: readonly ComparedCase[]): readonly WorstRatio[] {
  const rows = new Map<string, { -readonly [Key in keyof WorstRatio]: WorstRatio[Key] }>();
  const failed = (policy: string, routers: number): number =>
    cases.filter((one) => one.isFailed && one.policy === policy && one.routers === routers).length;
  for (const { case: name, policy, routers, ratios } of cases) {
    for (const figure of comparedFigures) {
      const ratio = ratios[figure];
      if (ratio === undefined) continue;
      const key = JSON.stringify([policy, routers, figure]);
      const row = rows.get(key);
      if (row === undefined) {
        const first = {
          worst_ratio: ratio,
          worst_scenario: name,
          mean_ratio: ratio,
          cases: 1,
          failed_cases: failed(policy, routers),
        };
        rows.set(key, { policy, routers, figure, ...first });
        continue;
      }
      row.cases++;
      row.mean_ratio += (ratio - row.mean_ratio) / row.cases;
      if (ratio > row.worst_ratio) Object.assign(row, { worst_ratio: ratio, worst_scenario: name });
    }
  }
  return [...rows.values()];
}

function ranked(rows: readonly WorstRatio[]): readonly WorstRatio[] {
  const policies = [...new Set(rows.map(({ policy }) => policy))].map((policy) => {
    const own = rows.filter((row) => row.policy === policy);
    own.sort((one, other) => one.routers - other.routers || placeOf(one) - placeOf(other));
    const worst = own.reduce((most, row) => Math.max(most, row.worst_ratio), 0);
    const mean = own.reduce((sum, row) => sum + row.mean_ratio, 0) / own.length;
    const failed = own.reduce((most, row) => Math.max(most, row.failed_cases), 0);
    return { own, worst, mean, failed };
  });
  policies.sort((one, other) => one.failed - other.failed || one.worst - other.worst || one.mean - other.mean);
  return policies.flatMap(({ own }) => own);
}

const placeOf = ({ figure }: WorstRatio): number => comparedFigures.indexOf(figure);

export function medianOf(values: readonly number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  return (sorted[(sorted.length - 1) >> 1]! + sorted[sorted.length >> 1]!) / 2;
}
