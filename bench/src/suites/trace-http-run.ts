import { setMaxListeners } from "node:events";
import { type RequestResult, summarize } from "@espalier/simulator";
import {
  describeFailures,
  type LocalEnginesOptions,
  type PlannedRequest,
  runReplay,
  startLocalEngines,
} from "espalier-router";
import type { InstalledPeer } from "../peers/install-peer.ts";
import { startPeer } from "../peers/start-peer.ts";
import { benchModel } from "../support/bench-model.ts";
import type { Figures } from "../support/median-spread.ts";
import { type MeshFleetOptions, startMeshFleet } from "../support/mesh-fleet.ts";
import { readTreeUsage } from "../support/process-tree.ts";
import type { WaitPorts } from "../support/until.ts";

/** One kind of fleet, shown as a row. */
export interface TraceFleet {
  readonly routers: number;
  readonly sharing: "mesh" | "none";
  readonly kvEvents: boolean;
  /** Another project's router instead of ours, with its own cache-aware policy. */
  readonly peer?: InstalledPeer;
}

export interface TraceRunOptions {
  readonly fleet: TraceFleet;
  readonly requests: readonly PlannedRequest[];
  readonly engines: number;
  readonly preset: string;
  readonly policy: string;
  /** Trace and engine seconds per real second. */
  readonly speed: number;
  readonly ports: WaitPorts;
  readonly note: (line: string) => void;
}

const notesPerRun = 4;
const microsPerSecond = 1e6;

/**
 * Sends the requests of a trace through a new fleet, to its routers in turn.
 *
 * @returns figures; times are in engine seconds
 * @throws Error when the fleet does not start or a request fails
 */
export async function runTraceOnce(options: TraceRunOptions): Promise<Figures> {
  const { fleet: kind, requests, engines: count, preset, policy, speed, ports, note } = options;
  const engines = { count, preset, speed, model: benchModel, port: 0, kvEvents: kind.kvEvents };
  const fleet = kind.peer
    ? await startPeerFleet(kind.peer, engines, ports)
    : await startOwnFleet({ ...kind, engines, policy }, ports);
  try {
    const before = await fleet.routerCpuSeconds();
    const results = await replay(fleet, requests, speed, note);
    const spentS = (await fleet.routerCpuSeconds()) - before;
    const failures = describeFailures(results);
    if (failures !== undefined) throw new Error(failures);
    return traceFigures(results, { routers: kind.routers, engines: count, speed, routerCpuS: spentS });
  } finally {
    await fleet.stop();
  }
}

/** Routers in front of their own engines. */
interface ReplayFleet {
  readonly urls: readonly string[];
  /** CPU time of all routers so far. */
  routerCpuSeconds(): Promise<number>;
  stop(): Promise<void>;
}

async function startOwnFleet(options: MeshFleetOptions, ports: WaitPorts): Promise<ReplayFleet> {
  const { routers, routerCpuSeconds, stop } = await startMeshFleet(options, ports);
  return { urls: routers.map(({ url }) => url), routerCpuSeconds, stop };
}

async function startPeerFleet(
  peer: InstalledPeer,
  options: LocalEnginesOptions,
  ports: WaitPorts,
): Promise<ReplayFleet> {
  const engines = await startLocalEngines(options);
  try {
    const engineUrls = engines.listening.engines.map(({ url }) => url);
    const { url, pid, stop } = await startPeer(
      peer,
      { engineUrls, policy: peer.product.policy, plan: undefined },
      ports,
    );
    return {
      urls: [url],
      routerCpuSeconds: () => Promise.resolve(readTreeUsage(pid).cpuSeconds),
      async stop() {
        await stop();
        await engines.stop();
      },
    };
  } catch (thrown) {
    await engines.stop();
    throw thrown;
  }
}

async function replay(
  { urls }: ReplayFleet,
  requests: readonly PlannedRequest[],
  speed: number,
  note: (line: string) => void,
): Promise<readonly RequestResult[]> {
  const { signal } = new AbortController();
  // Every request in flight listens to it.
  setMaxListeners(0, signal);
  const noteEvery = Math.ceil(requests.length / notesPerRun);
  let done = 0;
  return runReplay({
    requests,
    urls,
    speed,
    concurrency: undefined,
    signal,
    onResult() {
      done += 1;
      if (done % noteEvery === 0) note(`${done} of ${requests.length} answers`);
    },
  });
}

export interface TraceContext {
  readonly routers: number;
  readonly engines: number;
  readonly speed: number;
  /** CPU time of all routers together. */
  readonly routerCpuS: number;
}

/** One row from the results of its runs. @param results at least one */
export function traceFigures(results: readonly RequestResult[], context: TraceContext): Figures {
  const { routers, engines, speed, routerCpuS } = context;
  const row = summarize(results, { engines, speed });
  const realS = row.duration_s / speed;
  const figures: Readonly<Record<string, number | undefined>> = {
    requests: row.requests,
    hit_share: row.cached_share,
    followup_hit_share: row.followup_cached_share,
    ttft_mean_s: row.ttft_mean_s,
    ttft_p50_s: row.ttft_p50_s,
    ttft_p90_s: row.ttft_p90_s,
    ttft_p99_s: row.ttft_p99_s,
    tpot_p50_s: row.tpot_p50_s,
    tpot_p99_s: row.tpot_p99_s,
    goodput_share: row.goodput_share,
    load_cov: row.load_cov,
    duration_s: realS,
    router_cpu_us_per_request: (routerCpuS * microsPerSecond) / row.requests,
    router_cpu_share: routerCpuS / realS / routers,
  };
  return Object.fromEntries(
    Object.entries(figures).filter((entry): entry is [string, number] => entry[1] !== undefined),
  );
}
