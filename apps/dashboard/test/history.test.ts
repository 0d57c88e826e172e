import { expect, test } from "vitest";
import {
  addHistory,
  emptyHistory,
  latestOf,
  maxPoints,
  objectivesText,
  presentOf,
  recentOf,
  requestRateOf,
  seriesOf,
} from "../src/model/history.ts";

const nowMs = 10_000_000;

/** What a router answers whose clock is ahead by so much: one value in each column for each second up to now. */
function answer(values: Readonly<Record<string, readonly (number | null)[]>>, aheadMs = 0): object {
  const length = Object.values(values)[0]?.length ?? 0;
  const atMs = Array.from({ length }, (_, at) => nowMs + aheadMs - (length - 1 - at) * 1_000);
  return { nowMs: nowMs + aheadMs, atMs, ...values };
}

const last = (values: readonly (number | null)[]) => values.at(-1);

test("plots begin with what the router remembers, whatever its clock says", () => {
  const requestsPerS = Array.from({ length: 30 }, () => 7);
  for (const aheadMs of [0, 3_600_000, -90_000]) {
    const history = addHistory(emptyHistory, answer({ requestsPerS }, aheadMs), nowMs);
    const series = seriesOf([history], nowMs);
    expect([series.timesS.length, series.requestsPerS.filter((each) => each === 7).length]).toEqual([maxPoints, 26]);
    expect([last(series.requestsPerS), series.requestsPerS[0]]).toEqual([7, null]);
    expect(history.latestMs).toBe(nowMs + aheadMs);
  }
});

test("routers are added up; of medians the mean by requests counts, of the rest the worst", () => {
  const tenS = (value: number | null) => Array.from({ length: 10 }, () => value);
  const one = answer({
    ...{ refusedPerS: tenS(2), cutPerS: tenS(0.5) },
    ...{ requestsPerS: tenS(3), failedPerS: tenS(1), promptTokensPerS: tenS(100), cachedTokensPerS: tenS(100) },
    ...{ firstByteP50Ms: tenS(100), firstByteP99Ms: tenS(900), waiting: tenS(2), eventLagMs: tenS(null) },
    ...{ tpotP50Ms: tenS(20), tpotP99Ms: tenS(40), metPerS: tenS(2), missedPerS: tenS(1) },
  });
  const other = answer({
    ...{ refusedPerS: tenS(1), cutPerS: tenS(0) },
    ...{ requestsPerS: tenS(1), failedPerS: tenS(0), promptTokensPerS: tenS(300), cachedTokensPerS: tenS(0) },
    ...{ firstByteP50Ms: tenS(500), firstByteP99Ms: tenS(600), waiting: tenS(1), eventLagMs: tenS(4) },
    ...{ tpotP50Ms: tenS(60), tpotP99Ms: tenS(70), metPerS: tenS(1), missedPerS: tenS(0) },
  });
  const series = seriesOf(
    [one, other].map((each) => addHistory(emptyHistory, each, nowMs)),
    nowMs,
  );
  expect(last(series.firstByteP50Ms)).toBeCloseTo(200);
  expect([series.refusedPerS, series.cutPerS].map(last)).toEqual([3, 0.5]);
  const { requestsPerS, failedPerS, cachedShare, firstByteP99Ms, waiting, eventLagMs } = series;
  expect([requestsPerS, failedPerS, cachedShare, firstByteP99Ms, waiting, eventLagMs].map(last)).toEqual([
    ...[4, 1, 0.25, 900, 3, 4],
  ]);
  expect([series.tpotP50Ms, series.tpotP99Ms, series.goodputShare].map(last)).toEqual([30, 70, 0.75]);
});

test("goodput names the objectives, each pair of them once; of nothing measured there is no share", () => {
  const history = (...goodput: readonly object[]) => addHistory(emptyHistory, { ...answer({}), goodput }, nowMs);
  const objectives = (model: string, ttftMs: number | null, tpotMs: number | null) => ({ model, ttftMs, tpotMs });
  const text = (...goodput: readonly object[]) => objectivesText(seriesOf([history(...goodput)], nowMs).objectives);
  expect(text()).toBe("");
  expect(text(objectives("a", 2_000, 50))).toBe("first token in 2.0 s, then 50 ms per token");
  expect(text(objectives("a", 500, null))).toBe("first token in 500 ms");
  expect(text(objectives("a", null, 30))).toBe("30 ms per token");
  expect(text(objectives("a", null, null))).toBe("no objectives");
  expect(text(objectives("", null, null), objectives("a", 500, 20), objectives("b", 500, 20))).toMatch(/^first token/);
  expect(text(objectives("a", 500, 20), objectives("b", 500, 30))).toBe("by 2 pairs of objectives");
  const both = [history(objectives("a", 500, 20)), history(objectives("a", 500, 20))];
  expect(seriesOf(both, nowMs).objectives).toHaveLength(1);
  expect(last(seriesOf(both, nowMs).goodputShare)).toBeNull();
});

