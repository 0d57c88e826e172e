import { type Clock, createSeededRandom, type Scheduler } from "@espalier/common";
import { runClosedLoop, runOpenLoop, type TimedJob } from "@espalier/load-driver";
import { poissonArrivals } from "@espalier/workload";
import type { PreparedRequest } from "./prepared-request.ts";
import { readTreeUsage } from "./process-tree.ts";
import { type ProcessUsage, readProcessUsage } from "./process-usage.ts";
import { createRawClient, type RawClient, type Timing } from "./raw-client.ts";

/** Something that answers requests. */
export interface System {
  readonly name: string;
  /** Where it is asked; several for engines that are asked without a router. */
  readonly urls: readonly string[];
  /** Where it tells its own CPU time and memory; absent when there is no process of its own. */
  readonly metricsUrl?: string;
  /** Its process, of which the operating system is asked instead, with all that it started. */
  readonly pid?: number;
}

/** How requests are sent: so many at a time, or so many a second at random times. */
export type Pace =
  | { readonly kind: "closed"; readonly concurrency: number }
  | { readonly kind: "open"; readonly ratePerSecond: number; readonly seed: number };

/** When sending ends. */
export type Extent = { readonly durationMs: number } | { readonly requests: number };

export interface Load {
  readonly request: PreparedRequest;
  readonly pace: Pace;
  /** Sent first and not measured, so that connections are open and code is compiled. */
  readonly warmUp: Extent;
  readonly extent: Extent;
}

/** Shares of one core, 0 to 1. */
export interface CoreShares {
  readonly system: number;
  readonly load: number;
  readonly engine: number;
}

export interface Measurement {
  readonly requests: number;
  readonly requestsPerSecond: number;
  /** CPU time of the system's process for each request; NaN when it has no process of its own. */
  readonly cpuMicrosPerRequest: number;
  /** What the system's process has grown by; NaN when it has none. */
  readonly residentGrowthBytes: number;
  /** Ascending. */
  readonly totalMs: Float64Array;
  /** Ascending. */
  readonly firstByteMs: Float64Array;
  readonly shares: CoreShares;
}

export interface MeasurePorts {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Where the engine tells its own CPU time. */
  readonly engineMetricsUrl: string;
}

/** How long requests may take beyond the time in which they are sent. */
const graceMs = 20_000;

/**
 * Sends a load to a system and measures what the client sees and what the processes use.
 *
 * @throws Error when a request fails or does not end
 */
export async function measureLoad(system: System, load: Load, ports: MeasurePorts): Promise<Measurement> {
  const client = createRawClient(system.urls, ports.clock);
  try {
    await sendAll(client, load, load.warmUp, ports);
    const before = await readUsages(system, ports);
    const startMs = ports.clock.nowMs();
    const timings = await sendAll(client, load, load.extent, ports);
    const elapsedS = (ports.clock.nowMs() - startMs) / 1_000;
    const after = await readUsages(system, ports);
    const spent = (name: keyof Usages): number => after[name] - before[name];
    return {
      requests: timings.length,
      requestsPerSecond: timings.length / elapsedS,
      cpuMicrosPerRequest: (spent("system") * 1e6) / timings.length,
      residentGrowthBytes: spent("residentBytes"),
      totalMs: Float64Array.from(timings, ({ totalMs }) => totalMs).sort(),
      firstByteMs: Float64Array.from(timings, ({ firstByteMs }) => firstByteMs).sort(),
      shares: {
        system: spent("system") / elapsedS,
        load: spent("load") / elapsedS,
        engine: spent("engine") / elapsedS,
      },
    };
  } catch (thrown) {
    const reason = thrown instanceof Error ? thrown.message : String(thrown);
    throw new Error(`a request to ${system.name} failed: ${reason}`, { cause: thrown });
  } finally {
    client.close();
  }
}

/** CPU seconds so far, and the memory of the system. */
interface Usages {
  readonly system: number;
  readonly residentBytes: number;
  readonly engine: number;
  readonly load: number;
}

async function readUsages(system: System, { engineMetricsUrl }: MeasurePorts): Promise<Usages> {
  const engine = await readProcessUsage(engineMetricsUrl);
  const own = await usageOf(system);
  const { user, system: kernel } = process.cpuUsage();
  return {
    system: own?.cpuSeconds ?? Number.NaN,
    residentBytes: own?.residentBytes ?? Number.NaN,
    engine: engine.cpuSeconds,
    load: (user + kernel) / 1e6,
  };
}

async function usageOf({ metricsUrl, pid }: System): Promise<ProcessUsage | undefined> {
  if (pid !== undefined) return readTreeUsage(pid);
  return metricsUrl === undefined ? undefined : await readProcessUsage(metricsUrl);
}

async function sendAll(
  client: RawClient,
  { request, pace }: Load,
  extent: Extent,
  ports: MeasurePorts,
): Promise<readonly Timing[]> {
  const timings: Timing[] = [];
  const failed = new AbortController();
  const job = async (): Promise<void> => {
    try {
      timings.push(await client.send(request));
    } catch (thrown) {
      failed.abort(thrown);
    }
  };
  const limitMs = ("durationMs" in extent ? extent.durationMs : 60_000) + graceMs;
  const cancel = ports.scheduler.after(limitMs, () => {
    failed.abort(new Error(`some answers were not complete after ${limitMs} ms`));
    client.close();
  });
  await runJobs(job, pace, extent, ports, failed.signal);
  cancel();
  failed.signal.throwIfAborted();
  return timings;
}

async function runJobs(
  job: () => Promise<void>,
  pace: Pace,
  extent: Extent,
  ports: MeasurePorts,
  signal: AbortSignal,
): Promise<void> {
  if (pace.kind === "open") {
    await runOpenLoop(timedJobs(job, pace, extent), ports, signal);
    return;
  }
  const endMs = "durationMs" in extent ? ports.clock.nowMs() + extent.durationMs : Number.POSITIVE_INFINITY;
  let left = "requests" in extent ? extent.requests : Number.POSITIVE_INFINITY;
  const next = (): typeof job | undefined => (left-- > 0 && ports.clock.nowMs() < endMs ? job : undefined);
  await runClosedLoop(next, pace.concurrency, signal);
}

function timedJobs(run: () => Promise<void>, pace: Pace & { kind: "open" }, extent: Extent): readonly TimedJob[] {
  const jobs: TimedJob[] = [];
  const random = createSeededRandom(pace.seed);
  for (const dueMs of poissonArrivals(pace.ratePerSecond, random)) {
    if ("durationMs" in extent ? dueMs >= extent.durationMs : jobs.length === extent.requests) break;
    jobs.push({ dueMs, run });
  }
  return jobs;
}
