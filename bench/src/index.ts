/** Benchmarks of the router, with their baselines. As a library it lets tests run its parts at a small size. */
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
export { type BenchEngine, startBenchEngine } from "./data-path/bench-engine.ts";
export { type Load, type Measurement, measureLoad, type Pace, type System } from "./data-path/measure-load.ts";
export {
  type PreparedRequest,
  prepareRequest,
  type RequestShape,
  type StreamShape,
} from "./data-path/prepared-request.ts";
export { type CommandOutput, runCommand } from "./run-command.ts";
export { proxyReport, proxyTable } from "./suites/proxy.ts";
export { type CorePlan, parseCoreList, planCores } from "./support/cpu-pinning.ts";
export { type Figures, type RunSummary, summarizeRuns } from "./support/median-spread.ts";
