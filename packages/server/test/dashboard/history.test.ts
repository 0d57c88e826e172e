import { LatencyWindow, silentMeter } from "@espalier/core";
import { defaultObjectives } from "@espalier/policies";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createHistory, historyPoints, historyStepMs } from "../../src/admin/history.ts";
import type { Goodput } from "../../src/request/goodput.ts";
import { createRequestMetrics } from "../../src/request/request-metrics.ts";
import type { RequestOutcome } from "../../src/request/request-outcome.ts";

function start() {
  const time = createVirtualTime();
  const metrics = createRequestMetrics(silentMeter);
  let waiting = 0;
  let lagMs: number | undefined;
  const events = {
    since: (afterMs: number) => [{ atMs: afterMs, kind: "router_started", subject: "r", detail: "" } as const],
  };
  const history = createHistory({ metrics, waiting: () => waiting, takeEventLagMs: () => lagMs, events, ...time });
  const finish = (firstByteMs: number, outcome: RequestOutcome = "answered", goodput?: Goodput, status = 200): void =>
    metrics.finished(
      "chat",
      {
        ...{ requestId: "r", model: "m", status, outcome, error: undefined, engine: "e", attempts: 1 },
        ...{ durationMs: 1_000, promptTokens: 100, completionTokens: 1, cachedTokens: 25 },
      },
      firstByteMs,
      goodput,
    );
  const set = (now: { readonly waiting: number; readonly lagMs: number | undefined }): void => {
    ({ waiting, lagMs } = now);
  };
  return { time, history, finish, set };
}

test("a point each second has what happened since the one before, and nothing where nothing was measured", () => {
  const { time, history, finish, set } = start();
  for (let at = 0; at < 8; at++) finish(at === 7 ? 900 : 100, (["failed", "refused", "refused", "cut"] as const)[at]);
  set({ waiting: 3, lagMs: 12 });
  time.advance(historyStepMs);
  set({ waiting: 0, lagMs: undefined });
  time.advance(historyStepMs);
  const { firstByteP50Ms, firstByteP99Ms, atMs, nowMs, events, ...more } = history.report(0);
  expect(events).toEqual([{ atMs: 0, kind: "router_started", subject: "r", detail: "" }]);
  expect(more).toEqual({
    ...{ requestsPerS: [8, 0], refusedPerS: [2, 0], limitedPerS: [0, 0], failedPerS: [1, 0], cutPerS: [1, 0] },
    ...{ promptTokensPerS: [800, 0], cachedTokensPerS: [200, 0], outputTokensPerS: [8, 0] },
    ...{ waiting: [3, 0], eventLagMs: [12, null] },
    ...{ metPerS: [0, 0], missedPerS: [0, 0], tpotP50Ms: [null, null], tpotP99Ms: [null, null] },
    goodput: [],
  });
  for (const [[first, second], exact] of [
    [firstByteP50Ms, 100],
    [firstByteP99Ms, 900],
  ] as const) {
    expect(Math.abs(first! / exact - 1)).toBeLessThan(0.026);
    expect(second).toBeNull();
  }
  expect([nowMs - atMs[1]!, atMs[1]! - atMs[0]!]).toEqual([0, historyStepMs]);
});

test("requests that met their objectives and that missed them are of the second too, and the time per token", () => {
  const { time, history, finish } = start();
  const of = { model: "m", className: "chat", objectives: defaultObjectives, tpotMs: 20 };
  for (const result of ["met", "met", "tpot_missed"] as const) finish(100, "answered", { ...of, result });
  finish(Number.NaN, "failed", { ...of, result: "failed", tpotMs: Number.NaN });
  time.advance(historyStepMs);
  const { metPerS, missedPerS, tpotP50Ms, goodput } = history.report(0);
  expect(goodput).toEqual([{ model: "m", class: "chat", met: 2, missed: 2, ttftMs: 2_000, tpotMs: 50 }]);
  expect([metPerS, missedPerS]).toEqual([[2], [2]]);
  expect(Math.abs(tpotP50Ms[0]! / 20 - 1)).toBeLessThan(0.026);
});

// Symptom: one figure for requests at a limit and for those that no engine took, with advice for one of the two.
test("requests refused with 429 are counted apart from those refused with 503", () => {
  const { time, history, finish } = start();
  for (const status of [429, 429, 503]) finish(Number.NaN, "refused", undefined, status);
  time.advance(historyStepMs);
  expect(history.report(0)).toMatchObject({ refusedPerS: [3], limitedPerS: [2] });
});

test("whoever has points already gets those that came since", () => {
  const { time, history } = start();
  time.advance(5 * historyStepMs);
  const { atMs } = history.report(0);
  expect(history.report(atMs[2]!).atMs).toEqual(atMs.slice(3));
  expect(history.report(atMs[4]!).atMs).toEqual([]);
});

test("900 points are kept; the next one takes the place of the oldest, and so on", () => {
  const { time, history, finish } = start();
  finish(10);
  time.advance(historyStepMs);
  const [first] = history.report(0).atMs;
  time.advance((historyPoints - 1) * historyStepMs);
  expect(history.report(0).requestsPerS.slice(0, 2)).toEqual([1, 0]);
  finish(10);
  time.advance(historyStepMs);
  const { atMs, requestsPerS } = history.report(0);
  expect([atMs.length, atMs[0]! - first!]).toEqual([historyPoints, historyStepMs]);
  expect([requestsPerS[0], requestsPerS.at(-1)]).toEqual([0, 1]);
  time.advance(historyPoints * historyStepMs);
  expect(history.report(0).requestsPerS.every((each) => each === 0)).toBe(true);
  history.stop();
  time.advance(historyStepMs);
  expect(history.report(history.report(0).nowMs - 1).atMs).toEqual([]);
});

test("quantiles are within 2.5 % from 1 ms to ten minutes, beyond which a latency counts as that", () => {
  const window = new LatencyWindow();
  expect(window.quantileMs(0.5)).toBeNaN();
  for (let at = 1; at <= 1_000; at++) window.add(at);
  for (const [q, exact] of [
    [0.5, 500],
    [0.99, 990],
  ] as const) {
    expect(Math.abs(window.quantileMs(q) / exact - 1)).toBeLessThan(0.026);
  }
  window.clear();
  for (const edge of [0, Number.MAX_VALUE]) window.add(edge);
  expect([window.quantileMs(0.5) < 1.1, window.quantileMs(1) > 590_000, window.quantileMs(1) < 630_000]).toEqual([
    true,
    true,
    true,
  ]);
});
