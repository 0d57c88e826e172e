/**
 * Fleets in virtual time: the routers' own code over modelled engines, links and clients, to prove that it holds and to
 * measure what it is worth.
 */
export { recordTrace } from "./clients/record-trace.ts";
export type { RequestOutcome, SimRequest, Workload, WorkloadDriver } from "./clients/workload.ts";
export type { FaultAction, FaultName, FaultPlan } from "./faults/fault-plan.ts";
export type { FleetControls } from "./faults/fleet-controls.ts";
export { clusterIp, SimFleet, type SimFleetOptions } from "./fleet/sim-fleet.ts";
export { findKnee, type Knee } from "./knee/find-knee.ts";
export { type KneeLoad, kneeLoad } from "./knee/knee-load.ts";
export { type FaultPhases, faultPhases } from "./measure/fault-phases.ts";
export { type FigureSpread, type MedianRow, medianRows } from "./measure/median-rows.ts";
export { withOracleGaps } from "./measure/oracle-gaps.ts";
export { createRow, type RowOptions, type SimulateRow } from "./measure/row.ts";
export {
  type CachedPoint,
  cachedOverTime,
  type LoadPoint,
  loadOverTime,
  type QuantilePoint,
  ttftQuantiles,
} from "./measure/series.ts";
export {
  type JudgedCase,
  type JudgedFigure,
  type JudgedRun,
  type Judgement,
  judgedFigures,
  judgePolicies,
  type WorstRatio,
} from "./measure/worst-ratios.ts";
export {
  type Figure,
  maxLineNames,
  type PlotAxis,
  type PlotLine,
  type PlotPanel,
  type PlotPoint,
} from "./plot/figure.ts";
export { renderFigure } from "./plot/render-figure.ts";
export {
  type LinkModel,
  linkModels,
  type RunOptions,
  type Sharing,
  type SimTiming,
  sharings,
} from "./run/run-options.ts";
export type { FleetSample, RunRecord, SimResult } from "./run/run-result.ts";
export { type Progress, simulate } from "./run/simulate.ts";
export { scenario, scenarioNames } from "./scenarios/catalogue.ts";
export { ownScenario } from "./scenarios/own-scenario.ts";
export { maxFleetEngines, maxFleetRouters, parseFleet } from "./scenarios/parse-fleet.ts";
export type {
  PublishedResult,
  Scenario,
  ScenarioFleet,
  ScenarioVariant,
  WorkloadOptions,
} from "./scenarios/scenario.ts";
