import { createServer } from "node:http";
import { type Meter, silentLogger, systemClock, systemScheduler } from "@espalier/core";
import { createFeedReaderMeters } from "@espalier/shared-tree";
import { registerFeedMetrics } from "@espalier/shared-tree/events";
import { createDashboardParts } from "./admin/dashboard.ts";
import { loadConfig } from "./config/index.ts";
import { createContext } from "./create-context.ts";
import { createPickerMeters } from "./endpoint-picker/picker-parts.ts";
import { createTlsMeters } from "./lifecycle/certificates.ts";
import { createReadyGauge } from "./lifecycle/readiness.ts";
import { createPoolMeters } from "./prefix/mooncake-pool.ts";
import { createControlMeter } from "./rollouts/fan-out.ts";
import { createScaleParts } from "./scale/scale-parts.ts";
import { createMetrics, type MetricInfo } from "./telemetry/index.ts";
import { createSpanMeters } from "./tracing/index.ts";

/** A router that shares nothing, and one for each way to share. Metrics in common register once. */
const variants: readonly Readonly<Record<string, readonly string[]>>[] = [
  {},
  { "--mesh-port": ["0"] },
  { "--mesh-redis-url": ["redis://127.0.0.1"] },
];

/** Every metric of a router, by name, for documents. Building a router and a feed registers them. */
export function describeMetrics(): readonly MetricInfo[] {
  const { meter, describe } = createMetrics({ processMetrics: false });
  for (const flags of variants) build(flags, meter);
  createReadyGauge(meter);
  createTlsMeters(meter);
  registerFeedMetrics(meter);
  createPoolMeters(meter);
  createFeedReaderMeters(meter);
  createSpanMeters(meter);
  createPickerMeters(meter);
  createControlMeter(meter);
  return describe();
}

/** Only parts that poll by themselves need stopping: nothing else is started. */
function build(flags: Readonly<Record<string, readonly string[]>>, meter: Meter): void {
  const [config, logger] = [loadConfig({ flags }), silentLogger];
  const context = createContext({ config, logger }, meter, { servers: () => [] });
  createScaleParts(config.scale, context, meter);
  const dashboard = createDashboardParts({
    ...{ config, logger, meter, context },
    ...{ clock: systemClock, scheduler: systemScheduler, page: undefined, adminUrl: () => "" },
    readiness: () => ({ ready: false, reasons: [] }),
  });
  dashboard.serveDocuments(createServer());
  void dashboard.stop();
}
