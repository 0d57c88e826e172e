import type { Clock, Scheduler } from "@espalier/common";
import { percentile } from "@espalier/workload";
import { type CoreShares, type Measurement, measureLoad, type System } from "../support/measure-load.ts";
import type { Figures } from "../support/median-spread.ts";
import type { ProxyFleet } from "./proxy-fleet.ts";
import { type ProxyLoads, type ProxySizes, proxyLoads, streamTokens } from "./proxy-loads.ts";

export interface ProxyRunOptions {
  readonly sizes: ProxySizes;
  readonly seed: number;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Told of each measurement as it is done. */
  readonly note: (line: string) => void;
}

/** What one run measured. */
export interface ProxyRun {
  readonly direct: Figures;
  readonly bare: Figures;
  readonly espalier: Figures;
  /** How busy the processes were, by load and then by system. */
  readonly shares: Readonly<Record<string, Readonly<Record<string, CoreShares>>>>;
}

type LoadName = Exclude<keyof ProxyLoads, "growth" | "turns">;
type Measured = Readonly<Record<LoadName, Measurement>>;

const bytesPerMegabyte = 1_048_576;
const loadNames: readonly LoadName[] = ["small", "large", "flood", "paced", "steady"];

/**
 * Sends every load to every system, one system after the other for each load, so that what else the machine does meets
 * all of them alike.
 *
 * @throws Error when a request fails
 */
export async function runProxyOnce(fleet: ProxyFleet, options: ProxyRunOptions): Promise<ProxyRun> {
  const { sizes, seed, clock, scheduler, note } = options;
  const loads = proxyLoads(sizes, seed);
  const ports = { clock, scheduler, engineMetricsUrl: fleet.engineMetricsUrl };
  const [direct, bare, espalier] = fleet.systems;
  const growth = new Map<System, number>();
  for (const system of [bare, espalier]) {
    const { residentGrowthBytes, requests } = await measureLoad(system, loads.growth, ports);
    growth.set(system, residentGrowthBytes / bytesPerMegabyte);
    note(`${requests} prompts at ${system.name}: ${(residentGrowthBytes / bytesPerMegabyte).toFixed(1)} MB more`);
  }
  const measured = new Map<System, Partial<Record<LoadName, Measurement>>>(fleet.systems.map((each) => [each, {}]));
  for (const name of loadNames) {
    for (const system of fleet.systems) {
      const measurement = await measureLoad(system, loads[name], ports);
      measured.get(system)![name] = measurement;
      note(describe(name, system, measurement));
    }
  }
  const turns = await measureLoad(fleet.tokenSystem, loads.turns, ports);
  note(describe("turns", fleet.tokenSystem, turns));
  const of = (system: System): Measured => measured.get(system) as Measured;
  const routerFigures = (system: System): Figures => ({
    ...figuresOf(of(system), of(direct)),
    rss_growth_mb: growth.get(system)!,
  });
  return {
    direct: directFigures(of(direct)),
    bare: routerFigures(bare),
    espalier: {
      ...routerFigures(espalier),
      token_cpu_us_48k: turns.cpuMicrosPerRequest,
      token_rps_48k: turns.requestsPerSecond,
    },
    shares: Object.fromEntries(
      loadNames.map((name) => [
        name,
        Object.fromEntries(fleet.systems.map((each) => [each.name, of(each)[name].shares])),
      ]),
    ),
  };
}

/** First bytes and latencies are those beyond what a client of the engine itself sees. */
function figuresOf({ small, large, flood, paced, steady }: Measured, direct: Measured): Figures {
  return {
    rps_4k: small.requestsPerSecond,
    cpu_us_4k: small.cpuMicrosPerRequest,
    rps_48k: large.requestsPerSecond,
    cpu_us_48k: large.cpuMicrosPerRequest,
    rps_sse: flood.requestsPerSecond,
    cpu_us_sse: paced.cpuMicrosPerRequest,
    cpu_us_per_chunk: paced.cpuMicrosPerRequest / streamTokens,
    cpu_us_per_chunk_flood: flood.cpuMicrosPerRequest / streamTokens,
    first_byte_p50_ms: percentile(paced.firstByteMs, 50) - percentile(direct.paced.firstByteMs, 50),
    first_byte_p99_ms: percentile(paced.firstByteMs, 99) - percentile(direct.paced.firstByteMs, 99),
    added_48k_300rps_p50_ms: percentile(steady.totalMs, 50) - percentile(direct.steady.totalMs, 50),
    added_48k_300rps_p99_ms: percentile(steady.totalMs, 99) - percentile(direct.steady.totalMs, 99),
  };
}

function directFigures({ small, large, flood, paced, steady }: Measured): Figures {
  return {
    rps_4k: small.requestsPerSecond,
    rps_48k: large.requestsPerSecond,
    rps_sse: flood.requestsPerSecond,
    first_byte_p50_ms: percentile(paced.firstByteMs, 50),
    first_byte_p99_ms: percentile(paced.firstByteMs, 99),
    latency_48k_300rps_p50_ms: percentile(steady.totalMs, 50),
    latency_48k_300rps_p99_ms: percentile(steady.totalMs, 99),
  };
}

function describe(name: LoadName | "turns", { name: system }: System, measurement: Measurement): string {
  const { requestsPerSecond, cpuMicrosPerRequest, totalMs, shares } = measurement;
  const cpu = Number.isNaN(cpuMicrosPerRequest) ? "" : `${cpuMicrosPerRequest.toFixed(0)} us of CPU each, `;
  const times = `p50 ${percentile(totalMs, 50).toFixed(2)} ms, p99 ${percentile(totalMs, 99).toFixed(2)} ms`;
  const busy = `${percent(shares.load)} load, ${percent(shares.engine)} engine`;
  return `${name} at ${system}: ${requestsPerSecond.toFixed(0)} requests/s, ${cpu}${times} (busy: ${busy})`;
}

function percent(share: number): string {
  return `${(share * 100).toFixed(0)} %`;
}
