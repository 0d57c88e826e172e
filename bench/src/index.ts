/** Benchmarks of the router, with their baselines. As a library it lets tests run its parts at a small size. */
export { startBareProxy } from "./bare-proxy.ts";
export {
  type CapturedRequest,
  type CapturedSession,
  type CaptureFiles,
  readCaptureFiles,
  usageOf,
} from "./captures/capture-files.ts";
export { createEventFold } from "./captures/event-fold.ts";
export { type BenchEngine, startBenchEngine } from "./data-path/bench-engine.ts";
export { measureLoad, type Pace } from "./data-path/measure-load.ts";
export { prepareRequest, type RequestShape, type StreamShape } from "./data-path/prepared-request.ts";
export { runCommand } from "./run-command.ts";
export { parseCoreList, planCores } from "./support/cpu-pinning.ts";
export { summarizeRuns } from "./support/median-spread.ts";
