import type {
  CachedPoint,
  FaultPhases,
  Knee,
  LinkModel,
  LoadPoint,
  QuantilePoint,
  Sharing,
  SimulateRow,
} from "@espalier/simulator";
import type { ScenarioSource } from "./simulate-options.ts";

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
  /** Whether requests wait in routers while engines are busy; as the scenario says when undefined. */
  readonly admission: boolean | undefined;
}

/** One run, told to a child process. */
export interface RunJob extends JobOfFleet {
  readonly kind: "run";
  /** Share of the knee, where the scale was chosen by it. */
  readonly load: number | undefined;
  /** Multiplies arrival rates, or clients of a closed loop. */
  readonly scale: number;
}

/** A search for the knee of a fleet: several runs, told to a child process as one. */
export interface KneeJob extends JobOfFleet {
  readonly kind: "knee";
}

export type SimJob = RunJob | KneeJob;

/** What is kept of a run. */
export interface RunOutcome {
  readonly row: SimulateRow;
  readonly ttft: readonly QuantilePoint[];
  readonly load: readonly LoadPoint[];
  readonly cached: readonly CachedPoint[];
  /** Of a scenario with a fault. */
  readonly phases: FaultPhases | undefined;
}

/** What a job ends with: a run's outcome, or the knee. */
export type JobOutcome<Job extends SimJob> = Job extends KneeJob ? Knee : RunOutcome;
