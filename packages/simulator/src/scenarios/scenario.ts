import type { EngineRole } from "@espalier/core";
import type { EngineParameters, KvPoolSettings, PresetName } from "@espalier/engine-model";
import type { Objectives } from "@espalier/policies";
import type { EngineOrder } from "@espalier/routing";
import type { Workload } from "../clients/workload.ts";
import type { FaultName } from "../faults.ts";
import type { Balancer } from "../fleet/cells.ts";
import type { LlmdRule } from "../fleet/llm-d-pulls.ts";
import type { Sharing, SimTiming } from "../run.ts";
import type { Topology } from "../topology.ts";
import type { TraceRequest } from "../workload/index.ts";

/** The parameters of one run's workload. */
export interface WorkloadOptions {
  readonly seed: number;
  /** Engines of the run, for workloads whose size depends on the fleet's. */
  readonly engines: number;
  /** KV tokens per engine, for workloads whose size depends on it. */
  readonly kvTokens: number;
  /** Multiplies arrival rates, or the clients of a closed loop. 1 is the scenario as published. */
  readonly scale: number;
  /** Ends sending after this many requests. */
  readonly requests?: number;
  /** Ends sending after this many virtual seconds, instead of the scenario's own duration. */
  readonly durationS?: number;
  /** The rows of a trace, for scenarios that replay one. */
  readonly trace?: readonly TraceRequest[];
}

/** Isolated router tiers, and how a request reaches one of them. */
export interface ScenarioCells {
  readonly count: number;
  readonly balancer: Balancer;
}

/** The fleet of a scenario. */
export interface ScenarioFleet {
  readonly preset: PresetName;
  /** Overrides of the preset. */
  readonly parameters: Partial<EngineParameters>;
  /** Cyclic overrides: engine n uses the one at n modulo their number. */
  readonly perEngine?: readonly Partial<EngineParameters>[];
  /** Total of all cells. */
  readonly engines: number;
  readonly routers: number;
  /** One by default. */
  readonly cells?: ScenarioCells;
  /** Its regions; all is equally near when absent. */
  readonly topology?: Topology;
}

/** A published result, as a ratio of a policy to the baseline of the same source. */
export interface PublishedResult {
  readonly source: string;
  /** Key of the row that is compared, for example `ttft_mean_s`. */
  readonly metric: string;
  /** The policy here that does the same as the source's own. */
  readonly policy: string;
  readonly policyValue: number;
  /** The policy's greatest value, where the source has a range for all its baselines and workloads together. */
  readonly policyUpTo?: number;
  readonly baseline: string;
  readonly baselineValue: number;
  /** The variant that it describes; the scenario itself when absent. */
  readonly variant?: string;
  /** The variant of the baseline; the same when absent. */
  readonly baselineVariant?: string;
  /** What routers share under the policy and under the baseline; `mesh` when absent. */
  readonly sharing?: Sharing;
  readonly baselineSharing?: Sharing;
  /** Known reasons for a different result: what the source leaves open. Printed next to the result. */
  readonly note?: string;
}

/** Disaggregated serving: one engine may compute a prompt for another. */
interface ScenarioSplit {
  /** Roles of the engines by number; `both` for those beyond. */
  readonly roles: readonly EngineRole[];
  /** Fixed time and bandwidth of a KV transfer. */
  readonly setupMs: number;
  readonly bytesPerS: number;
}

/** The scenario with another fleet, scale or clients. */
export interface ScenarioVariant {
  readonly name: string;
  /** Replaces the scenario's own. */
  readonly preset?: PresetName;
  readonly engines?: number;
  readonly routers?: number;
  readonly cells?: ScenarioCells;
  readonly topology?: Topology;
  readonly scale?: number;
  readonly parameters?: Partial<EngineParameters>;
  /** A pool that all engines write to and read from; none when absent. */
  readonly kvPool?: KvPoolSettings;
  /** Replaces the scenario's own. */
  readonly admission?: boolean;
  /** How long requests of every class may wait for a cold prompt; 0 by default. Needs admission. */
  readonly maxColdWaitS?: number;
  /** The order in which engines serve their queues; `arrival` by default. */
  readonly engineOrder?: EngineOrder;
  /** Replaces the scenario's own. */
  readonly roles?: readonly EngineRole[];
  /** Whether engines of role `both` are assigned to one role each, in proportion to the mix of requests. */
  readonly appliesBalance?: boolean;
  /** Number of uncached tokens from which two engines serve a request, instead of a dynamic threshold. */
  readonly splitTokens?: number;
  /** What `epp_weighted` has of llm-d's router besides its rule: whether and how it pulls. */
  readonly llmdRule?: LlmdRule;
  /** Settings for the policies that use them. */
  readonly policyOptions?: Readonly<Record<string, number>>;
  /** Objectives that routers go by where they are not the default's. They do not change what rows are judged by. */
  readonly slo?: Partial<Objectives>;
  /** Replaces the scenario's own. */
  createWorkload?(options: WorkloadOptions): Workload;
}

/**
 * A fleet, its clients and published results. Everything except `createWorkload` is data. Policies do not know an
 * answer's length in advance, only the request's `max_tokens`, if any, and the typical length of other answers.
 */
export interface Scenario {
  readonly name: string;
  /** For people, in one or two sentences. */
  readonly summary: string;
  /** Where its values are from, and what was assumed: a paragraph each, for its page. */
  readonly notes?: readonly string[];
  readonly fleet: ScenarioFleet;
  /**
   * Policies compared when the user names none: the published baseline first, then the source's own, the default policy
   * last.
   */
  readonly policies: readonly string[];
  readonly variants: readonly ScenarioVariant[];
  readonly published: readonly PublishedResult[];
  /** Seconds in which requests are sent, for workloads that do not end by themselves. */
  readonly durationS?: number;
  /** Open loop: `scale` multiplies an arrival rate, so the workload has a knee. */
  readonly isOpenLoop: boolean;
  /** Users of a closed loop at scale 1, where their number can be chosen. */
  readonly users?: number;
  /** What routers share unless the user says so: the mesh, and the sharing of published results, by default. */
  readonly sharing?: readonly Sharing[];
  /** Name of the trace file to replay; the user provides the file. */
  readonly trace?: string;
  /** Lines of an invented trace that `createWorkload` takes without the file. */
  syntheticTrace?(): Iterable<string>;
  /** Whether routers have admission control by class; requests are sent at once when absent. */
  readonly admission?: boolean;
  /** Delays that are not the usual ones. */
  readonly timing?: Partial<SimTiming>;
  /** Disaggregated serving; one engine serves each request when absent. */
  readonly split?: ScenarioSplit;
  /** The fault in the middle of the run; see `faults.ts`. */
  readonly fault?: FaultName;
  createWorkload(options: WorkloadOptions): Workload;
}
