/** The `espalier` command. As a library it gives what benchmarks and tests share with it: local fleets, and plots. */
export { type Figure, type PlotPanel, renderFigure } from "@espalier/simulator";
export {
  type EnginesListening,
  type LocalEnginesOptions,
  type LocalRouterOptions,
  type RouterListening,
  startLocalEngines,
  startLocalRouter,
} from "./local-fleet/local-fleet.ts";
export { type Child, type ChildOptions, type ProgramOptions, startChild } from "./local-fleet/start-child.ts";
export { type StartRoutersOptions, startRouters } from "./local-fleet/start-routers.ts";
export { type RouterStatus, untilReady } from "./local-fleet/until-ready.ts";
export { describeFailures } from "./replay/describe-failures.ts";
export { type PlannedRequest, planReplay } from "./replay/replay-plan.ts";
export { runReplay } from "./replay/run-replay.ts";
