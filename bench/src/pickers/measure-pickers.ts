import type { Clock } from "@espalier/core";
import { percentile } from "@espalier/simulator";
import type { BenchEngine } from "../data-path/bench-engine.ts";
import { concurrency, largeBodyBytes, largeMessages, smallBodyBytes, steadyPerSecond } from "../data-path/loads.ts";
import type { SharesByLoad } from "../data-path/measure-data-path.ts";
import { type CoreShares, type Extent, type Load, type Measurement, measureLoad } from "../data-path/measure-load.ts";
import { prepareRequest } from "../data-path/prepared-request.ts";
import type { Figures } from "../support/median-spread.ts";
import type { Arrangement, Running } from "./arrangements.ts";
import { measureAlone } from "./gateway-load.ts";

/** The size of a measurement. */
interface PickerLoadSizes {
  /** Duration of each closed loop. */
  readonly closedMs: number;
  /** Duration of each load at a fixed rate. */
  readonly steadyMs: number;
  /** Distinct prompts sent to a fresh process before each closed loop, by body size. */
  readonly warmUpRequests: { readonly "4k": number; readonly "48k": number };
}

export interface MeasurePickersOptions {
  readonly arrangements: readonly Arrangement[];
  readonly engine: BenchEngine;
  readonly sizes: PickerLoadSizes;
  readonly clock: Clock;
  readonly note: (line: string) => void;
}

/** One run: figures by owner of the arrangement, `direct` for the engines themselves. */
export interface PickersRun {
  readonly figures: Readonly<Record<string, Figures>>;
  readonly shares: SharesByLoad;
}

const bodySizes = ["4k", "48k"] as const;
type BodySize = (typeof bodySizes)[number];

const requests = {
  "4k": prepareRequest({ bodyBytes: smallBodyBytes, messages: 2 }),
  "48k": prepareRequest({ bodyBytes: largeBodyBytes, messages: largeMessages }),
} as const;
const rate = `${steadyPerSecond}rps`;

/**
 * Measures one arrangement after the other, each in fresh processes, with the same requests in the same order.
 *
 * @param round selects the arrivals, and the first arrangement
 * @throws Error when a request fails
 */
export async function measurePickers(options: MeasurePickersOptions, round: number): Promise<PickersRun> {
  const { arrangements, engine, sizes, note } = options;
  const figures: Record<string, Record<string, number>> = { direct: {} };
  const shares: Record<string, Record<string, CoreShares>> = {};
  const direct = {} as Record<BodySize, Measurement>;
  for (const size of bodySizes) {
    const load = steadyLoad(size, sizes, round);
    direct[size] = await measureLoad({ name: "direct", urls: engine.urls }, load, engine.pid);
    const [p50, p99] = latencies(direct[size]);
    Object.assign(figures.direct!, { [`latency_${size}_p50_ms`]: p50, [`latency_${size}_p99_ms`]: p99 });
    note(`direct, ${size} at ${rate}: p50 ${p50.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms`);
  }
  const first = round % arrangements.length;
  for (const arrangement of [...arrangements.slice(first), ...arrangements.slice(0, first)]) {
    const { running, stop } = await arrangement.start(engine.urls);
    try {
      const measured =
        "alone" in running
          ? await measureAloneFigures(running, options)
          : await measureHttp(arrangement, running, direct, options, round, (load, each) => {
              shares[load] = { ...shares[load], [arrangement.name]: each };
            });
      const named = Object.entries(measured).map(([name, value]) => [`${name}${arrangement.suffix}`, value] as const);
      figures[arrangement.owner] = { ...figures[arrangement.owner], ...Object.fromEntries(named) };
      note(`${arrangement.name}: ${named.map(([name, value]) => `${name} ${value.toFixed(2)}`).join(", ")}`);
    } finally {
      await stop();
    }
  }
  return { figures, shares };
}

async function measureHttp(
  { isEnvoy }: Arrangement,
  { system }: Extract<Running, { readonly system: unknown }>,
  direct: Readonly<Record<BodySize, Measurement>>,
  { engine, sizes }: MeasurePickersOptions,
  round: number,
  keep: (load: string, shares: CoreShares) => void,
): Promise<Figures> {
  const figures: Record<string, number> = {};
  const cpuOf = ({ cpuMicrosPerRequest, cpuMicrosBesides }: Measurement, at: string): void => {
    const besides = Object.entries(cpuMicrosBesides);
    figures[`cpu_us_${at}`] = besides.reduce((sum, [, each]) => sum + each, cpuMicrosPerRequest);
    if (isEnvoy) figures[`envoy_cpu_us_${at}`] = cpuMicrosPerRequest;
    for (const [name, each] of besides) figures[`${name}_cpu_us_${at}`] = each;
  };
  for (const size of bodySizes) {
    const closed = await measureLoad(system, closedLoad(size, sizes), engine.pid);
    keep(size, closed.shares);
    cpuOf(closed, size);
    figures[`rps_${size}`] = closed.requestsPerSecond;
  }
  for (const size of bodySizes) {
    const steady = await measureLoad(system, steadyLoad(size, sizes, round), engine.pid);
    keep(`${size} at ${rate}`, steady.shares);
    cpuOf(steady, `${size}_${rate}`);
    const [p50, p99] = latencies(steady);
    const [directP50, directP99] = latencies(direct[size]);
    figures[`added_${size}_p50_ms`] = p50 - directP50;
    figures[`added_${size}_p99_ms`] = p99 - directP99;
  }
  return figures;
}

async function measureAloneFigures(
  { alone }: Extract<Running, { readonly alone: unknown }>,
  { sizes, clock }: MeasurePickersOptions,
): Promise<Figures> {
  const figures: Record<string, number> = {};
  for (const size of bodySizes) {
    const { request, warmUp, extent } = closedLoad(size, sizes);
    const measured = await measureAlone(alone, { request, concurrency, warmUp, extent, clock });
    figures[`picker_cpu_us_${size}`] = measured.cpuMicrosPerRequest;
    figures[`rps_${size}`] = measured.requestsPerSecond;
  }
  return figures;
}

function closedLoad(size: BodySize, { closedMs, warmUpRequests }: PickerLoadSizes): Load & { readonly warmUp: Extent } {
  return {
    request: requests[size],
    pace: { kind: "closed", concurrency },
    warmUp: { requests: warmUpRequests[size] },
    extent: { durationMs: closedMs },
  };
}

function steadyLoad(size: BodySize, { steadyMs }: PickerLoadSizes, seed: number): Load {
  return {
    request: requests[size],
    pace: { kind: "open", ratePerSecond: steadyPerSecond, seed },
    warmUp: { durationMs: steadyMs / 4 },
    extent: { durationMs: steadyMs },
  };
}

/** The median and the 99th percentile, in milliseconds. */
function latencies({ totalMs }: Measurement): readonly [number, number] {
  return [percentile(totalMs, 50), percentile(totalMs, 99)];
}
