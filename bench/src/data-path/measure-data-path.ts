import { percentile } from "@espalier/simulator";
import { roundRobin } from "../peers/products.ts";
import type { Figures } from "../support/median-spread.ts";
import { readTreeUsage } from "../support/process-tree.ts";
import type { BenchEngine } from "./bench-engine.ts";
import type { Contender } from "./contenders.ts";
import { measureGarbage } from "./garbage.ts";
import {
  agentTurnLoad,
  burstStreams,
  coldLargeLoad,
  dataPathLoads,
  garbageLoad,
  type LoadName,
  type LoadSizes,
  loadNames,
  streamGapMs,
  streamTokens,
  turnLoad,
} from "./loads.ts";
import { type CoreShares, type Load, type Measurement, measureLoad, type System } from "./measure-load.ts";
import { measureWithWrk } from "./wrk.ts";

export interface DataPathOptions {
  readonly contenders: readonly Contender[];
  readonly engine: BenchEngine;
  readonly sizes: LoadSizes;
  /** Whether the short loads are repeated under round robin for contenders with another policy. */
  readonly isRoundRobinToo: boolean;
  /** Whether `wrk` repeats the closed loops as a check of our own load generator. */
  readonly isCheckedByWrk: boolean;
  readonly note: (line: string) => void;
}

/** The result of one contender: its figures, or why it has none. */
export type ContenderOutcome = { readonly figures: Figures } | { readonly failure: string };

/** How busy the processes were, by load and then by system. */
export type SharesByLoad = Readonly<Record<string, Readonly<Record<string, CoreShares>>>>;

export interface DataPathRun {
  /** What a client sees when it asks the engine directly. */
  readonly direct: Figures;
  readonly outcomes: ReadonlyMap<string, ContenderOutcome>;
  readonly shares: SharesByLoad;
}

type Measured = Readonly<Record<LoadName, Measurement>>;

const bytesPerMegabyte = 1_048_576;
/** Share of a stream's time: timers may fire slightly early, and the differences add up. */
const leastPacedShare = 0.9;
/** Loads that measure the engine itself. */
const directLoads: readonly LoadName[] = ["small", "large", "flood", "paced", "burst", "steady"];

/**
 * Measures one contender after the other. Each runs in a fresh process, with no other contender running, and gets the
 * same requests in the same order, so all are equally warm. A contender that fails is left out.
 *
 * @param round selects the arrivals and the first contender
 * @throws Error when the engines themselves fail
 */
export async function measureDataPath(options: DataPathOptions, round: number): Promise<DataPathRun> {
  const { engine } = options;
  const loads = dataPathLoads(options.sizes, round);
  const direct = {} as Record<LoadName, Measurement>;
  for (const name of directLoads) {
    direct[name] = await measure(name, { name: "direct", urls: engine.urls }, loads[name], options);
  }
  const { outcomes, shares } = await measureEach(options, round, (contender, keep) =>
    measureContender(contender, loads, direct, options, keep),
  );
  const withDirect = directLoads.map((name) => [name, { direct: direct[name].shares, ...shares[name] }]);
  return { direct: directFigures(direct), outcomes, shares: { ...shares, ...Object.fromEntries(withDirect) } };
}

type Keep = (load: string, system: string, measured: Measurement) => void;

/** Measures each contender, each round from another first one. A contender that fails is left out. */
export async function measureEach(
  { contenders, note }: DataPathOptions,
  round: number,
  work: (contender: Contender, keep: Keep) => Promise<Figures>,
): Promise<Pick<DataPathRun, "outcomes" | "shares">> {
  const shares: Record<string, Record<string, CoreShares>> = {};
  const keep: Keep = (load, system, measured) => {
    shares[load] = { ...shares[load], [system]: measured.shares };
  };
  const outcomes = new Map<string, ContenderOutcome>();
  const first = round % Math.max(1, contenders.length);
  for (const contender of [...contenders.slice(first), ...contenders.slice(0, first)]) {
    try {
      outcomes.set(contender.name, { figures: await work(contender, keep) });
    } catch (thrown) {
      const failure = thrown instanceof Error ? thrown.message : String(thrown);
      note(`${contender.name} skipped: ${failure}`);
      outcomes.set(contender.name, { failure });
    }
  }
  return { outcomes, shares };
}

