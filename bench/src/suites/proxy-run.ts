import type { Clock, Scheduler } from "@espalier/common";
import { percentile } from "@espalier/workload";
import { type CoreShares, type Measurement, measureLoad, type System } from "../support/measure-load.ts";
import type { Figures } from "../support/median-spread.ts";
import { directFigures, figuresOf, type LoadName, loadNames, type Measured } from "./proxy-figures.ts";
import type { ProxyFleet } from "./proxy-fleet.ts";
import { type ProxySizes, proxyLoads } from "./proxy-loads.ts";

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

const bytesPerMegabyte = 1_048_576;

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
      note(describeMeasurement(name, system, measurement));
    }
  }
  const turns = await measureLoad(fleet.tokenSystem, loads.turns, ports);
  note(describeMeasurement("turns", fleet.tokenSystem, turns));
  const agentTurns = await measureLoad(fleet.tokenSystem, loads.agentTurns, ports);
  note(describeMeasurement("agent turns", fleet.tokenSystem, agentTurns));
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
      token_cpu_us_200k_agent: agentTurns.cpuMicrosPerRequest,
    },
    shares: Object.fromEntries(
      loadNames.map((name) => [
        name,
        Object.fromEntries(fleet.systems.map((each) => [each.name, of(each)[name].shares])),
      ]),
    ),
  };
}

/** One measurement as a line of progress. */
export function describeMeasurement(
  name: LoadName | "turns" | "agent turns",
  { name: system }: System,
  measurement: Measurement,
): string {
  const { requestsPerSecond, cpuMicrosPerRequest, totalMs, shares } = measurement;
  const cpu = Number.isNaN(cpuMicrosPerRequest) ? "" : `${cpuMicrosPerRequest.toFixed(0)} us of CPU each, `;
  const times = `p50 ${percentile(totalMs, 50).toFixed(2)} ms, p99 ${percentile(totalMs, 99).toFixed(2)} ms`;
  const busy = `${percent(shares.load)} load, ${percent(shares.engine)} engine`;
  return `${name} at ${system}: ${requestsPerSecond.toFixed(0)} requests/s, ${cpu}${times} (busy: ${busy})`;
}

function percent(share: number): string {
  return `${(share * 100).toFixed(0)} %`;
}
