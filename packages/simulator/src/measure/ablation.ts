import {
  type ComparedFigure,
  type ComparedRun,
  hasFailed,
  isHigherBetter,
  leastGoodput,
  leastTimeS,
  medianOf,
  minComparedRequests,
} from "./worst-ratios.ts";

/** The figures that a part of a policy is judged by: what users feel and what operators pay for. */
export const ablationFigures = [
  "ttft_mean_s",
  "e2e_mean_s",
  "total_tokens_per_s",
  "goodput_share",
] as const satisfies readonly ComparedFigure[];

type AblationFigure = (typeof ablationFigures)[number];

/** Smaller effects do not count, however small the spread: nobody would keep a part for them. */
const leastEffect = 0.01;

/** One planned run, of the whole policy or of the policy without a part. */
export interface AblationRun extends Omit<ComparedRun, "policy"> {
  /** The part that is left out; undefined for the whole policy. */
  readonly without: string | undefined;
}

/** What a part does to one figure of one case. */
export interface AblationEffect {
  readonly case: string;
  readonly part: string;
  readonly routers: number;
  readonly figure: AblationFigure;
  /**
   * How much worse the figure is without the part: the median over seeds of the ratio to the whole policy with the same
   * seed. Above 1 the part earns, below 1 it costs.
   */
  readonly ratio: number;
  /** Largest less smallest of these ratios; absent for one seed, which says nothing about chance. */
  readonly spread?: number;
}

/** What a part earns over all cases. */
export interface AblatedPart {
  readonly part: string;
  readonly routers: number;
  /** By figure: its largest ratio, and its mean over the cases. */
  readonly ratios: Partial<Record<AblationFigure, { readonly worst: number; readonly mean: number }>>;
  /** The largest effect beyond the spread of its seeds, or the largest above a hundredth when none is. */
  readonly earns_most: AblationEffect | undefined;
  readonly costs_most: AblationEffect | undefined;
  /** Effects beyond the spread of their seeds. */
  readonly earns: number;
  readonly costs: number;
  /** Cases in which leaving it out changes anything, and all cases. */
  readonly reached: number;
  readonly cases: number;
  /** Cases in which it fails too many requests without the part. */
  readonly failed_cases: number;
}

export interface Ablation {
  /** The parts that earn most first; the figures of each are sorted by routers. */
  readonly parts: readonly AblatedPart[];
  readonly effects: readonly AblationEffect[];
  /** Whether runs are missing. Their seeds are left out. */
  readonly isPartial: boolean;
}

/** Whether the policy comes to anything else without the part. Runs with the same seed and decisions are the same. */
export function isReached(without: AblationRun["row"], whole: AblationRun["row"]): boolean {
  return without === undefined || whole === undefined || ablationFigures.some((name) => without[name] !== whole[name]);
}

/**
 * Compares a policy without each of its parts with the whole policy, case by case, for each number of routers and with
 * the same seeds.
 *
 * @param runs all planned runs except those that failed
 */
export function compareWithWhole(runs: readonly AblationRun[]): Ablation {
  const wholes = new Map(runs.filter(({ without }) => without === undefined).map((run) => [keyOf(run), run]));
  const groups = new Map<string, AblationRun[]>();
  for (const run of runs) {
    if (run.without === undefined) continue;
    const key = JSON.stringify([run.without, run.routers, run.name]);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [run]);
    else group.push(run);
  }
  const cases = [...groups.values()].map((group) => {
    const { without: part = "", routers } = group[0]!;
    const isFailed = group.some(({ row }) => row !== undefined && hasFailed(row));
    return { part, routers, isFailed, effects: isFailed ? [] : effectsOf(group, wholes) };
  });
  const parts = [...new Set(cases.map(({ part }) => part))].flatMap((part) => {
    const own = cases.filter((one) => one.part === part);
    const counts = [...new Set(own.map(({ routers }) => routers))].sort((one, other) => one - other);
    const rows = counts.map((routers) => {
      const those = own.filter((one) => one.routers === routers);
      const failed = those.filter(({ isFailed }) => isFailed).length;
      return summarize(
        part,
        routers,
        failed,
        those.flatMap(({ effects }) => effects),
      );
    });
    const earned = Math.max(
      ...rows.map(({ earns_most }) => (earns_most && isBeyond(earns_most) ? earns_most.ratio : 1)),
    );
    return [{ rows, earned, failed: Math.max(...rows.map((row) => row.failed_cases)) }];
  });
  parts.sort((one, other) => other.failed - one.failed || other.earned - one.earned);
  return {
    parts: parts.flatMap(({ rows }) => rows),
    effects: cases.flatMap(({ effects }) => effects),
    isPartial: runs.some(({ row }) => row === undefined),
  };
}

