import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { faultPhases, maxRecoverySeconds, secondsToRecover } from "../../src/measure/fault-phases.ts";
import type { SimResult } from "../../src/run.ts";
import { fleetSample, runRecord, simResult } from "./records.ts";

interface Quality {
  readonly ttftMs?: number;
  /** Of follow-ups, which is every other request. */
  readonly share?: number;
  readonly error?: string;
}

/** Ten requests a second for two minutes, or another time; a second's quality is what `at` says of it. */
function steadyRun(at: (second: number) => Quality, seconds = 120): SimResult[] {
  return Array.from({ length: seconds * 10 }, (_, index) => {
    const sentMs = index * 100;
    const { ttftMs = 100, share = 0.8, error } = at(Math.floor(sentMs / 1_000));
    const turn = index % 2;
    return simResult({
      sentMs,
      ttftMs,
      engine: index % 4,
      cachedTokens: turn * 100 * share,
      error,
      request: { index, turn },
    });
  });
}

const fault = { fromMs: 40_000, toMs: 60_000 };
const moments = { warmMs: 20_000, faultFromMs: 40_000, faultToMs: 60_000 };

describe("phases", () => {
  const results = steadyRun((second) => {
    if (second < 20) return { ttftMs: 5_000, share: 0 };
    if (second < 40) return {};
    if (second < 60) return { ttftMs: 400, share: 0.2 };
    return { ttftMs: 200, share: 0.6 };
  });
  const samples = Array.from({ length: 130 }, (_, second) =>
    fleetSample(second * 1_000, second < 40 ? [1, 1, 1, 1] : second < 60 ? [2, 2, 0, 0] : [3, 1, 3, 1]),
  );
  const record = runRecord({ results, samples, faultMs: fault });

  test("have the quality of the requests sent in them; the time in which caches fill is left out", () => {
    const phases = faultPhases(record, 4);
    expect(phases?.before).toEqual({
      from_s: 20,
      to_s: 40,
      requests: 200,
      errors: 0,
      ttft_mean_s: expect.closeTo(0.1),
      ttft_p90_s: expect.closeTo(0.1),
      ttft_p99_s: expect.closeTo(0.1),
      followup_cached_share: expect.closeTo(0.8),
      load_cov: 0,
      load_cov_time: 0,
    });
    expect(phases?.during).toMatchObject({ from_s: 40, to_s: 60, requests: 200, ttft_mean_s: expect.closeTo(0.4) });
    expect(phases?.during.followup_cached_share).toBeCloseTo(0.2);
    expect(phases?.during.load_cov_time).toBeCloseTo(1);
    expect(phases?.after).toMatchObject({ from_s: 60, requests: 600, ttft_mean_s: expect.closeTo(0.2) });
    expect(phases?.after.load_cov_time).toBeCloseTo(0.5);
    expect(phases).not.toHaveProperty("seconds_to_recover");
  });

  test("count the engines that got nothing", () => {
    expect(faultPhases(record, 8)?.before.load_cov).toBeCloseTo(1);
  });

  test("the last request belongs to the phase after, samples of the drain to none", () => {
    const drained = { ...record, samples: [...samples, fleetSample(140_000, [0, 0, 0, 9])] };
    expect(faultPhases(drained, 4)).toEqual(faultPhases(record, 4));
    const all = faultPhases({ ...record, faultMs: { fromMs: 0, toMs: 0 } }, 4);
    expect(all?.after.requests).toBe(1_200);
  });

  test("a fault of a moment has no phase of its own; a run without a fault has none at all", () => {
    const during = faultPhases({ ...record, faultMs: { fromMs: 40_000, toMs: 40_000 } }, 4)?.during;
    expect(during).toEqual({ from_s: 40, to_s: 40, requests: 0, errors: 0 });
    expect(faultPhases({ ...record, faultMs: undefined }, 4)).toBeUndefined();
  });

  test("errors are counted where they were sent", () => {
    const failing = steadyRun((second) => (second === 45 ? { error: "upstream_reset" } : {}));
    const phases = faultPhases({ ...record, results: failing }, 4);
    expect([phases?.before.errors, phases?.during.errors, phases?.after.errors]).toEqual([0, 10, 0]);
    expect(phases?.seconds_to_recover).toBe(0);
  });

  test("a run whose requests all come after the fault, or that has none, is no error", () => {
    const early = { ...record, faultMs: { fromMs: -10_000, toMs: -5_000 } };
    expect(faultPhases(early, 4)?.before).toMatchObject({ requests: 0 });
    expect(faultPhases(runRecord({ faultMs: fault }), 4)?.after).toMatchObject({ requests: 0, errors: 0 });
  });
});