/** Above this share of its cores, the load generator or the engine may limit the rate. */
const saturatedShare = 0.95;

/** @param otherCores cores of load generator and engine; undefined when nothing is pinned */
export function saturationWarnings(
  runs: readonly { readonly shares: SharesByLoad }[],
  otherCores = 1,
): readonly string[] {
  const warnings = new Set<string>();
  for (const { shares } of runs) {
    for (const [load, systems] of Object.entries(shares)) {
      for (const [system, { load: generator, engine }] of Object.entries(systems)) {
        const busiest = Math.max(generator, engine, (generator + engine) / otherCores);
        // Nothing else can limit the engine when it is asked directly.
        if (system === "direct" || busiest < saturatedShare) continue;
        warnings.add(`${load} at ${system}: load generator or engine was saturated, so its rate is a lower bound`);
      }
    }
  }
  return [...warnings];
}

async function measureContender(
  contender: Contender,
  loads: Readonly<Record<LoadName, Load>>,
  direct: Measured,
  options: DataPathOptions,
  keep: Keep,
): Promise<Figures> {
  const { sizes, engine, isRoundRobinToo, isCheckedByWrk } = options;
  const figures: Record<string, number> = {};
  if (contender.isTokenized) {
    await withSystem(contender, contender.policy, options, async (system) => {
      const turns = await measure("turns", system, turnLoad(sizes), options);
      const agent = await measure("agent turns", system, agentTurnLoad(sizes), options);
      figures.token_cpu_us_48k = turns.cpuMicrosPerRequest;
      figures.token_rps_48k = turns.requestsPerSecond;
      figures.token_cpu_us_200k_agent = agent.cpuMicrosPerRequest;
    });
    return figures;
  }
  await withSystem(contender, contender.policy, options, async (system) => {
    const idleMb = readTreeUsage(system.pid).residentBytes / bytesPerMegabyte;
    const measured = {} as Record<LoadName, Measurement>;
    for (const name of loadNames) {
      measured[name] = await measure(name, system, loads[name], options);
      keep(name, contender.name, measured[name]);
      if (name === "paced") assertPaced(measured[name]);
    }
    Object.assign(figures, figuresOf(measured, direct), { rss_idle_mb: idleMb });
    if (!isCheckedByWrk) return;
    figures.cpu_us_4k_wrk = await measureWithWrk(system, loads.small.request, sizes.durationMs);
    figures.cpu_us_48k_wrk = await measureWithWrk(system, loads.large.request, sizes.durationMs);
  });
  await withSystem(contender, contender.policy, options, async (system) => {
    const cold = await measure("large, cold", system, coldLargeLoad(sizes), options);
    figures.cpu_us_48k_cold = cold.cpuMicrosPerRequest;
  });
  if (contender.startTraced) {
    figures.garbage_bytes_per_request = await measureGarbage(contender.startTraced, garbageLoad(sizes), engine);
  }
  if (isRoundRobinToo && contender.policy !== roundRobin) {
    await withSystem(contender, roundRobin, options, async (system) => {
      for (const name of ["first", "early", "small", "large"] as const) {
        const { cpuMicrosPerRequest } = await measure(`${name}, round robin`, system, loads[name], options);
        if (name === "small") figures[`${roundRobin}_cpu_us_4k`] = cpuMicrosPerRequest;
        if (name === "large") figures[`${roundRobin}_cpu_us_48k`] = cpuMicrosPerRequest;
      }
    });
  }
  return figures;
}

export async function withSystem(
  contender: Contender,
  policy: string,
  { engine }: DataPathOptions,
  work: (system: System & { readonly pid: number }) => Promise<void>,
): Promise<void> {
  const { system, stop } = await contender.start(engine.urls, policy);
  try {
    await work(system);
  } finally {
    await stop();
  }
}

