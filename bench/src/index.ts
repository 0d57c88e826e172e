/** Benchmarks of the router, with their baselines. As a library it gives tests the parts that they run at small size. */
export { type BareProxy, startBareProxy } from "./bare-proxy.ts";
export {
  type CapturedFrames,
  type CapturedReplay,
  type CapturedRequest,
  type CapturedSession,
  type CapturedUsage,
  type CaptureFiles,
  readCaptureFiles,
  usageOf,
} from "./captures/capture-files.ts";
export { type CommandOutput, runCommand } from "./run-command.ts";
export { proxyReport, proxyTable } from "./suites/proxy.ts";
export type { ProxyFleet } from "./suites/proxy-fleet.ts";
export type { ProxySizes } from "./suites/proxy-loads.ts";
export { type ProxyRun, type ProxyRunOptions, runProxyOnce } from "./suites/proxy-run.ts";
export { type BenchEngine, startBenchEngine } from "./support/bench-engine.ts";
export { type CorePlan, parseCoreList, planCores } from "./support/cpu-pinning.ts";
export { type Load, type Measurement, type MeasurePorts, measureLoad, type System } from "./support/measure-load.ts";
export { type Figures, type RunSummary, summarizeRuns } from "./support/median-spread.ts";
export {
  type PreparedRequest,
  prepareRequest,
  type RequestShape,
  type StreamShape,
} from "./support/prepared-request.ts";
export { createRawClient, maxConnections, type RawClient, type Timing } from "./support/raw-client.ts";
