/** Metrics and logs behind the ports of core. */
export {
  createLogger,
  type LevelledLogger,
  type LogDestination,
  type LogFormat,
  type LoggerOptions,
  type LogLevel,
} from "./logger.ts";
export type { MetricInfo, MetricType } from "./metrics.ts";
export { createMetrics, type Exposition, type Metrics, type MetricsOptions } from "./metrics.ts";