export async function measure(
  name: string,
  system: System,
  load: Load,
  { engine, note }: DataPathOptions,
): Promise<Measurement> {
  const measured = await measureLoad(system, load, engine.pid);
  const { requestsPerSecond, cpuMicrosPerRequest, totalMs, shares } = measured;
  const cpu = Number.isNaN(cpuMicrosPerRequest) ? "" : `${cpuMicrosPerRequest.toFixed(0)} us of CPU each, `;
  const times = `p50 ${percentile(totalMs, 50).toFixed(2)} ms, p99 ${percentile(totalMs, 99).toFixed(2)} ms`;
  const busy = `${percent(shares.load)} load, ${percent(shares.engine)} engine`;
  note(`${name} at ${system.name}: ${requestsPerSecond.toFixed(0)} requests/s, ${cpu}${times} (busy: ${busy})`);
  return measured;
}

/** @throws Error when answers came sooner than the engine sends them, because the contender then changed the request */
function assertPaced({ totalMs }: Measurement): void {
  const leastMs = (streamTokens - 1) * streamGapMs * leastPacedShare;
  if (percentile(totalMs, 50) < leastMs) throw new Error("it did not pass on how the answer is to be streamed");
}

/** First bytes and latencies exclude what a client of the engine itself sees. */
function figuresOf(measured: Measured, direct: Measured): Figures {
  const { first, early, growth, small, large, long, longest, flood, paced, burst, steady, smallLate, largeLate } =
    measured;
  const added = (name: LoadName, of: "firstByteMs" | "totalMs", share: number): number =>
    percentile(measured[name][of], share) - percentile(direct[name][of], share);
  const cold = [first, early, growth];
  const sum = (value: (each: Measurement) => number): number => cold.reduce((total, each) => total + value(each), 0);
  return {
    cpu_us_4k: small.cpuMicrosPerRequest,
    cpu_us_4k_cold: sum((each) => each.cpuMicrosPerRequest * each.requests) / sum((each) => each.requests),
    cpu_us_4k_late: smallLate.cpuMicrosPerRequest,
    cpu_us_48k_late: largeLate.cpuMicrosPerRequest,
    cpu_us_first_100: first.cpuMicrosPerRequest,
    cpu_us_48k: large.cpuMicrosPerRequest,
    cpu_us_200k: long.cpuMicrosPerRequest,
    cpu_us_400k: longest.cpuMicrosPerRequest,
    cpu_us_48k_300rps: steady.cpuMicrosPerRequest,
    rps_4k: small.requestsPerSecond,
    rps_48k: large.requestsPerSecond,
    rps_200k: long.requestsPerSecond,
    rps_400k: longest.requestsPerSecond,
    rps_sse: flood.requestsPerSecond,
    cpu_us_sse: paced.cpuMicrosPerRequest,
    cpu_us_per_chunk: paced.cpuMicrosPerRequest / streamTokens,
    cpu_us_per_chunk_burst: burst.cpuMicrosPerRequest / streamTokens,
    cpu_us_per_chunk_flood: flood.cpuMicrosPerRequest / streamTokens,
    first_byte_p50_ms: added("paced", "firstByteMs", 50),
    first_byte_p99_ms: added("paced", "firstByteMs", 99),
    [`first_byte_of_${burstStreams}_p50_ms`]: added("burst", "firstByteMs", 50),
    [`first_byte_of_${burstStreams}_p99_ms`]: added("burst", "firstByteMs", 99),
    added_48k_300rps_p50_ms: added("steady", "totalMs", 50),
    added_48k_300rps_p99_ms: added("steady", "totalMs", 99),
    rss_growth_mb: growth.residentGrowthBytes / bytesPerMegabyte,
  };
}

function directFigures({ small, large, flood, paced, burst, steady }: Measured): Figures {
  return {
    rps_4k: small.requestsPerSecond,
    rps_48k: large.requestsPerSecond,
    rps_sse: flood.requestsPerSecond,
    first_byte_p50_ms: percentile(paced.firstByteMs, 50),
    first_byte_p99_ms: percentile(paced.firstByteMs, 99),
    [`first_byte_of_${burstStreams}_p50_ms`]: percentile(burst.firstByteMs, 50),
    [`first_byte_of_${burstStreams}_p99_ms`]: percentile(burst.firstByteMs, 99),
    latency_48k_300rps_p50_ms: percentile(steady.totalMs, 50),
    latency_48k_300rps_p99_ms: percentile(steady.totalMs, 99),
  };
}

function percent(share: number): string {
  return `${(share * 100).toFixed(0)} %`;
}
