import { backoffDelayMs, type HttpClient } from "@espalier/core";
import { controlFetch, createRepeatLoop, describeOutcome } from "./control-fetch.ts";
import type { Engine, EngineDeps } from "./engine.ts";
import { createHealthProbe } from "./health-probe.ts";
import { createMetricsScrape } from "./metrics-scrape.ts";
import { parseModelList } from "./served-models.ts";

/** Polls one engine: health always, metrics and models while it is up. */
export interface EngineMonitor {
  start(): void;
  stop(): void;
  /** Fetches the list of models again, if the engine is up and discovery does not name its models. */
  refreshModels(): void;
  /** The same, at most every two seconds. @returns fulfilled when a fetch that is under way has ended */
  readModelsAgain(): Promise<void>;
}

export function createEngineMonitor(fleetDeps: EngineDeps, engine: Engine): EngineMonitor {
  // Every answer shows how far the engine is at most, whatever was asked.
  const http: HttpClient = async (request) => {
    const response = await fleetDeps.http(request);
    engine.answered(response.headMs ?? Number.NaN);
    return response;
  };
  const deps = { ...fleetDeps, http };
  const models = createModelFetch(deps, engine);
  const metrics = createMetricsScrape(deps, engine, {
    onRestart() {
      engine.restarted();
      // Before the first page they have just been asked for.
      if (!engine.isUnread) models.start();
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
    readModelsAgain: async () => {
      if (engine.state === "up") await models.again();
    },
  };
}

/** Largest model list of an engine. */
const maxModelListBytes = 1024 * 1024;

/** Least time between two fetches because an answer refuted the list. */
const refutedEveryMs = 2_000;

/** Fetches the list of models that the engine serves, unless discovery names them. A failed fetch keeps the known list. */
function createModelFetch(deps: EngineDeps, engine: Engine): { start(): void; stop(): void; again(): Promise<void> } {
  const { clock, scheduler, random } = deps;
  const { models: options } = deps.options;
  let failures = 0;
  let refutedMs = Number.NEGATIVE_INFINITY;
  let isFetching = false;
  const waiting: (() => void)[] = [];

  const settle = (): void => {
    isFetching = false;
    for (const resolve of waiting.splice(0)) resolve();
  };
  const failed = (reason: string): number => {
    // Logged once per run of failures: an engine without this path stays without it.
    if (failures === 0) engine.logger.warn("model list of an engine unreadable", { reason });
    failures += 1;
    return backoffDelayMs(failures - 1, { firstDelayMs: options.firstRetryMs, maxDelayMs: options.intervalMs }, random);
  };
  const loop = createRepeatLoop(scheduler, async (isCurrent) => {
    isFetching = true;
    const url = `${engine.url}/v1/models`;
    const fetched = await controlFetch(deps, { url, timeoutMs: options.timeoutMs, maxBytes: maxModelListBytes });
    if (!isCurrent()) return 0;
    settle();
    if (fetched.outcome !== "ok") return failed(describeOutcome(fetched));
    const list = parseModelList(fetched.body, Math.floor(clock.wallMs() / 1_000));
    if (!list) return failed("not a list of models");
    failures = 0;
    engine.takeModels(list);
    return options.intervalMs;
  });
  const stop = (): void => {
    loop.stop();
    settle();
  };
  return {
    start() {
      failures = 0;
      if (engine.spec.models.length === 0) loop.start(0);
      else stop();
    },
    stop,
    async again() {
      if (engine.spec.models.length > 0) return;
      if (!isFetching && clock.nowMs() - refutedMs >= refutedEveryMs) {
        refutedMs = clock.nowMs();
        loop.start(0);
      }
      if (isFetching) await new Promise<void>((resolve) => waiting.push(resolve));
    },
  };
}
