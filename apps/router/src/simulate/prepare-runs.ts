import type { Knee } from "@espalier/simulator";
import { writeNote } from "../output/write.ts";
import { executeJobs, type JobFailure } from "./execute-jobs.ts";
import { planKnees, planRuns } from "./run-plan.ts";
import type { KneeJob, RunJob } from "./sim-job.ts";
import type { RunSelection } from "./simulate-options.ts";
import type { SimulatedScenario } from "./simulated-scenario.ts";

/** A knee as it is reported. */
export interface FoundKnee {
  readonly variant?: string;
  readonly engines: number;
  readonly policy: string;
  readonly scale: number;
  /** In the later half of the largest run that was sustained. */
  readonly requests_per_s?: number;
}

export interface PreparedRuns {
  readonly jobs: readonly RunJob[];
  readonly knees: readonly FoundKnee[];
  readonly failures: readonly JobFailure[];
}

const keyOf = ({ variant, engines }: KneeJob): string => JSON.stringify([variant, engines]);

/**
 * Plans the runs of a selection, after looking for the knees that it needs. Runs of a fleet whose knee is not found are
 * left out.
 *
 * @throws UsageError as `planRuns` and `planKnees` do
 */
export async function prepareRuns(
  selection: RunSelection,
  { scenario }: SimulatedScenario,
  options: { readonly size: number; readonly signal: AbortSignal },
): Promise<PreparedRuns> {
  const searches = planKnees(selection, scenario);
  // What is wrong with the plan is said before the searches, which take long.
  planRuns(selection, scenario, () => 1);
  const { outcomes: knees, failures } = await executeJobs(searches, { ...options, title: `${scenario.name}, knee` });
  const scales = new Map(searches.map((job, at) => [keyOf(job), knees[at]?.scale]));
  const jobs = planRuns(selection, scenario, (job) => scales.get(keyOf(job)) ?? Number.NaN);
  return {
    jobs: jobs.filter(({ scale }) => !Number.isNaN(scale)),
    knees: searches.flatMap((job, at) => describe(job, knees[at])),
    failures,
  };
}

function describe(job: KneeJob, knee: Knee | undefined): readonly FoundKnee[] {
  if (knee === undefined) return [];
  const { variant, engines, policy } = job;
  const rate = knee.runs.find(({ scale }) => scale === knee.scale)?.load.offeredPerS;
  return [
    {
      ...(variant === undefined ? {} : { variant }),
      ...{ engines, policy, scale: knee.scale },
      ...(rate === undefined ? {} : { requests_per_s: rate }),
    },
  ];
}

/** Says which jobs failed, and why. */
export function noteFailures(failures: readonly JobFailure[]): void {
  for (const { job, error } of failures) {
    const { kind, variant, policy, routers, engines, sharing, seed } = job;
    const what = kind === "knee" ? "the search for the knee" : `the run of ${policy}, ${sharing}, seed ${seed}`;
    const where = `${variant === undefined ? "" : `${variant}, `}${routers} routers, ${engines} engines`;
    writeNote(`${what} (${where}) failed: ${error.message}`);
  }
}
