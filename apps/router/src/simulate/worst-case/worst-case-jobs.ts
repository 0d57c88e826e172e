import { scenario } from "@espalier/simulator";
import { UsageError } from "../../output/usage-error.ts";
import { maxPlannedRuns } from "../run-plan.ts";
import type { RunJob } from "../sim-job.ts";
import { nameOf, type WorstCase } from "./plan.ts";

/** Which part of the plan is asked for. */
export interface WorstCaseSelection {
  readonly policies: readonly string[];
  readonly routers: readonly number[];
  readonly seeds: number;
  readonly isQuick: boolean;
  /** Scenarios; all when undefined. */
  readonly only: readonly string[] | undefined;
}

/** A run, and the case that it belongs to. */
export interface WorstCaseJob {
  readonly name: string;
  readonly job: RunJob;
}

/** The part of the plan that a selection asks for. */
export function casesOf({ isQuick, only }: WorstCaseSelection, plan: readonly WorstCase[]): readonly WorstCase[] {
  return plan.filter(
    (one) => (only === undefined || only.includes(one.scenario)) && (!isQuick || one.quick !== undefined),
  );
}

/** Where the trace of a scenario is; undefined for one that makes its own requests. */
export type TraceOf = (scenario: string) => string | undefined;

/**
 * The runs of cases, in an order in which whatever has been made when it is stopped can be compared: seed after seed of
 * each case, in each all policies.
 *
 * @throws UsageError for more than 5,000 runs
 */
export function planWorstCase(
  { policies, routers, seeds, isQuick }: WorstCaseSelection,
  cases: readonly WorstCase[],
  traceOf: TraceOf,
): readonly WorstCaseJob[] {
  const count = cases.length * policies.length * routers.length * seeds;
  if (count > maxPlannedRuns) {
    throw new UsageError(`${count} runs are more than ${maxPlannedRuns}: ask for fewer policies, scenarios or seeds`);
  }
  return cases.flatMap((one) => {
    const { fleet, variants } = scenario(one.scenario);
    const variant = variants.find(({ name }) => name === one.variant);
    const { requests, durationS } = isQuick ? (one.quick ?? one) : one;
    const base: Omit<RunJob, "policy" | "routers" | "seed"> = {
      kind: "run",
      source: { name: one.scenario, trace: traceOf(one.scenario), format: undefined, fleet: undefined },
      variant: variant?.name,
      engines: variant?.engines ?? fleet.engines,
      ...{ sharing: "mesh", links: "delays", requests, durationS, admission: true },
      load: one.load,
      scale: one.scale ?? variant?.scale ?? 1,
    };
    return Array.from({ length: seeds }, (_, at) => at + 1).flatMap((seed) =>
      routers.flatMap((count) =>
        policies.map((policy) => ({ name: nameOf(one), job: { ...base, policy, routers: count, seed } })),
      ),
    );
  });
}
