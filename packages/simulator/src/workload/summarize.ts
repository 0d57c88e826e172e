import { compareWith, defaultObjectives, type Objectives, timePerOutputTokenMs } from "@espalier/policies";

/** The outcome of one request of a run. Times are real milliseconds on one clock. */
export interface RequestResult {
  readonly index: number;
  readonly session: string;
  /** Its place in the session, from 0. */
  readonly turn: number;
  readonly startMs: number;
  /** NaN when there was none. */
  readonly firstTokenMs: number;
  readonly endMs: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Prompt tokens that the engine found in its cache, as it reports them; NaN when it does not. */
  readonly cachedTokens: number;
  /** The engine that served it, if known. */
  readonly engine: string | undefined;
  /** The failure, if any. */
  readonly error: string | undefined;
  /** What names it, if anything does. */
  readonly errorCode?: string | undefined;
  /** Sum and number of the gaps between one output token and the next. */
  readonly itlSumMs: number;
  readonly itlCount: number;
  /** Class of service, in runs with several. */
  readonly className?: string;
}

/** Maximum classes with their own figures in a row; further ones are summed up as `other`. */
export const maxClassRows = 32;

/** The labels of a row. */
export interface RunLabels {
  readonly scenario?: string;
  readonly policy?: string;
  /** Whether engines published KV events, or the router estimated their caches from its own requests. */
  readonly kv_events?: boolean;
  readonly routers?: number;
  readonly engines?: number;
  readonly sharing?: string;
  readonly seed?: number;
}

export interface RunContext extends RunLabels {
  /** Seconds of the simulated engines per real second; 1 for real engines. */
  readonly speed: number;
  /** Running plus waiting requests of every engine, one entry per sample in time. */
  readonly loadSamples?: readonly ArrayLike<number>[];
  /** `defaultObjectives` unless given. */
  readonly objectives?: Objectives | undefined;
}

/** Times in seconds. */
interface LatencyFigures {
  readonly ttft_mean_s?: number;
  readonly ttft_p50_s?: number;
  readonly ttft_p90_s?: number;
  readonly ttft_p95_s?: number;
  readonly ttft_p99_s?: number;
  readonly itl_mean_s?: number;
  /** Time per output token after the first: of each request, its mean. */
  readonly tpot_mean_s?: number;
  readonly tpot_p50_s?: number;
  readonly tpot_p90_s?: number;
  readonly tpot_p95_s?: number;
  readonly tpot_p99_s?: number;
  readonly e2e_mean_s?: number;
  readonly e2e_p50_s?: number;
  readonly e2e_p90_s?: number;
  readonly e2e_p95_s?: number;
  readonly e2e_p99_s?: number;
  /** Share of all requests, failed ones included, whose answers met the objectives. */
  readonly goodput_share?: number;
}

/** The figures of one class. Rates are over the duration of the whole run. */
interface ClassRow extends LatencyFigures {
  readonly requests: number;
  readonly errors: number;
  readonly output_tokens_per_s?: number;
  readonly requests_per_s?: number;
  readonly cached_share?: number;
}

/** One row of `espalier replay`. Seconds are those of the engines. Figures without meaning in a run are absent. */
export interface ReplayRow extends RunLabels, LatencyFigures {
  readonly requests: number;
  readonly errors: number;
  readonly duration_s: number;
  readonly output_tokens_per_s?: number;
  readonly total_tokens_per_s?: number;
  readonly requests_per_s?: number;
  readonly cached_share?: number;
  readonly followup_cached_share?: number;
  readonly load_cov?: number;
  readonly load_cov_time?: number;
  /** By class name; absent when no request has a class. */
  readonly by_class?: Readonly<Record<string, ClassRow>>;
}

/**
 * Summarizes a run. Latencies, tokens and rates cover the successful requests. The duration is that of the whole run,
 * from its first request to its last end.
 */
export function summarize(results: readonly RequestResult[], context: RunContext): ReplayRow {
  const { speed, loadSamples, objectives = defaultObjectives, ...labels } = context;
  const good = succeeded(results);
  const durationS = (spanMs(results) * speed) / 1_000;
  const measured = {
    ...latencyFigures(good, speed),
    goodput_share: goodputShare(results, { speed, objectives }),
    output_tokens_per_s: ratio(
      sum(good, (result) => result.outputTokens),
      durationS,
    ),
    total_tokens_per_s: ratio(
      sum(good, (result) => result.inputTokens + result.outputTokens),
      durationS,
    ),
    requests_per_s: ratio(good.length, durationS),
    cached_share: cachedShare(good),
    followup_cached_share: cachedShare(good.filter((result) => result.turn > 0)),
    load_cov: loadVariation(results, context.engines ?? 0),
    load_cov_time: timeVariation(loadSamples ?? []),
  };
  const classes = groupByClass(results);
  return {
    ...labels,
    requests: results.length,
    errors: results.length - good.length,
    duration_s: durationS,
    ...present(measured),
    ...(classes.size === 0
      ? {}
      : {
          by_class: Object.fromEntries(
            [...classes].map(([name, of]) => [name, classRow(of, durationS, { speed, objectives })]),
          ),
        }),
  };
}

function classRow(results: readonly RequestResult[], durationS: number, measure: Measure): ClassRow {
  const good = succeeded(results);
  const measured = {
    ...latencyFigures(good, measure.speed),
    goodput_share: goodputShare(results, measure),
    output_tokens_per_s: ratio(
      sum(good, (result) => result.outputTokens),
      durationS,
    ),
    requests_per_s: ratio(good.length, durationS),
    cached_share: cachedShare(good),
  };
  return { requests: results.length, errors: results.length - good.length, ...present(measured) };
}

