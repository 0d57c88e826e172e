import type { Clock, Scheduler } from "@espalier/common";
import { percentile } from "@espalier/workload";
import { directFigures, figuresOf, type LoadName, loadNames, type Measured } from "../suites/proxy-figures.ts";
import { type ProxyLoads, type ProxySizes, proxyLoads, streamGapMs, streamTokens } from "../suites/proxy-loads.ts";
import { describeMeasurement } from "../suites/proxy-run.ts";
import { type Load, type Measurement, measureLoad, type System } from "../support/measure-load.ts";
import type { Figures } from "../support/median-spread.ts";
import { readTreeUsage } from "../support/process-tree.ts";
import type { Contender, RunningContender } from "./contenders.ts";
import { roundRobin } from "./products.ts";

export interface DataPathOptions {
  readonly contenders: readonly Contender[];
  readonly engineUrls: readonly string[];
  readonly sizes: ProxySizes;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly note: (line: string) => void;
}

/** What became of one contender: its figures, or why there are none. */
export type ContenderOutcome = { readonly figures: Figures } | { readonly failure: string };

export interface DataPathRun {
  readonly direct: Figures;
  readonly outcomes: ReadonlyMap<string, ContenderOutcome>;
}

const bytesPerMegabyte = 1_048_576;
const directName = "direct";
/** Of the time that a stream takes: timers may be a little early, together. */
const leastPacedShare = 0.9;
/** The loads that are repeated under round robin. */
const roundRobinLoads: readonly LoadName[] = ["small", "large"];

/**
 * Starts each contender by itself, freshly, and sends it distinct prompts.
 *
 * @returns its memory before the first prompt and what it grew by
 */
export async function measureMemory(options: DataPathOptions): Promise<ReadonlyMap<string, ContenderOutcome>> {
  const { contenders, engineUrls, sizes, note } = options;
  const { growth } = proxyLoads(sizes, 1);
  const outcomes = new Map<string, ContenderOutcome>();
  for (const contender of contenders) {
    const outcome = await attempt(contender.name, note, async () => {
      const { system, stop } = await contender.start(engineUrls, contender.policy);
      try {
        const idleMb = readTreeUsage(system.pid).residentBytes / bytesPerMegabyte;
        const { residentGrowthBytes } = await measureLoad(system, growth, portsOf(options));
        const figures = { rss_idle_mb: idleMb, rss_growth_mb: residentGrowthBytes / bytesPerMegabyte };
        note(`${contender.name}: ${idleMb.toFixed(0)} MB idle, ${figures.rss_growth_mb.toFixed(1)} MB more`);
        return figures;
      } finally {
        await stop();
      }
    });
    outcomes.set(contender.name, outcome);
  }
  return outcomes;
}

/**
 * Starts all contenders beside each other and sends every load to one after the other, so that what else the machine does
 * meets all of them alike. One that fails is left out from then on.
 *
 * @param round of arrivals, and of who comes first
 * @throws Error when the engines themselves fail
 */
export async function measureDataPath(options: DataPathOptions, round: number): Promise<DataPathRun> {
  const { contenders, engineUrls, sizes, note } = options;
  const loads = warmedByRequests(proxyLoads(sizes, round), sizes.growthWarmUpRequests);
  const ports = portsOf(options);
  const direct: Partial<Record<LoadName, Measurement>> = {};
  const entries = await startEntries(options, round);
  const measure = async (name: LoadName, system: System): Promise<Measurement> => {
    const measurement = await measureLoad(system, loads[name], ports);
    note(describeMeasurement(name, system, measurement));
    return measurement;
  };
  try {
    for (const load of loadNames) {
      direct[load] = await measure(load, { name: directName, urls: engineUrls });
      for (const entry of entries) {
        if (entry.failure !== undefined || !entry.running || !entry.loads.includes(load)) continue;
        const { system } = entry.running;
        const failure = await failureOf(async () => {
          const measurement = await measure(load, system);
          if (load === "paced") assertPaced(measurement);
          entry.measured[load] = measurement;
        });
        if (failure !== undefined) note(`${entry.key} is left out from here: ${failure}`);
        entry.failure = failure;
      }
    }
  } finally {
    await Promise.all(entries.map((entry) => entry.running?.stop()));
  }
  const base = direct as Measured;
  return {
    direct: directFigures(base),
    outcomes: new Map(contenders.map(({ name }) => [name, outcomeOf(name, entries, base)])),
  };
}

