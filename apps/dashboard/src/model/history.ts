import { asList, asNumber, asNumberOrNull, asObject } from "./read-json.ts";

/** One second of one router. Null where nothing was measured. */
interface HistoryPoint {
  readonly requestsPerS: number;
  readonly failedPerS: number;
  readonly promptTokensPerS: number;
  readonly cachedTokensPerS: number;
  readonly firstByteP50Ms: number | null;
  readonly firstByteP99Ms: number | null;
  readonly waiting: number;
  readonly eventLagMs: number | null;
}

/** Points of a router by the second, on the page's clock, since the Unix epoch. */
export interface History {
  readonly points: ReadonlyMap<number, HistoryPoint>;
  /** Where the next points begin, on the router's clock. */
  readonly latestMs: number;
}

export const emptyHistory: History = { points: new Map(), latestMs: 0 };

/** Points of the plots: fifteen minutes of one a second. */
export const maxPoints = 900;

/**
 * Adds what a router answers to `GET /admin/history`.
 *
 * @param nowMs when the answer came, on the page's clock, which need not agree with the router's
 */
export function addHistory(history: History, answer: unknown, nowMs: number): History {
  const columns = asObject(answer);
  const ahead = asNumber(columns.nowMs, nowMs) - nowMs;
  const at = asList(columns.atMs).map((each) => asNumber(each));
  const column = (name: string): readonly unknown[] => asList(columns[name]);
  const [requests, failed, waiting] = [column("requestsPerS"), column("failedPerS"), column("waiting")];
  const [prompt, cached] = [column("promptTokensPerS"), column("cachedTokensPerS")];
  const [p50, p99, lag] = [column("firstByteP50Ms"), column("firstByteP99Ms"), column("eventLagMs")];
  const points = new Map(history.points);
  for (const [place, atMs] of at.entries()) {
    points.set(Math.round((atMs - ahead) / 1_000), {
      ...{ requestsPerS: asNumber(requests[place]), failedPerS: asNumber(failed[place]) },
      ...{ promptTokensPerS: asNumber(prompt[place]), cachedTokensPerS: asNumber(cached[place]) },
      ...{ firstByteP50Ms: asNumberOrNull(p50[place]), firstByteP99Ms: asNumberOrNull(p99[place]) },
      ...{ waiting: asNumber(waiting[place]), eventLagMs: asNumberOrNull(lag[place]) },
    });
  }
  const oldest = Math.round(nowMs / 1_000) - maxPoints;
  for (const second of points.keys()) if (second < oldest || points.size > 2 * maxPoints) points.delete(second);
  return { points, latestMs: Math.max(history.latestMs, ...at.slice(-1)) };
}

/** The lines of the plots: times in seconds since the Unix epoch, and a value for each, null for a gap. */
export interface Series {
  readonly timesS: readonly number[];
  readonly requestsPerS: readonly (number | null)[];
  readonly failedPerS: readonly (number | null)[];
  readonly cachedShare: readonly (number | null)[];
  /** The routers' medians, each weighted by its requests. */
  readonly firstByteP50Ms: readonly (number | null)[];
  /** Of the slowest router. */
  readonly firstByteP99Ms: readonly (number | null)[];
  readonly waiting: readonly (number | null)[];
  readonly eventLagMs: readonly (number | null)[];
}

/** Values are taken over so many seconds: single ones of a calm fleet jump. */
const windowS = 5;
/** Routers are asked out of step, so the last seconds are not complete. */
const incompleteS = 4;

/** All routers together, over the last fifteen minutes. */
export function seriesOf(histories: readonly History[], nowMs: number): Series {
  const lastS = Math.round(nowMs / 1_000) - incompleteS;
  const timesS = Array.from({ length: maxPoints }, (_, at) => lastS - maxPoints + 1 + at);
  const seconds = Array.from({ length: maxPoints + windowS - 1 }, (_, at) =>
    sumOf(histories.flatMap(({ points }) => points.get(lastS - maxPoints - windowS + 2 + at) ?? [])),
  );
  const windows = timesS.map((_, at) => windowOf(seconds.slice(at, at + windowS)));
  const line = (value: (sum: Sum) => number | null) => windows.map((sum) => (sum ? value(sum) : null));
  return {
    timesS,
    requestsPerS: line(({ requests, seconds: count }) => requests / count),
    failedPerS: line(({ failed, seconds: count }) => failed / count),
    cachedShare: line(({ prompt, cached }) => (prompt > 0 ? cached / prompt : null)),
    firstByteP50Ms: line(({ weight, weightedP50 }) => (weight > 0 ? weightedP50 / weight : null)),
    firstByteP99Ms: line(({ p99 }) => p99),
    waiting: line(({ waiting }) => waiting),
    eventLagMs: line(({ lag }) => lag),
  };
}

interface Sum {
  seconds: number;
  requests: number;
  failed: number;
  prompt: number;
  cached: number;
  weight: number;
  weightedP50: number;
  p99: number | null;
  waiting: number;
  lag: number | null;
}

/** @returns undefined where no router has a point */
function sumOf(points: readonly HistoryPoint[]): Sum | undefined {
  if (points.length === 0) return undefined;
  const sum: Sum = {
    ...{ seconds: 1, requests: 0, failed: 0, prompt: 0, cached: 0 },
    ...{ weight: 0, weightedP50: 0, p99: null, waiting: 0, lag: null },
  };
  for (const point of points) {
    sum.requests += point.requestsPerS;
    sum.failed += point.failedPerS;
    sum.prompt += point.promptTokensPerS;
    sum.cached += point.cachedTokensPerS;
    sum.waiting += point.waiting;
    if (point.firstByteP50Ms !== null) {
      const weight = Math.max(point.requestsPerS, 0.01);
      sum.weight += weight;
      sum.weightedP50 += weight * point.firstByteP50Ms;
    }
    sum.p99 = larger(sum.p99, point.firstByteP99Ms);
    sum.lag = larger(sum.lag, point.eventLagMs);
  }
  return sum;
}

function windowOf(seconds: readonly (Sum | undefined)[]): Sum | undefined {
  // A gap stays one: what was before it does not go on in it.
  if (!seconds.at(-1)) return undefined;
  const there = seconds.flatMap((sum) => sum ?? []);
  return there.reduce((all, sum) => ({
    seconds: all.seconds + 1,
    requests: all.requests + sum.requests,
    failed: all.failed + sum.failed,
    prompt: all.prompt + sum.prompt,
    cached: all.cached + sum.cached,
    weight: all.weight + sum.weight,
    weightedP50: all.weightedP50 + sum.weightedP50,
    p99: larger(all.p99, sum.p99),
    waiting: sum.waiting,
    lag: larger(all.lag, sum.lag),
  }));
}

function larger(one: number | null, other: number | null): number | null {
  if (one === null) return other;
  return other === null ? one : Math.max(one, other);
}
