/** The `espalier` command. As a library it exports what benchmarks and tests share with it: local fleets, and plots. */
export { type Figure, type PlotPanel, renderFigure } from "@espalier/simulator";
export {
  type EnginesListening,
  type LocalEnginesOptions,
  type LocalRouterOptions,
  startLocalEngines,
  startLocalRouter,
} from "./processes/local-fleet.ts";
export {
  type Child,
  type ChildOptions,
  type ProgramOptions,
  type RouterListening,
  type RouterStatus,
  startChild,
  untilReady,
} from "./processes/start-child.ts";
export { type StartRoutersOptions, startRouters } from "./processes/start-routers.ts";
export { type PlannedRequest, planReplay } from "./replay/replay-plan.ts";
export { describeFailures } from "./replay/replay-results.ts";
export { runReplay } from "./replay/run-replay.ts";