interface Measure {
  readonly speed: number;
  readonly objectives: Objectives;
}

/** Share of all requests, failed ones included, whose answers met the objectives; NaN of none. */
export function goodputShare(results: readonly RequestResult[], { speed, objectives }: Measure): number {
  const inRealMs = { ttftMs: objectives.ttftMs / speed, tpotMs: objectives.tpotMs / speed };
  const kept = results.filter((result) => {
    const times = { ttftMs: result.firstTokenMs - result.startMs, tpotMs: timePerOutputTokenMs(result) };
    return result.error === undefined && compareWith(inRealMs, times) === "met";
  });
  return ratio(kept.length, results.length);
}

function groupByClass(results: readonly RequestResult[]): Map<string, RequestResult[]> {
  const classes = new Map<string, RequestResult[]>();
  for (const result of results) {
    if (result.className === undefined) continue;
    const isNamed = classes.has(result.className) || classes.size < maxClassRows - 1;
    const name = isNamed ? result.className : "other";
    const members = classes.get(name);
    if (members === undefined) classes.set(name, [result]);
    else members.push(result);
  }
  return classes;
}

function succeeded(results: readonly RequestResult[]): RequestResult[] {
  return results.filter((result) => result.error === undefined);
}

/** The figures that are numbers. */
function present(figures: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(figures).filter(([, value]) => !Number.isNaN(value)));
}

function latencyFigures(good: readonly RequestResult[], speed: number): Record<string, number> {
  const seconds = (realMs: number): number => (realMs * speed) / 1_000;
  return {
    ...latencies("ttft", good, (result) => seconds(result.firstTokenMs - result.startMs)),
    itl_mean_s: ratio(
      sum(good, (result) => seconds(result.itlSumMs)),
      sum(good, (result) => result.itlCount),
    ),
    ...latencies("tpot", good, (result) => seconds(timePerOutputTokenMs(result))),
    ...latencies("e2e", good, (result) => seconds(result.endMs - result.startMs)),
  };
}

function spanMs(results: readonly RequestResult[]): number {
  let startMs = Number.POSITIVE_INFINITY;
  let endMs = Number.NEGATIVE_INFINITY;
  for (const result of results) {
    startMs = Math.min(startMs, result.startMs);
    endMs = Math.max(endMs, result.endMs);
  }
  return results.length === 0 ? 0 : endMs - startMs;
}

function latencies(
  name: "ttft" | "tpot" | "e2e",
  results: readonly RequestResult[],
  measure: (result: RequestResult) => number,
): Readonly<Record<string, number>> {
  const values = Float64Array.from(results, measure).filter((value) => !Number.isNaN(value));
  if (values.length === 0) return {};
  values.sort();
  const mean = values.reduce((total, value) => total + value, 0) / values.length;
  return {
    [`${name}_mean_s`]: mean,
    ...Object.fromEntries([50, 90, 95, 99].map((percent) => [`${name}_p${percent}_s`, percentile(values, percent)])),
  };
}

/** Over the requests whose cached tokens are known. */
function cachedShare(results: readonly RequestResult[]): number {
  const known = results.filter((result) => !Number.isNaN(result.cachedTokens));
  return ratio(
    sum(known, (result) => result.cachedTokens),
    sum(known, (result) => result.inputTokens),
  );
}

/** Variation of the requests dispatched to each engine; engines that got none count as well. */
function loadVariation(results: readonly RequestResult[], engines: number): number {
  const dispatched = new Map<string, number>();
  for (const { engine } of results) if (engine !== undefined) dispatched.set(engine, (dispatched.get(engine) ?? 0) + 1);
  if (dispatched.size === 0) return Number.NaN;
  const counts = [...dispatched.values()];
  while (counts.length < engines) counts.push(0);
  return variation(counts);
}

/** Mean over the samples in which there was any load. */
function timeVariation(samples: readonly ArrayLike<number>[]): number {
  const variations = samples.map((sample) => variation(Array.from(sample))).filter((value) => !Number.isNaN(value));
  return ratio(
    variations.reduce((total, value) => total + value, 0),
    variations.length,
  );
}

/** Standard deviation of a whole population over its mean; NaN when the mean is 0. */
function variation(values: readonly number[]): number {
  const mean = values.reduce((total, value) => total + value, 0) / values.length;
  const variance = values.reduce((total, value) => total + (value - mean) ** 2, 0) / values.length;
  return ratio(Math.sqrt(variance), mean);
}

function sum(results: readonly RequestResult[], measure: (result: RequestResult) => number): number {
  return results.reduce((total, result) => total + measure(result), 0);
}

/** NaN without values, so that the row omits it. */
function ratio(part: number, whole: number): number {
  return whole > 0 ? part / whole : Number.NaN;
}

/**
 * The p-th percentile with linear interpolation between the nearest ranks, as `numpy.percentile` computes it by
 * default; vLLM's and SGLang's serving benchmarks report their percentiles that way.
 *
 * @param ascending sorted values, at least one
 * @param percent 0 to 100
 */
export function percentile(ascending: Float64Array, percent: number): number {
  const rank = ((ascending.length - 1) * percent) / 100;
  const below = Math.floor(rank);
  const low = ascending[below]!;
  const high = ascending[Math.min(below + 1, ascending.length - 1)]!;
  return low + (high - low) * (rank - below);
}
