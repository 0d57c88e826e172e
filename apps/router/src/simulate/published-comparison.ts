import type { MedianRow, PublishedResult, Scenario, Sharing } from "@espalier/simulator";
import { isBlind } from "./simulated-policies.ts";

/** A published result beside what the simulator makes of the same two policies, and of the default one. */
export interface PublishedComparison {
  readonly source: string;
  readonly variant: string | undefined;
  readonly metric: string;
  readonly policy: string;
  readonly baseline: string;
  /** Ratios of the policy to the baseline. Undefined where a run is missing. */
  readonly published: number;
  readonly reproduced: number | undefined;
  /** The same with the scenario's last policy in place of the published one. */
  readonly ours: number | undefined;
  readonly ourPolicy: string;
  /** Reproduced over published, less 1. */
  readonly deviation: number | undefined;
  /** What the source leaves open, where that explains a deviation. */
  readonly note: string | undefined;
}

/** How far a reproduced ratio may be from the published one and still count as reproduced. */
export const maxDeviation = 0.25;

/** Compares with every published result of a scenario of which the runs have at least the baseline. */
export function compareWithPublished(scenario: Scenario, rows: readonly MedianRow[]): readonly PublishedComparison[] {
  const ourPolicy = scenario.policies.at(-1) ?? "predicted_latency";
  return scenario.published.flatMap((result) => {
    const baseline = figureOfRun(scenario, rows, result, {
      policy: result.baseline,
      sharing: result.baselineSharing,
    });
    if (baseline === undefined) return [];
    const ratioOf = (policy: string, sharing?: Sharing): number | undefined => {
      const value = figureOfRun(scenario, rows, result, { policy, sharing });
      return value === undefined ? undefined : value / baseline;
    };
    const published = result.policyValue / result.baselineValue;
    const reproduced = ratioOf(result.policy, result.sharing);
    return [
      {
        source: result.source,
        variant: result.variant,
        metric: result.metric,
        policy: result.policy,
        baseline: result.baseline,
        published,
        reproduced,
        ours: ratioOf(ourPolicy),
        ourPolicy,
        deviation: reproduced === undefined ? undefined : reproduced / published - 1,
        note: result.note,
      },
    ];
  });
}

/** Ways of sharing, those that are most like one router first. */
const likeness: readonly string[] = ["mesh", "oracle", "events-only", "gossip-1s", "none"];

/**
 * Of the run that is most like the published one: the scenario's own fleet and load, the sharing that is named, or else
 * the mesh where there is a choice.
 */
function figureOfRun(
  scenario: Scenario,
  rows: readonly MedianRow[],
  { variant: name, metric }: PublishedResult,
  { policy, sharing }: { readonly policy: string; readonly sharing: Sharing | undefined },
): number | undefined {
  const variant = scenario.variants.find((one) => one.name === name);
  const routers = variant?.routers ?? scenario.fleet.routers;
  const engines = variant?.engines ?? scenario.fleet.engines;
  const isAsked = (row: MedianRow): boolean => sharing === undefined || isBlind(policy) || row.sharing === sharing;
  const distance = (row: MedianRow): number =>
    (row.routers === routers ? 0 : 1) + 2 * likeness.indexOf(row.sharing ?? "none");
  const [best] = rows
    .filter((row) => row.policy === policy && row.variant === name && row.engines === engines && row.load === undefined)
    .filter(isAsked)
    .sort((one, other) => distance(one) - distance(other));
  return best?.figures[metric]?.median;
}