const keyOf = ({ name, routers, seed }: AblationRun): string => JSON.stringify([name, routers, seed]);

/** @param group runs without one part in one case, at least one */
function effectsOf(group: readonly AblationRun[], wholes: ReadonlyMap<string, AblationRun>): AblationEffect[] {
  const { without: part = "", routers, name } = group[0]!;
  return ablationFigures.flatMap((figure) => {
    const ratios = group.flatMap((run) => ratioOf(figure, run.row, wholes.get(keyOf(run))?.row) ?? []);
    if (ratios.length === 0) return [];
    const spread = ratios.length > 1 ? { spread: Math.max(...ratios) - Math.min(...ratios) } : {};
    return [{ case: name, part, routers, figure, ratio: medianOf(ratios), ...spread }];
  });
}

/** How much worse a figure is without a part; undefined where one of the runs says nothing about it. */
function ratioOf(figure: AblationFigure, without: AblationRun["row"], whole: AblationRun["row"]): number | undefined {
  if (!isComparable(without) || !isComparable(whole)) return undefined;
  const [left, all] = [without[figure], whole[figure]];
  if (left === undefined || all === undefined) return undefined;
  if (figure === "goodput_share" && Math.max(left, all) < leastGoodput) return undefined;
  const least = figure === "goodput_share" ? leastGoodput : figure === "total_tokens_per_s" ? 0 : leastTimeS;
  const ratio = Math.max(least, left) / Math.max(least, all);
  return isHigherBetter(figure) ? 1 / ratio : ratio;
}

const isComparable = (row: AblationRun["row"]): row is NonNullable<AblationRun["row"]> =>
  row !== undefined && !hasFailed(row) && row.requests - row.errors >= minComparedRequests;

/** Whether an effect is larger than chance makes it: than the spread of its seeds, and not too small to matter. */
function isBeyond({ ratio, spread = Number.POSITIVE_INFINITY }: AblationEffect): boolean {
  return Math.abs(ratio - 1) > Math.max(spread, leastEffect);
}

const countCases = (effects: readonly AblationEffect[]): number => new Set(effects.map((one) => one.case)).size;

function summarize(
  part: string,
  routers: number,
  failed_cases: number,
  effects: readonly AblationEffect[],
): AblatedPart {
  const ratios: AblatedPart["ratios"] = Object.fromEntries(
    ablationFigures.flatMap((figure) => {
      const own = effects.filter((one) => one.figure === figure).map(({ ratio }) => ratio);
      const mean = own.reduce((sum, ratio) => sum + ratio, 0) / own.length;
      return own.length === 0 ? [] : [[figure, { worst: Math.max(...own), mean }]];
    }),
  );
  const sorted = effects.toSorted((one, other) => other.ratio - one.ratio);
  const beyond = sorted.filter(isBeyond);
  const earning = beyond.filter(({ ratio }) => ratio > 1);
  const costing = beyond.filter(({ ratio }) => ratio < 1);
  return {
    ...{ part, routers, ratios, failed_cases },
    earns_most: earning[0] ?? sorted.find(({ ratio }) => ratio > 1 + leastEffect),
    costs_most: costing.at(-1) ?? sorted.findLast(({ ratio }) => ratio < 1 - leastEffect),
    ...{ earns: earning.length, costs: costing.length },
    reached: countCases(effects.filter(({ ratio }) => ratio !== 1)),
    cases: countCases(effects),
  };
}
