import {
  type CounterSeries,
  counterOf,
  gaugeOf,
  type HistogramSeries,
  LatencyWindow,
  type Meter,
} from "@espalier/core";
import type { FailureKind } from "@espalier/routing";
import type { Goodput } from "./goodput.ts";
import type { HookAnswer, RequestOutcome } from "./request-outcome.ts";

/** Totals over all finished requests, and how many of them ended in each way. */
export interface RequestTotals extends Record<RequestOutcome, number> {
  requests: number;
  /** Of the refused ones, those with status 429. */
  limited: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  /** Number of requests with a first byte, and the seconds until it came. */
  firstBytes: number;
  firstByteS: number;
  /** Requests whose answers met their objectives, and those that did not. */
  met: number;
  missed: number;
  /** Streams of more than one token, and the sum of their times per output token in seconds. */
  streams: number;
  tpotS: number;
}

/** Requests of one model and class that met their objectives or missed them. */
interface GoodputCounts {
  readonly model: string;
  readonly class: string;
  met: number;
  missed: number;
  /** What the latest of them had to keep, in milliseconds; null for no objective. */
  ttftMs: number | null;
  tpotMs: number | null;
}

/** Most pairs of model and class that are counted; the requests of others are in the totals only. */
export const maxGoodputRows = 64;

/** The router's request metrics. Series are looked up once and cached. */
export interface RequestMetrics {
  /** Totals since the start; a live object. */
  readonly totals: Readonly<RequestTotals>;
  /** Times to the first byte since it was last cleared. */
  readonly firstBytes: LatencyWindow;
  /** Times per output token since it was last cleared. */
  readonly tokenTimes: LatencyWindow;
  /** By model and class, since the start; live objects. */
  goodput(): readonly Readonly<GoodputCounts>[];
  /**
   * @param firstByteMs from acceptance to the first content of the engine's answer; NaN when none came
   * @param goodput undefined for a request that does not count
   */
  finished(endpoint: string, request: HookAnswer, firstByteMs: number, goodput?: Goodput): void;
  decided(policy: string, reason: string): void;
  /** Router time before a request was dispatched, in seconds. */
  overhead(seconds: number): void;
  inFlight(count: number): void;
}

const latencyBuckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
const tpotBuckets = [0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1];
const overheadBuckets = [0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1];

interface EndpointSeries {
  readonly requests: CounterSeries;
  readonly duration: HistogramSeries;
  readonly firstByte: HistogramSeries;
}

interface ModelSeries {
  readonly prompt: CounterSeries;
  readonly cached: CounterSeries;
  readonly completion: CounterSeries;
}

export function createRequestMetrics(meter: Meter): RequestMetrics {
  const requests = meter.counter(
    "espalier_requests_total",
    "Finished requests, by endpoint, served model, status and outcome: answered, refused (429 or 503), failed, cut after the first content, or cancelled by the client.",
    ["endpoint", "model", "status", "outcome"],
  );
  const duration = meter.histogram(
    "espalier_request_duration_seconds",
    "Time from acceptance to the end of the answer, in seconds.",
    latencyBuckets,
    ["endpoint", "model"],
  );
  const firstByte = meter.histogram(
    "espalier_time_to_first_byte_seconds",
    "Time from acceptance to the first content of the engine's answer, in seconds; comments and opening events do not count.",
    latencyBuckets,
    ["endpoint", "model"],
  );
  const tokens = meter.counter(
    "espalier_tokens_total",
    "Tokens by the engines' usage reports: prompt, cached (part of prompt), completion.",
    ["model", "kind"],
  );
  const tpot = meter.histogram(
    "espalier_time_per_output_token_seconds",
    "Mean time per output token after the first of each stream, by model and class, in seconds.",
    tpotBuckets,
    ["model", "class"],
  );
  const slo = meter.counter(
    "espalier_slo_requests_total",
    "Requests by model, class and objectives (`slo`): `met`, `ttft_missed`, `tpot_missed`, `both_missed` (also late answers without a stream), or `failed` (429 and 503 included). Client errors and cancellations are not counted. Goodput is the share of `met`.",
    ["model", "class", "result"],
  );
  const decisions = meter.counter("espalier_decisions_total", "Routing decisions, by policy and reason.", [
    "policy",
    "reason",
  ]);
  const overhead = meter
    .histogram(
      "espalier_overhead_seconds",
      "Router time from a complete request to its dispatch, in seconds.",
      overheadBuckets,
    )
    .series();
  const inFlight = gaugeOf(meter, "espalier_requests_in_flight", "Requests in flight.");
  const endpointSeries = createCache<EndpointSeries>((endpoint, model, status, outcome) => ({
    requests: requests.series(endpoint, model, status, outcome),
    duration: duration.series(endpoint, model),
    firstByte: firstByte.series(endpoint, model),
  }));
  const modelSeries = createCache<ModelSeries>((model) => ({
    prompt: tokens.series(model, "prompt"),
    cached: tokens.series(model, "cached"),
    completion: tokens.series(model, "completion"),
  }));
  const tpotSeries = createCache<HistogramSeries>((model, className) => tpot.series(model, className));
  const sloSeries = createCache<CounterSeries>((model, className, result) => slo.series(model, className, result));
  const decisionSeries = createCache<CounterSeries>((policy, reason) => decisions.series(policy, reason));

  const totals = createTotals();
  const firstBytes = new LatencyWindow();
  const tokenTimes = new LatencyWindow();
  const goodputRows = new Map<string, GoodputCounts>();
  const measured = ({ model, className, objectives, result, tpotMs }: Goodput): void => {
    const key = `${className} ${model}`;
    const row = goodputRows.get(key) ?? { model, class: className, met: 0, missed: 0, ttftMs: null, tpotMs: null };
    if (goodputRows.size < maxGoodputRows) goodputRows.set(key, row);
    row.ttftMs = orNull(objectives.ttftMs);
    row.tpotMs = orNull(objectives.tpotMs);
    for (const counts of [row, totals]) counts[result === "met" ? "met" : "missed"] += 1;
    sloSeries(model, className, result).add();
    if (Number.isNaN(tpotMs)) return;
    tokenTimes.add(tpotMs);
    totals.streams += 1;
    totals.tpotS += tpotMs / 1_000;
    tpotSeries(model, className).observe(tpotMs / 1_000);
  };
  return {
    totals,
    firstBytes,
    tokenTimes,
    goodput: () => [...goodputRows.values()],
    finished(endpoint, request, firstByteMs, goodput) {
      addTo(totals, request, firstByteMs);
      if (goodput) measured(goodput);
      const series = endpointSeries(endpoint, request.model, String(request.status), request.outcome);
      series.requests.add();
      series.duration.observe(request.durationMs / 1_000);
      if (!Number.isNaN(firstByteMs)) {
        firstBytes.add(firstByteMs);
        series.firstByte.observe(firstByteMs / 1_000);
      }
      if (request.promptTokens === undefined) return;
      const counted = modelSeries(request.model);
      counted.prompt.add(request.promptTokens);
      counted.cached.add(request.cachedTokens ?? 0);
      counted.completion.add(request.completionTokens ?? 0);
    },
    decided: (policy, reason) => decisionSeries(policy, reason).add(),
    overhead: (seconds) => overhead.observe(seconds),
    inFlight,
  };
}

