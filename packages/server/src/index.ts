/**
 * The router: a fastify application that wires the packages together. `createRouter` runs one inside any Node program.
 */
export { createRouter, type Router, type RouterDependencies, type RouterGroup } from "./create-router.ts";
export type { DashboardPage } from "./dashboard/dashboard-parts.ts";
export type { PageFile } from "./dashboard/page-routes.ts";
export { describeMetrics } from "./describe-metrics.ts";
export type { Reconfiguration } from "./lifecycle/live-config.ts";
export type { ConfigSource, ReloadOutcome } from "./lifecycle/reloader.ts";