describe("seconds to recover", () => {
  const recoverAfter = (at: (second: number) => Quality, seconds?: number) =>
    secondsToRecover(steadyRun(at, seconds), moments);

  test("are 0 when quality is back at once, however bad it was", () => {
    expect(recoverAfter((second) => (second >= 40 && second < 60 ? { ttftMs: 9_000, share: 0 } : {}))).toBe(0);
  });

  test.each([
    ["TTFT", { ttftMs: 1_000 }],
    ["the follow-up share", { share: 0.1 }],
    ["failed requests", { error: "upstream_reset" }],
  ])("count the seconds that %s stays bad", (_, bad) => {
    expect(recoverAfter((second) => (second >= 40 && second < 71 ? bad : {}))).toBe(11);
  });

  test("count from the last relapse on", () => {
    const at = (second: number): Quality => (second === 60 || second === 90 ? { ttftMs: 1_000 } : {});
    expect(recoverAfter(at)).toBe(31);
  });

  test("are absent when quality does not come back before the sending ends", () => {
    expect(recoverAfter((second) => (second >= 40 ? { ttftMs: 120 } : {}))).toBeUndefined();
    expect(recoverAfter((second) => (second >= 110 ? { share: 0 } : {}))).toBeUndefined();
    expect(recoverAfter(() => ({}), 63)).toBeUndefined();
    expect(recoverAfter(() => ({}), 66)).toBe(0);
  });

  test("5 % worse is as good as before, and better is better", () => {
    const later = (quality: Quality) => recoverAfter((second) => (second >= 60 ? quality : {}));
    expect(later({ ttftMs: 104, share: 0.77 })).toBe(0);
    expect(later({ ttftMs: 106 })).toBeUndefined();
    expect(later({ share: 0.75 })).toBeUndefined();
    expect(later({ ttftMs: 20, share: 1 })).toBe(0);
  });

  test("noise that was there before is not taken for damage", () => {
    const random = createSeededRandom(3);
    const noise = Array.from({ length: 120 }, () => 50 + 100 * random.float());
    expect(recoverAfter((second) => ({ ttftMs: noise[20 + (second % 20)]! }))).toBe(0);
  });

  test("a window in which nothing is sent or nothing answered is not good", () => {
    const gap = steadyRun(() => ({})).filter(({ sentMs }) => sentMs < 60_000 || sentMs >= 72_000);
    expect(secondsToRecover(gap, moments)).toBe(8);
  });

  test("workloads without follow-ups are judged by TTFT alone", () => {
    const lone = steadyRun((second) => (second >= 40 && second < 70 ? { ttftMs: 900 } : {})).filter(
      ({ request }) => request.turn === 0,
    );
    expect(secondsToRecover(lone, moments)).toBe(10);
  });

  test("without anything before, or after, there is nothing to tell", () => {
    expect(secondsToRecover([], moments)).toBeUndefined();
    const late = steadyRun(() => ({})).filter(({ sentMs }) => sentMs >= 60_000);
    expect(secondsToRecover(late, moments)).toBeUndefined();
  });

  test("seconds past the bound are not looked at", () => {
    const far = (second: number) => simResult({ sentMs: 60_000 + second * 1_000, ttftMs: 9_000 });
    const good = Array.from({ length: maxRecoverySeconds }, (_, second) =>
      simResult({ sentMs: 60_000 + second * 1_000 }),
    );
    const results = [...steadyRun(() => ({}), 60), ...good];
    expect(secondsToRecover([...results, far(maxRecoverySeconds), far(maxRecoverySeconds + 9)], moments)).toBe(0);
    expect(secondsToRecover([...results, far(maxRecoverySeconds - 1), far(maxRecoverySeconds + 9)], moments)).toBe(
      undefined,
    );
  });
});
