import {
  type Child,
  type LocalEnginesOptions,
  type LocalRouterOptions,
  type RouterListening,
  startLocalEngines,
  startRouters,
} from "espalier-router";
import { readProcessUsage } from "./process-usage.ts";
import { routerProgram } from "./router-program.ts";
import type { WaitPorts } from "./until.ts";
import { untilKnown } from "./until-known.ts";

/** What the routers of a fleet share, and how. */
export type FleetSharing = "mesh" | "redis" | "none";

export interface MeshFleetOptions {
  /** Simulated engines to start, whose tokenizer and time to start are the routers' too, or the URLs of engines that run already. */
  readonly engines: LocalEnginesOptions | readonly string[];
  readonly routers: number;
  readonly sharing: FleetSharing;
  /** Required for sharing by `redis`. */
  readonly redisUrl?: string;
  readonly policy: string;
  /** Whether each router is an endpoint picker too. */
  readonly isPicker?: boolean;
}

/** Engines and routers in front of them, each router a process. */
export interface MeshFleet {
  readonly engineUrls: readonly string[];
  readonly routers: readonly RouterListening[];
  /** The process of each router, in the same order. */
  readonly pids: readonly number[];
  /** Kills the router with this index (SIGKILL), and resolves when it is gone. */
  kill(router: number): Promise<void>;
  /** CPU time of all routers so far. */
  routerCpuSeconds(): Promise<number>;
  stop(): Promise<void>;
}

/**
 * Starts a fleet. Waits until every router can use every engine, receives every feed directly or through another
 * router, and is linked with every other router.
 *
 * @throws Error when something does not start, or is not linked in time
 */
export async function startMeshFleet(options: MeshFleetOptions, ports: WaitPorts): Promise<MeshFleet> {
  const { routers: count, sharing } = options;
  const children: Child<unknown>[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(children.splice(0).map((child) => child.stop()));
  };
  try {
    const engineUrls = await startEngines(options.engines, children);
    const processes: Child<unknown>[] = [];
    const routers = await startRouters(
      {
        count,
        sharing: sharing === "mesh" ? "mesh" : "none",
        optionsOf: (index) => routerOptions(options, engineUrls, index),
        untilEngines: engineUrls.length,
      },
      processes,
    ).finally(() => children.unshift(...processes));
    const known = {
      members: sharing === "none" ? 0 : count - 1,
      feeds: "kvEvents" in options.engines && options.engines.kvEvents ? engineUrls.length : 0,
    };
    for (const { adminUrl } of routers) await untilKnown(adminUrl, known, ports);
    return {
      engineUrls,
      routers,
      pids: processes.map(({ process }) => process.pid ?? 0),
      async kill(router) {
        const child = processes[router];
        child?.process.kill("SIGKILL");
        await child?.exited;
      },
      async routerCpuSeconds() {
        const usages = await Promise.all(routers.map(({ adminUrl }) => readProcessUsage(`${adminUrl}/metrics`)));
        return usages.reduce((sum, { cpuSeconds }) => sum + cpuSeconds, 0);
      },
      stop,
    };
  } catch (thrown) {
    await stop();
    throw thrown;
  }
}

async function startEngines(
  engines: MeshFleetOptions["engines"],
  children: Child<unknown>[],
): Promise<readonly string[]> {
  if (!("count" in engines)) return engines;
  const started = await startLocalEngines(engines);
  children.push(started);
  return started.listening.engines.map(({ url }) => url);
}

function routerOptions(
  { engines, policy, sharing, redisUrl, isPicker = false }: MeshFleetOptions,
  engineUrls: readonly string[],
  index: number,
): Omit<LocalRouterOptions, "mesh"> {
  const byRedis =
    sharing === "redis" && redisUrl !== undefined
      ? ["--mesh-redis-url", redisUrl, "--mesh-router-id", `router-${index + 1}`]
      : [];
  const flags = ["--log-level", "warn", ...byRedis];
  const { tokenizer, startTimeoutMs } = "count" in engines ? engines : {};
  return {
    ...{ engineUrls, policy, port: 0, adminPort: 0, isPicker, arguments: flags, runBy: routerProgram },
    ...(tokenizer === undefined ? {} : { tokenizer }),
    ...(startTimeoutMs === undefined ? {} : { startTimeoutMs }),
  };
}