test("where no router has a point there is a gap, and a share of nothing is none", () => {
  const history = addHistory(emptyHistory, answer({ requestsPerS: [1, 1, 1, 1, 1, 1, 1, 1] }), nowMs);
  const later = seriesOf([history], nowMs + 20_000);
  expect([last(later.requestsPerS), last(later.cachedShare)]).toEqual([null, null]);
  expect(later.requestsPerS.filter((each) => each !== null)).toHaveLength(8);
  expect(later.cachedShare.every((each) => each === null)).toBe(true);
});

test("fifteen minutes are kept, whatever a router sends; what cannot be read is nothing", () => {
  let history = emptyHistory;
  for (let at = 0; at < 3; at++) {
    history = addHistory(history, answer({ requestsPerS: Array.from({ length: 2_000 }, () => 1) }), nowMs);
  }
  expect(history.points.size).toBeLessThanOrEqual(maxPoints + 1);
  for (const strange of [null, 7, { atMs: "x" }, { atMs: [nowMs], requestsPerS: 3 }]) {
    history = addHistory(history, strange, nowMs);
  }
  expect(history.points.size).toBeLessThanOrEqual(maxPoints + 1);
});

test("the last minute in whole requests, each kind by itself; and the rate of one router", () => {
  const minutes = (value: number) => Array.from({ length: 120 }, () => value);
  const columns = {
    requestsPerS: minutes(4),
    refusedPerS: minutes(1),
    limitedPerS: minutes(0.25),
    failedPerS: minutes(0.5),
    cutPerS: minutes(0.1),
    ...{ metPerS: minutes(3), missedPerS: minutes(0.8) },
  };
  const history = addHistory(emptyHistory, answer(columns), nowMs);
  expect(recentOf([history, history], nowMs)).toEqual({
    requests: 488,
    refused: 122,
    limited: 31,
    failed: 61,
    cut: 12,
    met: 366,
    missed: 98,
  });
  expect(recentOf([], nowMs)).toEqual({ requests: 0, refused: 0, limited: 0, failed: 0, cut: 0, met: 0, missed: 0 });
  expect([requestRateOf(history, nowMs), requestRateOf(emptyHistory, nowMs)]).toEqual([4, null]);
});

test("the present figure is the latest of a line, unless that is old", () => {
  expect(latestOf([1, 2, null, null, null])).toEqual({ value: 2, ageMs: 0 });
  // The newest point of a line is four seconds old.
  expect(latestOf([1, 2, null, null, null, null])).toEqual({ value: 2, ageMs: 8_000 });
  expect(latestOf([null, null])).toEqual({ value: null, ageMs: 0 });
  expect(presentOf([1, 2, null, null, null])).toBe(2);
  expect(presentOf([1, 2, null, null, null, null])).toBeNull();
});

// Symptom: the time of an event jumped by a second, and was another one than that of its row. Mechanism: the delay of each answer
// counted as a difference of clocks.
test("the difference of clocks is kept as long as it is within a second", () => {
  const aheads = [400, -900, 3_600_000, 3_600_900, 3_599_100, 3_601_100];
  let history = emptyHistory;
  const kept = aheads.map((aheadMs) => {
    history = addHistory(history, answer({ requestsPerS: [1] }, aheadMs), nowMs);
    return history.aheadMs;
  });
  expect(kept).toEqual([0, 0, 3_600_000, 3_600_000, 3_600_000, 3_601_100]);
  // An answer that took five seconds says little of the clocks.
  const slow = (aheadMs: number, takesMs: number) =>
    addHistory(emptyHistory, answer({ requestsPerS: [1] }, aheadMs), nowMs, nowMs - takesMs).aheadMs;
  expect([slow(-4_900, 5_000), slow(-6_100, 5_000), slow(-4_900, 0)]).toEqual([0, -3_600, -4_900]);
});

test("events come with the points, on the page's clock, and age with them", () => {
  const events = [{ atMs: nowMs + 3_600_000 - 5_000, kind: "engine_down", subject: "a", detail: "" }];
  const history = addHistory(emptyHistory, { ...answer({ requestsPerS: [1] }, 3_600_000), events }, nowMs);
  expect(history.events).toMatchObject([{ atMs: nowMs - 5_000, subject: "a" }]);
  expect(history.aheadMs).toBe(3_600_000);
  expect(addHistory(history, answer({ requestsPerS: [1] }), nowMs + maxPoints * 1_000).events).toEqual([]);
});
