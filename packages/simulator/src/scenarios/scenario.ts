import type { EngineOrder } from "@espalier/admission";
import type { EngineRole } from "@espalier/common";
import type { EngineParameters, PresetName } from "@espalier/engine-model";
import type { TraceRequest } from "@espalier/workload";
import type { SendLimits } from "../clients/session.ts";
import type { Workload } from "../clients/workload.ts";
import type { FaultName } from "../faults.ts";
import type { Balancer } from "../fleet/cells.ts";
import type { Sharing } from "../run.ts";

/** The parameters of one run's workload. */
export interface WorkloadOptions {
  readonly seed: number;
  /** Engines of the run, for workloads whose size goes with the fleet's. */
  readonly engines: number;
  /** KV tokens of one engine, for workloads whose size goes with it. */
  readonly kvTokens: number;
  /** Multiplies arrival rates, or clients of a closed loop. 1 is the scenario as it is published. */
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
  /** Overrides, cyclic: engine n has those at n modulo their number. */
  readonly perEngine?: readonly Partial<EngineParameters>[];
  /** Of all cells together. */
  readonly engines: number;
  readonly routers: number;
  /** One by default. */
  readonly cells?: ScenarioCells;
}

/** A published result, as a ratio of a policy to the baseline of the same source. */
export interface PublishedResult {
  readonly source: string;
  /** Key of the row that is compared, for example `ttft_mean_s`. */
  readonly metric: string;
  /** The policy here that does what the source's own did. */
  readonly policy: string;
  readonly policyValue: number;
  readonly baseline: string;
  readonly baselineValue: number;
  /** Which variant of the scenario it is about; the scenario itself when absent. */
  readonly variant?: string;
  /** What the routers of the policy and of the baseline share; `mesh` when absent. */
  readonly sharing?: Sharing;
  readonly baselineSharing?: Sharing;
  /** Why the result differs, as far as known: what the source leaves open. Printed beside it. */
  readonly note?: string;
}

/** Disaggregated serving: one engine may compute a prompt for another one. */
interface ScenarioSplit {
  /** Of the engines by their number; `both` for those beyond. */
  readonly roles: readonly EngineRole[];
  /** Fixed time of each KV transfer, and its bandwidth. */
  readonly setupMs: number;
  readonly bytesPerS: number;
}

/** The scenario with another fleet, another scale or other clients. */
export interface ScenarioVariant {
  readonly name: string;
  /** In place of the scenario's own. */
  readonly preset?: PresetName;
  readonly engines?: number;
  readonly routers?: number;
  readonly cells?: ScenarioCells;
  readonly scale?: number;
  readonly parameters?: Partial<EngineParameters>;
  /** In place of the scenario's own. */
  readonly admission?: boolean;
  /** How long requests of every class may wait for a cold prompt; 0 by default. Needs admission. */
  readonly maxColdWaitS?: number;
  /** The order in which engines serve their queues; `arrival` by default. */
  readonly engineOrder?: EngineOrder;
  /** In place of the scenario's own. */
  readonly roles?: readonly EngineRole[];
  /** Whether engines of role `both` are assigned to one role each, in proportion to the mix of requests. */
  readonly appliesBalance?: boolean;
  /** Uncached tokens from which on two engines serve a request, instead of a dynamic threshold. */
  readonly splitTokens?: number;
  /** For the policies that have them. */
  readonly policyOptions?: Readonly<Record<string, number | string>>;
  /** In place of the scenario's own. */
  createWorkload?(options: WorkloadOptions): Workload;
}

/**
 * A fleet, its clients, and published results. Everything but `createWorkload` is data. Policies do not know the length of
 * an answer in advance: only the `max_tokens` of a request that has one, and the typical length of others.
 */
export interface Scenario {
  readonly name: string;
  /** For people, in one or two sentences. */
  readonly summary: string;
  readonly fleet: ScenarioFleet;
  /** Compared when the user names none: the published baseline first, what its source used, the default policy last. */
  readonly policies: readonly string[];
  readonly variants: readonly ScenarioVariant[];
  readonly published: readonly PublishedResult[];
  /** Seconds in which requests are sent, for workloads without an end of their own. */
  readonly durationS?: number;
  /** Open loop: `scale` multiplies an arrival rate, so there is a knee to find. */
  readonly isOpenLoop: boolean;
  /** Name of the trace file that it replays, which the user gives. */
  readonly trace?: string;
  /** Whether routers have admission control by class; requests are sent at once when absent. */
  readonly admission?: boolean;
  /** Disaggregated serving; one engine serves each request when absent. */
  readonly split?: ScenarioSplit;
  /** The fault in the middle of the run; see `faults.ts`. */
  readonly fault?: FaultName;
  createWorkload(options: WorkloadOptions): Workload;
}

/** When a run ends sending: at what the user asked for, else after the scenario's own duration. */
export function limitsOf({ requests, durationS }: WorkloadOptions, ownDurationS?: number): SendLimits {
  return { requests, durationS: durationS ?? (requests === undefined ? ownDurationS : undefined) };
}

/** A number of clients times the scale: at least one. */
export function scaledClients(clients: number, { scale }: WorkloadOptions): number {
  return Math.max(1, Math.round(clients * scale));
}
