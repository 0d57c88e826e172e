/** The `espalier` command. As a library it exports what benchmarks and tests share with it: local fleets, Envoy, and replays. */
export { pickerOf } from "./envoy/demo-envoy.ts";
export {
  type EnvoyAddress,
  type EnvoyConfig,
  type EnvoyLimits,
  type EnvoyOptions,
  type EnvoyPicker,
  type EnvoyPickerTls,
  envoyConfig,
  type RequestBodyMode,
  requestBodyModes,
  standardEnvoyLimits,
} from "./envoy/envoy-config.ts";
export { envoyVersion, installedEnvoy } from "./envoy/install-envoy.ts";
export { type EnvoyListening, type EnvoyProcess, type StartEnvoyOptions, startEnvoy } from "./envoy/start-envoy.ts";
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
  startChild,
  untilReady,
} from "./processes/start-child.ts";
export { type StartRoutersOptions, startRouters } from "./processes/start-routers.ts";
export { type PlannedRequest, planReplay } from "./replay/replay-plan.ts";
export { describeFailures } from "./replay/replay-results.ts";
export { runReplay } from "./replay/run-replay.ts";
