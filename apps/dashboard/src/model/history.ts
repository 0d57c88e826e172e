import { addEvents, type FleetEvent, readEvents } from "./events.ts";
import { formatMs } from "./format.ts";
import { asList, asNumber, asNumberOrNull, asObject, asText, listOf, objectOf } from "./read-json.ts";

/** One second of one router. Null where nothing was measured. */
type HistoryPoint = ReturnType<typeof readPoint>;

const pointFields = {
  requestsPerS: asNumber,
  refusedPerS: asNumber,
  limitedPerS: asNumber,
  failedPerS: asNumber,
  cutPerS: asNumber,
  promptTokensPerS: asNumber,
  cachedTokensPerS: asNumber,
  outputTokensPerS: asNumber,
  firstByteP50Ms: asNumberOrNull,
  firstByteP99Ms: asNumberOrNull,
  tpotP50Ms: asNumberOrNull,
  tpotP99Ms: asNumberOrNull,
  metPerS: asNumber,
  missedPerS: asNumber,
  waiting: asNumber,
  eventLagMs: asNumberOrNull,
};

const readPoint = objectOf(pointFields);

/** What the requests of a model and class have to keep; null for no objective. The model is empty where it was not known. */
export type Objectives = ReturnType<typeof readObjectives>;

const readObjectives = objectOf({ model: asText, class: asText, ttftMs: asNumberOrNull, tpotMs: asNumberOrNull });

/** Points of a router by the second, on the page's clock, since the Unix epoch. */
export interface History {
  readonly points: ReadonlyMap<number, HistoryPoint>;
  /** On the page's clock, the oldest first. */
  readonly events: readonly FleetEvent[];
  readonly objectives: readonly Objectives[];
  /** Where the next points begin, on the router's clock. */
  readonly latestMs: number;
  /** By how much that is ahead of the page's. It stays as it is while an answer allows it, so that times do not jump. */
  readonly aheadMs: number;
}

export const emptyHistory: History = { points: new Map(), events: [], objectives: [], latestMs: 0, aheadMs: 0 };

/** A difference of clocks within it is none. */
const clockSlackMs = 1_000;

/** Points of the plots: fifteen minutes of one a second. */
export const maxPoints = 900;

/**
 * Adds what a router answers to `GET /admin/history`.
 *
 * @param nowMs when the answer came, on the page's clock, which need not agree with the router's
 * @param askedMs when it was asked for
 */
export function addHistory(history: History, answer: unknown, nowMs: number, askedMs = nowMs): History {
  const columns = asObject(answer);
  const routerNowMs = asNumber(columns.nowMs, nowMs);
  // It was written at some time between the question and the answer.
  const [least, most] = [routerNowMs - nowMs, routerNowMs - askedMs];
  const isAllowed = history.aheadMs >= least - clockSlackMs && history.aheadMs <= most + clockSlackMs;
  const ahead = isAllowed ? history.aheadMs : (least + most) / 2;
  const at = listOf(asNumber)(columns.atMs);
  const names = Object.keys(pointFields);
  const points = new Map(history.points);
  for (const [place, atMs] of at.entries()) {
    const point = readPoint(Object.fromEntries(names.map((name) => [name, asList(columns[name])[place]])));
    points.set(Math.round((atMs - ahead) / 1_000), point);
  }
  const oldest = Math.round(nowMs / 1_000) - maxPoints;
  for (const second of points.keys()) if (second < oldest || points.size > 2 * maxPoints) points.delete(second);
  const fresh = readEvents(columns.events).map((event) => ({ ...event, atMs: event.atMs - ahead }));
  const events = addEvents(history.events, fresh, nowMs - maxPoints * 1_000);
  const objectives = listOf(readObjectives)(columns.goodput).filter(({ model }) => model !== "");
  return { points, events, objectives, latestMs: Math.max(history.latestMs, ...at.slice(-1)), aheadMs: ahead };
}

/** The lines of the plots: times in seconds since the Unix epoch, and a value for each, null for a gap. */
export type Series = ReturnType<typeof seriesOf>;

/** Values are taken over so many seconds: single ones of a calm fleet jump. */
const windowS = 5;
/** Routers are asked out of step, so the last seconds are not complete. */
const incompleteS = 4;

/** All routers together, over the last fifteen minutes. */
export function seriesOf(histories: readonly History[], nowMs: number) {
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
    outputTokensPerS: line(({ output, seconds: count }) => output / count),
    refusedPerS: line(({ refused, seconds: count }) => refused / count),
    failedPerS: line(({ failed, seconds: count }) => failed / count),
    cutPerS: line(({ cut, seconds: count }) => cut / count),
    cachedShare: line(({ prompt, cached }) => (prompt > 0 ? cached / prompt : null)),
    /** The routers' medians, each weighted by its requests. */
    firstByteP50Ms: line(({ weight, weightedP50 }) => (weight > 0 ? weightedP50 / weight : null)),
    /** Of the slowest router. */
    firstByteP99Ms: line(({ p99 }) => p99),
    tpotP50Ms: line(({ tpotWeight, weightedTpotP50 }) => (tpotWeight > 0 ? weightedTpotP50 / tpotWeight : null)),
    tpotP99Ms: line(({ tpotP99 }) => tpotP99),
    goodputShare: line(({ met, missed }) => (met + missed > 0 ? met / (met + missed) : null)),
    waiting: line(({ waiting }) => waiting),
    eventLagMs: line(({ lag }) => lag),
    objectives: distinctObjectives(histories),
  };
}

/** Each pair of objectives once, however many models and classes of whichever routers have it. */
function distinctObjectives(histories: readonly History[]): readonly Pick<Objectives, "ttftMs" | "tpotMs">[] {
  const all = histories.flatMap(({ objectives }) => objectives);
  const distinct = new Map(all.map(({ ttftMs, tpotMs }) => [`${ttftMs} ${tpotMs}`, { ttftMs, tpotMs }]));
  return [...distinct.values()];
}