/** Processes are fresh, and what compiles while it runs does so by how often, not by how long it has run. */
function warmedByRequests(loads: ProxyLoads, requests: number): ProxyLoads {
  const warmed = (load: Load, share: number): Load => ({ ...load, warmUp: { requests: Math.ceil(requests * share) } });
  const { small, large, flood } = loads;
  return { ...loads, small: warmed(small, 1), large: warmed(large, 0.5), flood: warmed(flood, 0.2) };
}

/** @throws Error when answers came sooner than the engine gives them: then the contender has changed the request */
function assertPaced({ totalMs }: Measurement): void {
  const leastMs = (streamTokens - 1) * streamGapMs * leastPacedShare;
  if (percentile(totalMs, 50) < leastMs) throw new Error("it did not pass on how the answer is to be streamed");
}

/** A contender under one policy. */
interface Entry {
  readonly contender: string;
  readonly key: string;
  readonly loads: readonly LoadName[];
  readonly measured: Partial<Record<LoadName, Measurement>>;
  running: RunningContender | undefined;
  failure: string | undefined;
}

async function startEntries({ contenders, engineUrls, note }: DataPathOptions, round: number): Promise<Entry[]> {
  const entries: Entry[] = [];
  const add = async (contender: Contender, policy: string, loads: readonly LoadName[]): Promise<void> => {
    const key = `${contender.name} ${policy}`;
    const entry: Entry = {
      contender: contender.name,
      key,
      loads,
      measured: {},
      running: undefined,
      failure: undefined,
    };
    entries.push(entry);
    entry.failure = await failureOf(async () => {
      const { system, stop } = await contender.start(engineUrls, policy);
      entry.running = { system: { ...system, name: key }, stop };
    });
    if (entry.failure !== undefined) note(`${key} does not start: ${entry.failure}`);
  };
  for (const contender of contenders) {
    await add(contender, contender.policy, loadNames);
    if (contender.alsoRoundRobin) await add(contender, roundRobin, roundRobinLoads);
  }
  const first = round % Math.max(1, entries.length);
  return [...entries.slice(first), ...entries.slice(0, first)];
}

/** The figures of a contender, those under round robin with that in front of their names. */
function outcomeOf(name: string, entries: readonly Entry[], direct: Measured): ContenderOutcome {
  const own = entries.filter(({ contender }) => contender === name);
  const main = own.find(({ loads }) => loads === loadNames);
  if (main?.failure !== undefined) return { failure: main.failure };
  const figures: Record<string, number> = { ...figuresOf(main?.measured as Measured, direct) };
  const turns = own.find(({ loads }) => loads === roundRobinLoads);
  if (turns && turns.failure === undefined) {
    const { small, large } = turns.measured;
    Object.assign(figures, {
      [`${roundRobin}_rps_4k`]: small!.requestsPerSecond,
      [`${roundRobin}_cpu_us_4k`]: small!.cpuMicrosPerRequest,
      [`${roundRobin}_rps_48k`]: large!.requestsPerSecond,
      [`${roundRobin}_cpu_us_48k`]: large!.cpuMicrosPerRequest,
    });
  }
  return { figures };
}

function portsOf({ clock, scheduler, engineUrls }: DataPathOptions) {
  return { clock, scheduler, engineMetricsUrl: `${engineUrls[0]}/metrics` };
}

async function attempt(
  name: string,
  note: (line: string) => void,
  work: () => Promise<Figures>,
): Promise<ContenderOutcome> {
  let figures: Figures = {};
  const failure = await failureOf(async () => {
    figures = await work();
  });
  if (failure === undefined) return { figures };
  note(`${name}: ${failure}`);
  return { failure };
}

/** @returns why it failed, or undefined */
async function failureOf(work: () => Promise<void>): Promise<string | undefined> {
  try {
    await work();
    return undefined;
  } catch (thrown) {
    return thrown instanceof Error ? thrown.message : String(thrown);
  }
}
