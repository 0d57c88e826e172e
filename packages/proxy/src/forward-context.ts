import type { Logger } from "@espalier/common";
import type { Deadlines } from "./deadlines.ts";
import type { ProxyMetrics } from "./metrics.ts";
import type { ProxyOptions } from "./options.ts";
import type { RetryBudget } from "./retry-budget.ts";
import type { UpstreamPools } from "./upstream-pools.ts";

/** What every exchange shares. */
export interface ForwardContext {
  readonly options: ProxyOptions;
  /** The options' statuses and 429. */
  readonly retryStatuses: ReadonlySet<number>;
  readonly pools: UpstreamPools;
  readonly budget: RetryBudget;
  readonly deadlines: Deadlines;
  readonly metrics: ProxyMetrics;
  readonly logger: Logger;
}