/** `first token in 2.0 s, then 50 ms each`; with several pairs, how many there are. */
export function objectivesText(objectives: Series["objectives"]): string {
  const [only, ...others] = objectives;
  if (!only) return "";
  if (others.length > 0) return `by ${objectives.length} pairs of objectives`;
  const { ttftMs, tpotMs } = only;
  const first = ttftMs === null ? [] : [`first token in ${formatMs(ttftMs)}`];
  const later = tpotMs === null ? [] : [`${first.length > 0 ? "then " : ""}${formatMs(tpotMs)} per token`];
  return [...first, ...later].join(", ") || "no objectives";
}

type Sum = ReturnType<typeof sumOfPoint>;

const sumOfPoint = (point: HistoryPoint) => {
  const requests = Math.max(point.requestsPerS, 0.01);
  const weight = point.firstByteP50Ms === null ? 0 : requests;
  const tpotWeight = point.tpotP50Ms === null ? 0 : requests;
  return {
    seconds: 1,
    requests: point.requestsPerS,
    refused: point.refusedPerS,
    failed: point.failedPerS,
    cut: point.cutPerS,
    prompt: point.promptTokensPerS,
    cached: point.cachedTokensPerS,
    output: point.outputTokensPerS,
    weight,
    weightedP50: weight * (point.firstByteP50Ms ?? 0),
    p99: point.firstByteP99Ms,
    tpotWeight,
    weightedTpotP50: tpotWeight * (point.tpotP50Ms ?? 0),
    tpotP99: point.tpotP99Ms,
    met: point.metPerS,
    missed: point.missedPerS,
    waiting: point.waiting,
    lag: point.eventLagMs,
  };
};

const added = [
  ...["requests", "refused", "failed", "cut", "prompt", "cached", "output", "met", "missed", "waiting"],
  ...["weight", "weightedP50", "tpotWeight", "weightedTpotP50"],
] as const satisfies readonly (keyof Sum)[];
const worst = ["p99", "tpotP99", "lag"] as const satisfies readonly (keyof Sum)[];

/** The sum of two routers in the same second. */
function addRouters(one: Sum, other: Sum): Sum {
  const sum = { ...one };
  for (const name of added) sum[name] += other[name];
  for (const name of worst) sum[name] = larger(one[name], other[name]);
  return sum;
}

/** The sum of a second and a later one; those that wait are the later ones. */
const addSeconds = (one: Sum, later: Sum): Sum => ({
  ...addRouters(one, later),
  ...{ seconds: one.seconds + later.seconds, waiting: later.waiting },
});

/** @returns undefined where no router has a point */
function sumOf(points: readonly HistoryPoint[]): Sum | undefined {
  const [first, ...others] = points.map(sumOfPoint);
  return first && others.reduce(addRouters, first);
}

function windowOf(seconds: readonly (Sum | undefined)[]): Sum | undefined {
  // A gap stays one: what was before it does not go on in it.
  return seconds.at(-1) && seconds.flatMap((sum) => sum ?? []).reduce(addSeconds);
}

function larger(one: number | null, other: number | null): number | null {
  if (one === null) return other;
  return other === null ? one : Math.max(one, other);
}

/** How old a figure may be that is shown as the present one, in points. */
const nowPoints = 4;

/** The present value of a line of the plots; null where there is none. */
export const presentOf = (line: readonly (number | null)[]): number | null =>
  line.slice(-nowPoints).findLast((value) => value !== null) ?? null;

/** The latest value of a line of the plots, and how old it is: every figure of the page is one of these. */
export interface Latest {
  /** Null where nothing was measured in fifteen minutes. */
  readonly value: number | null;
  /** 0 for a present one. */
  readonly ageMs: number;
}

export function latestOf(line: readonly (number | null)[]): Latest {
  const at = line.findLastIndex((value) => value !== null);
  const age = line.length - 1 - at;
  return { value: line[at] ?? null, ageMs: at < 0 || age < nowPoints ? 0 : (age + incompleteS) * 1_000 };
}

/** Requests of the last minute, over all routers. */
export type Recent = ReturnType<typeof recentOf>;

const recentS = 60;

export function recentOf(histories: readonly History[], nowMs: number) {
  const lastS = Math.round(nowMs / 1_000);
  const seconds = Array.from({ length: recentS + 1 }, (_, at) => lastS - at);
  const points = histories.flatMap((history) => seconds.flatMap((second) => history.points.get(second) ?? []));
  const sum = (countOf: (point: HistoryPoint) => number): number =>
    Math.round(points.reduce((total, point) => total + countOf(point), 0));
  return {
    requests: sum(({ requestsPerS }) => requestsPerS),
    refused: sum(({ refusedPerS }) => refusedPerS),
    /** Of the refused ones, those with 429. */
    limited: sum(({ limitedPerS }) => limitedPerS),
    failed: sum(({ failedPerS }) => failedPerS),
    cut: sum(({ cutPerS }) => cutPerS),
    met: sum(({ metPerS }) => metPerS),
    missed: sum(({ missedPerS }) => missedPerS),
  };
}

/** Requests per second of one router, over the window of the plots; null where it is not known. */
export function requestRateOf(history: History, nowMs: number): number | null {
  const lastS = Math.round(nowMs / 1_000) - incompleteS;
  const points = Array.from({ length: windowS }, (_, at) => history.points.get(lastS - at) ?? []).flat();
  return points.length === 0 ? null : points.reduce((sum, { requestsPerS }) => sum + requestsPerS, 0) / points.length;
}
