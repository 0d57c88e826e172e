import {
  type MedianRow,
  maxFleetEngines,
  maxFleetRouters,
  type Scenario,
  type Sharing,
  sharings,
} from "@espalier/simulator";
import { readName, UsageError } from "../cli/read-flags.ts";
import type { RunJob } from "./run-job.ts";
import { planRuns } from "./run-plan.ts";
import type { RunSelection } from "./simulate-options.ts";
import { simulatedPolicies } from "./simulated-scenario.ts";

/** One change of a fleet, to be compared with the fleet as it is. */
export type WhatIf =
  | { readonly of: "engines" | "routers"; readonly by: number }
  | { readonly of: "policy"; readonly name: string }
  | { readonly of: "sharing"; readonly name: Sharing };

/** Most changes of one comparison. */
export const maxWhatIfs = 16;

/**
 * Reads changes such as `engines+4,routers-1,policy=least_work,sharing=none`.
 *
 * @throws UsageError
 */
export function readWhatIfs(text: string): readonly WhatIf[] {
  const words = text.split(",").map((word) => word.trim());
  if (words.length > maxWhatIfs) throw new UsageError(`--what-if: ${words.length} changes are more than ${maxWhatIfs}`);
  return [...new Set(words)].map(readWhatIf);
}

function readWhatIf(word: string): WhatIf {
  const [, of, sign, count] = /^(engines|routers)([+-])(\d{1,5})$/.exec(word) ?? [];
  if ((of === "engines" || of === "routers") && Number(count) > 0)
    return { of, by: sign === "-" ? -Number(count) : Number(count) };
  const [, kind, name = ""] = /^(policy|sharing)=(.*)$/.exec(word) ?? [];
  if (kind === "policy") return { of: kind, name: readName(name, "--what-if", simulatedPolicies) };
  if (kind === "sharing") return { of: kind, name: readName(name, "--what-if", sharings) };
  throw new UsageError(
    `--what-if: ${JSON.stringify(word)} is not a change such as engines+4, routers-1, policy=NAME or sharing=none`,
  );
}

/** The policy of a comparison without --policy. */
const usualPolicy = "predicted_latency";

type Setup = Pick<RunJob, "policy" | "engines" | "routers" | "sharing">;

/** The runs of the fleet as it is, then those of each change. */
export interface WhatIfPlan {
  readonly jobs: readonly RunJob[];
  readonly asIs: Setup;
  readonly changed: readonly { readonly change: WhatIf; readonly setup: Setup }[];
}

/**
 * @throws UsageError for more than one fleet to begin with, for a fleet without engines or routers, and for a change that
 * changes nothing
 */
export function planWhatIf(changes: readonly WhatIf[], selection: RunSelection, scenario: Scenario): WhatIfPlan {
  const { engines, routers, policies, sharing } = selection;
  for (const [flag, all] of Object.entries({ engines, routers, policy: policies, sharing })) {
    if (all && all.length > 1) throw new UsageError(`--${flag}: one of them, to compare --what-if with`);
  }
  if (selection.links.length > 1) throw new UsageError("--links: one of them, to compare --what-if with");
  const start = {
    policies: policies ?? [usualPolicy],
    engines: engines ?? [scenario.fleet.engines],
    routers: routers ?? [scenario.fleet.routers],
    sharing: sharing ?? (["mesh"] as const),
  };
  const runsOf = (change: Partial<RunSelection>): readonly RunJob[] => {
    const jobs = planRuns({ ...selection, ...start, ...change }, scenario, () => 1);
    // Before them come the yardstick and the all-knowing router, to which nothing is compared here.
    return jobs.slice(-selection.seeds);
  };
  const asIs = runsOf({});
  const changed = changes.map((change) => ({ change, jobs: runsOf(selectionOf(change, start)) }));
  const same = changed.find(({ jobs }) => isSame(jobs[0]!, asIs[0]!));
  if (same) throw new UsageError(`--what-if: ${describeChange(same.change)}: that is the fleet as it is`);
  return {
    jobs: [...asIs, ...changed.flatMap(({ jobs }) => jobs)],
    asIs: asIs[0]!,
    changed: changed.map(({ change, jobs }) => ({ change, setup: jobs[0]! })),
  };
}