const orNull = (objectiveMs: number): number | null => (objectiveMs === Number.POSITIVE_INFINITY ? null : objectiveMs);

function createTotals(): RequestTotals {
  return {
    requests: 0,
    ...{ answered: 0, refused: 0, failed: 0, cut: 0, cancelled: 0, limited: 0 },
    promptTokens: 0,
    cachedTokens: 0,
    completionTokens: 0,
    firstBytes: 0,
    firstByteS: 0,
    ...{ met: 0, missed: 0, streams: 0, tpotS: 0 },
  };
}

function addTo(totals: RequestTotals, request: HookAnswer, firstByteMs: number): void {
  totals.requests += 1;
  totals[request.outcome] += 1;
  if (request.outcome === "refused" && request.status === 429) totals.limited += 1;
  if (!Number.isNaN(firstByteMs)) {
    totals.firstBytes += 1;
    totals.firstByteS += firstByteMs / 1_000;
  }
  totals.promptTokens += request.promptTokens ?? 0;
  totals.cachedTokens += request.cachedTokens ?? 0;
  totals.completionTokens += request.completionTokens ?? 0;
}

/** Most cached series; further ones are looked up each time. */
const maxCachedSeries = 4_096;

function createCache<Series>(create: (a: string, b: string, c: string, d: string) => Series) {
  const cache = new Map<string, Map<string, Map<string, Map<string, Series>>>>();
  let met = 0;
  // One map of joined labels would have to join and hash them at each request.
  return (a: string, b = "", c = "", d = ""): Series => {
    const known = cache.get(a)?.get(b)?.get(c)?.get(d);
    if (known !== undefined) return known;
    const created = create(a, b, c, d);
    if (met < maxCachedSeries) {
      met += 1;
      branchOf(branchOf(branchOf(cache, a), b), c).set(d, created);
    }
    return created;
  };
}

function branchOf<Branch>(tree: Map<string, Map<string, Branch>>, label: string): Map<string, Branch> {
  const branch = tree.get(label) ?? new Map<string, Branch>();
  tree.set(label, branch);
  return branch;
}

/** Outcomes of attempts at engines. Series are looked up once and cached. */
export interface AttemptMetrics {
  readonly answered: CounterSeries;
  readonly failed: Readonly<Record<FailureKind, CounterSeries>>;
  readonly abandoned: CounterSeries;
  readonly responseBytes: (amount?: number) => void;
}

export function createAttemptMetrics(meter: Meter): AttemptMetrics {
  const attempts = meter.counter(
    "espalier_proxy_attempts_total",
    "Attempts at an engine, by outcome: answered, a kind of failure, or abandoned with the client's request.",
    ["outcome"],
  );
  return {
    answered: attempts.series("answered"),
    abandoned: attempts.series("abandoned"),
    failed: {
      connect: attempts.series("connect"),
      overloaded: attempts.series("overloaded"),
      reset: attempts.series("reset"),
      timeout: attempts.series("timeout"),
      status: attempts.series("status"),
      protocol: attempts.series("protocol"),
      broken: attempts.series("broken"),
      declined: attempts.series("declined"),
      withdrawn: attempts.series("withdrawn"),
      unknown_model: attempts.series("unknown_model"),
    },
    responseBytes: counterOf(meter, "espalier_proxy_response_bytes_total", "Body bytes sent to clients."),
  };
}
