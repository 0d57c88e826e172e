/**
 * The router: a fastify application that wires the packages together. `createRouter` runs one inside any Node program.
 */

export { renderReservedDocs } from "@espalier/routing";
export { adapterCallsOf } from "./adapters/adapter-loader.ts";
export { adminApi } from "./admin/admin-app.ts";
export type { DashboardPage, PageFile } from "./admin/dashboard.ts";
export type { Engine } from "./admin/engine-routes.ts";
export type { Explanation } from "./admin/explain-request.ts";
export type { RecordedRequest } from "./admin/recorder.ts";
export type { RouterStatus } from "./admin/router-status.ts";
export {
  type CompiledConfig,
  configJsonSchema,
  describeConfig,
  type FlagEntry,
  type FlagValues,
  flagCatalogue,
  formatPath,
  loadConfig,
  type MeshConfig,
  type Path,
  type Problem,
  parseEnginesFile,
  parseYaml,
  problemsError,
  renderConfigurationDocs,
  renderConfigYaml,
  replacedNames,
  Secret,
  writeYaml,
} from "./config/index.ts";
export { createRouter, type Router, type RouterDependencies, type RouterGroup } from "./create-router.ts";
export type { PastRequest } from "./decisions/past-decisions.ts";
export { describeMetrics } from "./describe-metrics.ts";
export type { Auth, AuthRequest, Identity } from "./extensions/auth.ts";
export type { HookDecision, HookRequest, Hooks, RequestChanges } from "./extensions/hooks.ts";
export { type LoadedPlugins, loadPlugins } from "./extensions/plugins.ts";
export {
  type BodyMode,
  bodyModes,
  createPickerServer,
  type HeaderValue,
  type ProcessingRequest,
  type ProcessingResponse,
  servingStatus,
} from "./grpc/index.ts";
export { maxEventSockets, shareDescriptors } from "./lifecycle/descriptors.ts";
export type { Reconfiguration } from "./lifecycle/live-config.ts";
export type { ConfigSource, ReloadOutcome } from "./lifecycle/reloader.ts";
export type { MeshDescription } from "./mesh/describe-mesh.ts";
export { type FoundRouters, findRouters, probeMeshRedis, type RouterProbe } from "./mesh/probe-routers.ts";
export { type OverflowProbe, probeOverflow } from "./overflow/probe-overflow.ts";
export { type FeedReport, findEventSources } from "./prefix/engine-feeds.ts";
export { type FleetProbe, type ProbedAnswer, probeFleet } from "./probe-fleet.ts";
export type { Pause, Program, ProgramReport } from "./programs/programs.ts";
export { protocolLayouts } from "./protocol-layouts.ts";
export type { HookAnswer } from "./request/request-outcome.ts";
export { globPattern } from "./routing/pools.ts";
export {
  createLogger,
  type LoggerOptions,
} from "./telemetry/index.ts";
export { probeCollector } from "./tracing/index.ts";
