import { percentile } from "@espalier/simulator";
import { steadyPerSecond } from "../data-path/loads.ts";
import { type Load, type Measurement, measureLoad, type System } from "../data-path/measure-load.ts";
import type { PreparedRequest } from "../data-path/prepared-request.ts";
import type { Figures } from "../support/median-spread.ts";
import type { MeshFleet } from "../support/mesh-fleet.ts";

export interface RoutersLoad {
  readonly request: PreparedRequest;
  /** Of the closed loop; the open loop takes twice as long. */
  readonly durationMs: number;
  /** For each router, all of which share a core: V8 compiles hot code only after some thousand requests. */
  readonly warmUpMs: number;
  readonly concurrency: number;
  /** Of the arrivals. */
  readonly seed: number;
}

/** The engines without a router. @returns times to the last byte, ascending, at the rate of the open loop */
export async function measureDirect(urls: readonly string[], load: RoutersLoad, enginePid: number) {
  return (await measureLoad({ name: "the engines", urls }, openLoop(load), enginePid)).totalMs;
}

/**
 * Measures all routers of a fleet under one load, which goes to them in turn.
 *
 * @param directMs what clients of the engines see
 * @throws Error when a request fails
 */
export async function measureRouters(
  { routers, pids }: Pick<MeshFleet, "routers" | "pids">,
  load: RoutersLoad,
  { enginePid, directMs }: { readonly enginePid: number; readonly directMs: Float64Array },
): Promise<Figures> {
  const { request, durationMs, warmUpMs, concurrency } = load;
  const system: System = {
    name: `${routers.length} routers`,
    urls: routers.map(({ url }) => url),
    besides: Object.fromEntries(pids.map((pid, index) => [`router-${index + 1}`, pid])),
  };
  const closed: Load = {
    request,
    pace: { kind: "closed", concurrency },
    warmUp: { durationMs: warmUpMs * routers.length },
    extent: { durationMs },
  };
  const full = await measureLoad(system, closed, enginePid);
  const steady = await measureLoad(system, openLoop(load), enginePid);
  const added = (share: number): number => percentile(steady.totalMs, share) - percentile(directMs, share);
  return {
    rps: full.requestsPerSecond,
    cpu_us_per_request: cpuOf(full),
    steady_cpu_us_per_request: cpuOf(steady),
    added_p50_ms: added(50),
    added_p99_ms: added(99),
  };
}

const cpuOf = ({ cpuMicrosBesides }: Measurement): number =>
  Object.values(cpuMicrosBesides).reduce((sum, each) => sum + each, 0);

function openLoop({ request, durationMs, seed }: RoutersLoad): Load {
  return {
    request,
    pace: { kind: "open", ratePerSecond: steadyPerSecond, seed },
    warmUp: { durationMs: durationMs / 2 },
    extent: { durationMs: durationMs * 2 },
  };
}