function selectionOf(
  change: WhatIf,
  { engines, routers }: { readonly engines: readonly number[]; readonly routers: readonly number[] },
): Partial<RunSelection> {
  if (change.of === "policy") return { policies: [change.name] };
  if (change.of === "sharing") return { sharing: [change.name] };
  const count = (change.of === "engines" ? engines : routers)[0]! + change.by;
  const max = change.of === "engines" ? maxFleetEngines : maxFleetRouters;
  if (count < 1 || count > max) throw new UsageError(`--what-if: ${count} ${change.of} are not between 1 and ${max}`);
  return change.of === "engines" ? { engines: [count] } : { routers: [count] };
}

const isSame = (one: Setup, other: Setup): boolean =>
  one.policy === other.policy &&
  one.engines === other.engines &&
  one.routers === other.routers &&
  one.sharing === other.sharing;

/** What a change does to a figure. */
interface WhatIfFigure {
  readonly from: number;
  readonly to: number;
}

/** A change with what it does to the figures that both runs have. */
export interface WhatIfOutcome {
  readonly change: string;
  readonly ttft_p99_s?: WhatIfFigure;
  readonly ttft_p50_s?: WhatIfFigure;
  readonly e2e_p99_s?: WhatIfFigure;
  readonly cached_share?: WhatIfFigure;
}

const comparedFigures = ["ttft_p99_s", "ttft_p50_s", "e2e_p99_s", "cached_share"] as const;

/** Compares medians over seeds. Changes whose runs failed are left out. */
export function compareWhatIfs({ asIs, changed }: WhatIfPlan, medians: readonly MedianRow[]): readonly WhatIfOutcome[] {
  const medianOf = (setup: Setup): MedianRow | undefined => medians.find((row) => isSame(row as Setup, setup));
  const before = medianOf(asIs)?.figures;
  return changed.flatMap(({ change, setup }) => {
    const after = medianOf(setup)?.figures;
    if (!before || !after) return [];
    const figures = comparedFigures.flatMap((name) => {
      const [from, to] = [before[name]?.median, after[name]?.median];
      return from === undefined || to === undefined ? [] : [[name, { from, to }] as const];
    });
    return [{ change: describeChange(change), ...Object.fromEntries(figures) }];
  });
}

function describeChange(change: WhatIf): string {
  if (change.of === "policy") return `policy ${change.name}`;
  if (change.of === "sharing") return `sharing ${change.name}`;
  const count = Math.abs(change.by);
  return `${count} ${change.by > 0 ? "more" : "fewer"} ${count === 1 ? change.of.slice(0, -1) : change.of}`;
}

/** For example "4 more engines: time to first token p99 -38 % (2.31 to 1.43 s), p50 -12 %; answers p99 -9 %; cached 61 to 64 %". */
export function describeWhatIf({ change, ...figures }: WhatIfOutcome): string {
  const { ttft_p99_s: p99, ttft_p50_s: p50, e2e_p99_s: answers, cached_share: cached } = figures;
  if (p99 === undefined) return `${change}: no request succeeded`;
  const parts = [`time to first token p99 ${relative(p99)} (${seconds(p99.from)} to ${seconds(p99.to)} s)`];
  if (p50) parts[0] += `, p50 ${relative(p50)}`;
  if (answers) parts.push(`answers p99 ${relative(answers)}`);
  if (cached) parts.push(`cached ${(100 * cached.from).toFixed(0)} to ${(100 * cached.to).toFixed(0)} %`);
  return `${change}: ${parts.join("; ")}`;
}

function relative({ from, to }: WhatIfFigure): string {
  const percent = Math.round(100 * (to / from - 1));
  return Number.isFinite(percent) ? `${percent > 0 ? "+" : ""}${percent} %` : "unchanged";
}

const seconds = (value: number): string => value.toFixed(value < 1 ? 3 : 2);
