import type { Engine, EngineDeps } from "./engine.ts";
import { createHealthProbe } from "./health-probe.ts";
import { createMetricsScrape } from "./metrics-scrape.ts";
import { createModelFetch } from "./model-fetch.ts";

/** All that is asked of one engine while it is known: health always, metrics and models while it is up. */
export interface EngineMonitor {
  start(): void;
  stop(): void;
  /** Fetches the list of models again, if the engine is up and discovery does not name its models. */
  refreshModels(): void;
}

export function createEngineMonitor(deps: EngineDeps, engine: Engine): EngineMonitor {
  const models = createModelFetch(deps, engine);
  const metrics = createMetricsScrape(deps, engine, {
    onRestart() {
      engine.restarted();
      models.start();
    },
  });
  const health = createHealthProbe(deps, engine, {
    onUp() {
      models.start();
      metrics.start();
    },
    onDown() {
      models.stop();
      metrics.stop();
    },
  });
  return {
    start: health.start,
    stop() {
      health.stop();
      models.stop();
      metrics.stop();
    },
    refreshModels() {
      if (engine.state === "up") models.start();
    },
  };
}
