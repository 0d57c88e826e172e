import { once } from "node:events";
import { Worker } from "node:worker_threads";
import {
  asEngineId,
  type Clock,
  type EngineSpec,
  programUrl,
  type Random,
  type Scheduler,
  type Startable,
  silentLogger,
  startTogether,
} from "@espalier/core";
import type { CompiledConfig } from "./config/index.ts";
import { createContext } from "./create-context.ts";
import { createDataPlaneApp } from "./data-plane/data-plane-app.ts";
import { createListener } from "./lifecycle/listener.ts";
import { createMetrics } from "./telemetry/index.ts";

interface WarmUpOptions {
  readonly config: CompiledConfig;
  /** Most milliseconds; 0 disables the warm-up. */
  readonly budgetMs: number;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
}

/** Warms up a router's code before it serves clients. `start` begins it, `stop` aborts it. */
export interface WarmUp extends Startable {
  readonly isOver: boolean;
}

/** Interval at which it checks whether the engines are usable. */
const lookEveryMs = 10;

/**
 * Sends requests of several kinds through a second router with the same code and settings, in front of engines that
 * answer at once. V8 compiles code that has run often, and the compiled code then serves the real router's clients. The
 * two share nothing else: no metrics, index, learned times, budgets, log or peers. Nothing that the configuration names
 * is dialled. Any failure ends the warm-up, and the router serves without it.
 *
 * Engines and clients are in a thread, which has a V8 of its own. Here Node's HTTP would be seen in roles that a router does
 * not have, V8 would compile for them too, and every later request would cost a third more.
 */
export function createWarmUp(options: WarmUpOptions): WarmUp {
  const { budgetMs, scheduler } = options;
  const aborter = new AbortController();
  let running: Promise<void> | undefined;
  let isOver = budgetMs === 0;
  return {
    get isOver() {
      return isOver;
    },
    async start() {
      if (isOver) return;
      const cancel = scheduler.after(budgetMs, () => aborter.abort());
      running = exercise(options, aborter.signal)
        .catch(() => undefined)
        .finally(() => {
          cancel();
          isOver = true;
        });
    },
    async stop() {
      aborter.abort();
      await running;
    },
  };
}

async function exercise(options: WarmUpOptions, signal: AbortSignal): Promise<void> {
  const { clock, scheduler, random } = options;
  const thread = new Worker(programUrl("./warm-up-traffic", import.meta.url), { execArgv: [] });
  // What goes wrong in it ends the warm-up, not the router.
  thread.on("error", () => {});
  try {
    const [urls] = (await once(thread, "message", { signal })) as [readonly string[]];
    const config = privateConfig(options.config, urls);
    const { meter } = createMetrics({ processMetrics: false, scheduler });
    const context = createContext({ config, logger: silentLogger, clock, scheduler, random }, meter, {
      servers: () => [],
    });
    const app = createDataPlaneApp(context, () => ({ ready: true, reasons: [] }));
    const listener = createListener(app, { setting: "listen.port", ...config.listen, isShared: false });
    const { proxy, mesh, prefix, fleet, sources } = context;
    const router = startTogether([proxy, ...(mesh ? [mesh] : []), prefix, fleet, sources, listener]);
    try {
      await router.start();
      while (!signal.aborted && fleet.usableCount() < urls.length) {
        await new Promise<void>((resolve) => scheduler.after(lookEveryMs, resolve));
      }
      thread.postMessage(Number(new URL(listener.url).port));
      await once(thread, "exit", { signal });
    } finally {
      await router.stop();
    }
  } finally {
    await thread.terminate();
  }
}

/** The same settings, except all that is shared, waited for, or dialled. */
function privateConfig(config: CompiledConfig, urls: readonly string[]): CompiledConfig {
  const { discovery, tracing } = config;
  return {
    ...config,
    processes: 1,
    listen: { host: "127.0.0.1", port: 0, tls: undefined },
    apiKeys: [],
    engines: urls.map(engineAt),
    enginesFile: undefined,
    discovery: { ...discovery, dns: [], services: [], pods: [], inferencePools: [] },
    pools: [],
    models: { aliases: {}, splits: {}, adapters: {}, maxLoadedAdapters: config.models.maxLoadedAdapters },
    tokenizers: [],
    kvEvents: { mode: "off", listen: undefined, maxReplays: 1 },
    kvPools: [],
    mesh: privateMesh(config),
    tracing: { ...tracing, endpoint: undefined },
  };
}

/** A mesh without other members, which still exercises the journal and the replica. */
function privateMesh({ mesh }: CompiledConfig): CompiledConfig["mesh"] {
  return {
    ...mesh,
    backend: mesh.backend === "off" ? "off" : "peers",
    ...{
      routerId: undefined,
      region: undefined,
      host: "127.0.0.1",
      port: 0,
      advertise: undefined,
      tls: undefined,
      redisUrl: undefined,
    },
    ...{ seeds: [], seedRecords: [], seedServers: [], seedsFile: undefined, seedServices: [], seedPods: [] },
  };
}

const warmUpModel = "warm-up";

function engineAt(url: string): EngineSpec {
  return { id: asEngineId(url), url, models: [warmUpModel], role: "both", weight: 1, labels: {} };
}
