/**
 * Fleets in virtual time: the routers' own code over modelled engines, links and clients, to prove that it holds and to
 * measure what it is worth.
 */
export type { RequestOutcome, SimRequest, Workload, WorkloadDriver } from "./clients/workload.ts";
export { createFaultPlan, type FaultAction, type FaultName, type FaultPlan, faultNames } from "./faults/fault-plan.ts";
export type { FleetControls } from "./faults/fleet-controls.ts";
export { clusterIp, SimFleet, type SimFleetOptions } from "./fleet/sim-fleet.ts";
export { type LinkModel, linkModels, type RunOptions, type Sharing, type SimTiming, sharings } from "./run/run-options.ts";
export type { FleetSample, RunRecord, SimResult } from "./run/run-result.ts";
export { parametersOf, type Progress, simulate } from "./run/simulate.ts";
export { defaultTiming } from "./run/timing.ts";
export type { PublishedResult, Scenario, ScenarioVariant, WorkloadOptions } from "./scenarios/scenario.ts";
