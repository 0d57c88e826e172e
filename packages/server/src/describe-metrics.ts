import { silentLogger } from "@espalier/common";
import { loadConfig } from "@espalier/config";
import { createMetrics, type MetricInfo } from "@espalier/telemetry";
import { createContext } from "./create-router.ts";

/** Every metric of a router, by name, for documents: what registers itself when one is built. */
export function describeMetrics(): readonly MetricInfo[] {
  const metrics = createMetrics({ processMetrics: false });
  createContext({ config: loadConfig({}), logger: silentLogger }, metrics.meter, () => []);
  return metrics.describe();
}
