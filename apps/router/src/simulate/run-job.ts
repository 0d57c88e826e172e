import { systemClock } from "@espalier/core";
import type { Objectives } from "@espalier/policies";
import {
  type CachedPoint,
  cachedOverTime,
  createRow,
  type FaultPhases,
  faultPhases,
  findKnee,
  type Knee,
  kneeLoad,
  type LinkModel,
  type LoadPoint,
  loadOverTime,
  type QuantilePoint,
  type RunOptions,
  type Sharing,
  type SimulateRow,
  simulate,
  ttftQuantiles,
} from "@espalier/simulator";
import type { ScenarioSource } from "./simulate-options.ts";
import type { SimulatedScenario } from "./simulated-scenario.ts";

interface JobOfFleet {
  readonly source: ScenarioSource;
  readonly variant: string | undefined;
  readonly policy: string;
  readonly routers: number;
  readonly engines: number;
  readonly sharing: Sharing;
  readonly links: LinkModel;
  readonly seed: number;
  readonly requests: number | undefined;
  readonly durationS: number | undefined;
  /** Whether requests wait in routers while engines are busy; by default as the scenario says. */
  readonly admission: boolean | undefined;
  /** One way between two routers; the usual delay when undefined. */
  readonly linkDelayMs: number | undefined;
  /** The usual ones when undefined. */
  readonly objectives: Objectives | undefined;
}

/** One run, in the form sent to a child process. */
export interface RunJob extends JobOfFleet {
  readonly kind: "run";
  /** The part of the default policy that is left out. */
  readonly without?: string | undefined;
  /** Share of the knee, if the scale was derived from it. */
  readonly load: number | undefined;
  /** Multiplies arrival rates, or clients of a closed loop. */
  readonly scale: number;
  /** Users of a closed loop, if the scale was derived from them. */
  readonly users: number | undefined;
}

/** A search for the knee of a fleet: several runs, sent to a child process as one job. */
export interface KneeJob extends JobOfFleet {
  readonly kind: "knee";
}

export type SimJob = RunJob | KneeJob;

/** The result of a run. */
export interface RunOutcome {
  readonly row: SimulateRow;
  readonly ttft: readonly QuantilePoint[];
  readonly load: readonly LoadPoint[];
  readonly cached: readonly CachedPoint[];
  /** Only in a scenario with a fault. */
  readonly phases: FaultPhases | undefined;
}

/** The result of a job: a run's outcome, or the knee. */
export type JobOutcome<Job extends SimJob> = Job extends KneeJob ? Knee : RunOutcome;

/** Bounds of the search for a knee, as factors of the published rate. */
const kneeScales = { lowScale: 0.05, highScale: 50 };

/**
 * Runs one job of a plan in this process.
 *
 * @param onProgress receives the completed share, 0 to 1
 * @throws Error when there is no knee between 0.05 and 50 times the published rate
 */
export async function runJob<Job extends SimJob>(
  job: Job,
  simulated: SimulatedScenario,
  onProgress: (share: number) => void,
): Promise<JobOutcome<Job>>;
export async function runJob(
  job: SimJob,
  simulated: SimulatedScenario,
  onProgress: (share: number) => void,
): Promise<RunOutcome | Knee> {
  return job.kind === "run"
    ? measureRun(job, simulated, onProgress)
    : searchKnee((scale) => runOptions(job, simulated, scale), onProgress);
}

async function measureRun(
  job: RunJob,
  simulated: SimulatedScenario,
  onProgress: (share: number) => void,
): Promise<RunOutcome> {
  const options = runOptions(job, simulated, job.scale);
  const record = await simulate(options, systemClock.nowMs, onProgress);
  return {
    row: createRow(record, {
      ...options,
      ...(job.load === undefined ? {} : { load: job.load }),
    }),
    ttft: ttftQuantiles(record.results),
    load: loadOverTime(record),
    cached: cachedOverTime(record.results),
    phases: faultPhases(record, options.engines),
  };
}

async function searchKnee(
  optionsOf: (scale: number) => RunOptions,
  onProgress: (share: number) => void,
): Promise<Knee> {
  let doneShare = 0;
  let runShare = 0;
  const knee = await findKnee({
    ...kneeScales,
    async run(scale) {
      const run = optionsOf(scale);
      const { results } = await simulate(run, systemClock.nowMs, (share) => onProgress(doneShare + share * runShare));
      return kneeLoad(results, run.objectives);
    },
    onRun(_, { runs, expectedRuns }) {
      doneShare = runs / expectedRuns;
      runShare = Math.min(1 / expectedRuns, 1 - doneShare);
      onProgress(doneShare);
    },
  });
  if (knee.position === "between") return knee;
  const { lowScale, highScale } = kneeScales;
  throw new Error(
    knee.position === "below"
      ? `at ${lowScale} of the published rate the fleet does not keep up or misses its objectives: no knee is found`
      : `the fleet keeps up with ${highScale} times the published rate: no knee is found`,
  );
}

function runOptions(job: SimJob, { scenario, trace, customPolicies }: SimulatedScenario, scale: number): RunOptions {
  const { policy, routers, engines, sharing, links, seed, requests, durationS, admission, linkDelayMs, objectives } =
    job;
  const variant = scenario.variants.find(({ name }) => name === job.variant);
  return {
    ...{ scenario, policy, routers, engines, sharing, links, seed, scale },
    ...(variant === undefined ? {} : { variant: variant.name }),
    ...(variant?.parameters === undefined ? {} : { parameters: variant.parameters }),
    ...(requests === undefined ? {} : { requests }),
    ...(durationS === undefined ? {} : { durationS }),
    ...(admission === undefined ? {} : { admission }),
    ...(linkDelayMs === undefined ? {} : { linkDelayMs }),
    ...(objectives === undefined ? {} : { objectives }),
    ...(job.kind === "run" && job.users !== undefined ? { users: job.users } : {}),
    ...(trace === undefined ? {} : { trace }),
    ...(customPolicies === undefined ? {} : { customPolicies }),
    ...(job.kind === "run" && job.without !== undefined ? { without: job.without } : {}),
  };
}
