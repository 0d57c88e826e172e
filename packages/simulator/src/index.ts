/**
 * Simulates fleets in virtual time: the routers' production code with modelled engines, links and clients. Proves that
 * the routers work under faults and measures what they gain.
 */
export { recordTrace } from "./clients/traces.ts";
export type { SimRequest } from "./clients/workload.ts";
export type { FleetControls } from "./faults.ts";
export { clusterIp, SimFleet } from "./fleet/sim-fleet.ts";
export {
  type Answer,
  createLoadClient,
  type LoadClient,
  type LoadRequest,
  runClosedLoop,
  runOpenLoop,
  type TimedJob,
} from "./load-driver/index.ts";
export {
  type AblatedPart,
  type Ablation,
  type AblationEffect,
  type AblationRun,
  ablationFigures,
  compareWithWhole,
  isReached,
} from "./measure/ablation.ts";
export { type FaultPhases, faultPhases } from "./measure/fault-phases.ts";
export { findKnee, type Knee, kneeLoad } from "./measure/knee.ts";
export {
  createRow,
  type FigureSpread,
  type MedianRow,
  medianRows,
  type SimulateRow,
  withGaps,
} from "./measure/rows.ts";
export {
  type CachedPoint,
  cachedOverTime,
  type LoadPoint,
  loadOverTime,
  type QuantilePoint,
  ttftQuantiles,
} from "./measure/series.ts";
export { comparedFigures, comparePolicies, type PolicyComparison, type WorstRatio } from "./measure/worst-ratios.ts";
export { type Figure, maxLineNames, type PlotAxis, type PlotLine, type PlotPanel, renderFigure } from "./plot.ts";
export { nearRivalNames, rivalNames } from "./rivals/rivals.ts";

export {
  type LinkModel,
  linkModels,
  type RunOptions,
  type Sharing,
  type SimTiming,
  sharings,
} from "./run.ts";
export { scenario, scenarioNames } from "./scenarios/catalogue.ts";
export { maxFleetEngines, maxFleetRouters, parseFleet } from "./scenarios/fleet-file.ts";
export { readScenario, traceScenario } from "./scenarios/read-scenario.ts";
export type { PublishedResult, Scenario, ScenarioFleet, ScenarioVariant } from "./scenarios/scenario.ts";
export { simulate } from "./simulate.ts";

export {
  bailianLine,
  blockText,
  type ChatMessage,
  type ChatSession,
  chatSessions,
  createPromptSynthesizer,
  infiniteCacheBound,
  jitterArrivals,
  maxLineBytes,
  maxTraceRequests,
  mooncakeStepMs,
  percentile,
  poissonArrivals,
  type ReplayRow,
  type RequestResult,
  type RunLabels,
  readTrace,
  runTraceSession,
  summarize,
  type TraceFormat,
  type TraceRequest,
  type TraceSession,
  toChatMessages,
  traceFormats,
  traceSessions,
  wordTokenIds,
} from "./workload/index.ts";
