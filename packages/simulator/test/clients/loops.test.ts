import { describe, expect, test } from "vitest";
import { createClosedLoop, createOpenLoop, createStagedLoad } from "../../src/clients/loops.ts";
import type { ScriptOf, SendLimits } from "../../src/clients/session.ts";
import { bySession, recordRun, sharedBlocks } from "./recorded-run.ts";

/** Sessions of `turns` requests with `pauseMs` before each. */
const scriptsOf =
  (turns: number, pauseMs = 0): ScriptOf =>
  () => ({
    turns,
    expectedTokens: 100,
    pauseMs: () => pauseMs,
    write(_, conversation) {
      conversation.own(40);
      return 10;
    },
  });

const closed = (of: { sessions: number; clients: number; turns?: number; pauseMs?: number; limits?: SendLimits }) =>
  createClosedLoop({
    seed: 1,
    sessions: of.sessions,
    clients: of.clients,
    scriptOf: scriptsOf(of.turns ?? 1, of.pauseMs),
    limits: of.limits ?? {},
  });

describe("a closed loop", () => {
  test("keeps so many sessions going until all have ended", () => {
    const workload = closed({ sessions: 25, clients: 10 });
    const run = recordRun(workload);
    expect(workload.expectedRequests).toBe(25);
    expect(run.sent).toHaveLength(25);
    expect(run.mostInFlight).toBe(10);
    expect(run.sent.map(({ sentMs }) => sentMs)).toEqual([
      ...new Array(10).fill(0),
      ...new Array(10).fill(100),
      ...new Array(5).fill(200),
    ]);
    expect([run.finishedMs, run.finishedCalls, run.sentWhenFinished]).toEqual([300, 1, 25]);
  });

  test("numbers requests in order of sending, sessions and their turns from 0", () => {
    const run = recordRun(closed({ sessions: 4, clients: 2, turns: 3 }));
    expect(run.sent.map(({ index }) => index)).toEqual([...run.sent.keys()]);
    const sessions = bySession(run.sent);
    expect([...sessions.keys()].toSorted()).toEqual([0, 1, 2, 3]);
    for (const requests of sessions.values()) expect(requests.map(({ turn }) => turn)).toEqual([0, 1, 2]);
  });

  test("waits for the answer and the pause before each follow-up", () => {
    const run = recordRun(closed({ sessions: 1, clients: 1, turns: 3, pauseMs: 7 }), { startMs: 5_000 });
    expect(run.sent.map(({ sentMs }) => sentMs)).toEqual([7, 114, 221]);
    expect(run.finishedMs).toBe(321);
  });

  test("has follow-ups that begin with the whole earlier prompt and answer", () => {
    const { sent } = recordRun(closed({ sessions: 1, clients: 1, turns: 10 }));
    for (const [at, later] of sent.entries()) {
      expect(later.promptTokens).toBe(50 * at + 40);
      if (at > 0) expect(sharedBlocks(sent[at - 1]!.chain, later.chain)).toBe(sent[at - 1]!.chain.length / 2);
    }
  });

  test("begins groups together, and a client's next one when all of one have ended", () => {
    const scriptOf: ScriptOf = (session) => ({ ...scriptsOf(1 + (session % 3))(session) });
    const options = { seed: 1, sessions: 8, clients: 1, groupSize: 3, endsSessions: true, scriptOf, limits: {} };
    const { sent } = recordRun(createClosedLoop(options));
    expect(sent.filter(({ turn }) => turn === 0).map(({ session, group, sentMs }) => [session, group, sentMs])).toEqual(
      [
        ...[0, 1, 2].map((session) => [session, 0, 0]),
        ...[3, 4, 5].map((session) => [session, 1, 300]),
        ...[6, 7].map((session) => [session, 2, 600]),
      ],
    );
    const last = [...bySession(sent).values()].map((requests) =>
      requests.map(({ endsSession = false }) => endsSession),
    );
    expect(last.slice(0, 3)).toEqual([[true], [false, true], [false, false, true]]);
    expect(
      recordRun(closed({ sessions: 4, clients: 2 })).sent.some((one) => "group" in one || "endsSession" in one),
    ).toBe(false);
  });

  test("goes on after a failed request", () => {
    const run = recordRun(closed({ sessions: 3, clients: 1, turns: 4 }), { fails: ({ turn }) => turn === 1 });
    expect(run.sent).toHaveLength(12);
    expect(run.finishedCalls).toBe(1);
  });

  test("ends after so many requests, as it said, and at once", () => {
    const workload = closed({ sessions: 25, clients: 10, limits: { requests: 12 } });
    const run = recordRun(workload);
    expect([workload.expectedRequests, run.sent.length, run.finishedMs]).toEqual([12, 12, 100]);
    expect(closed({ sessions: 3, clients: 2, limits: { requests: 12 } }).expectedRequests).toBe(3);
  });

  test("ends after so many seconds, though sessions go on, and says so once", () => {
    const run = recordRun(closed({ sessions: 4, clients: 4, turns: 100, limits: { durationS: 1.05 } }));
    expect(Math.max(...run.sent.map(({ sentMs }) => sentMs))).toBe(1_000);
    expect([run.finishedMs, run.finishedCalls, run.sent.length]).toEqual([1_050, 1, 44]);
  });

  test("has no more clients than sessions", () => {
    const run = recordRun(closed({ sessions: 3, clients: 10 }));
    expect([run.sent.length, run.mostInFlight, run.finishedCalls]).toEqual([3, 3, 1]);
  });
});

const open = (of: {
  startsPerS: number | ((session: number) => number);
  burst?: number;
  turns?: number;
  pauseMs?: number;
  seed?: number;
  limits: SendLimits;
}) =>
  createOpenLoop({
    seed: of.seed ?? 1,
    startsPerS: of.startsPerS,
    ...(of.burst === undefined ? {} : { burst: of.burst }),
    meanTurns: of.turns ?? 1,
    scriptOf: scriptsOf(of.turns ?? 1, of.pauseMs),
    limits: of.limits,
  });

describe("an open loop", () => {
  test("has arrivals at the rate, exponential gaps, and the number it expects", () => {
    const workload = open({ startsPerS: 50, limits: { durationS: 100 } });
    const run = recordRun(workload, { answerMs: 1 });
    expect(run.sent).toHaveLength(workload.expectedRequests);
    expect(Math.abs(run.sent.length - 5_000)).toBeLessThan(5 * Math.sqrt(5_000));
    const gaps = run.sent.slice(1).map(({ sentMs }, at) => sentMs - run.sent[at]!.sentMs);
    const mean = gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length;
    const spread = Math.sqrt(gaps.reduce((sum, gap) => sum + (gap - mean) ** 2, 0) / gaps.length);
    expect(spread / mean).toBeCloseTo(1, 1);
    expect([run.finishedMs, run.finishedCalls]).toEqual([100_000, 1]);
  });

  test("has another rate for some of its sessions", () => {
    const slow = (session: number): boolean => session % 600 < 100;
    const workload = open({ startsPerS: (session) => (slow(session) ? 10 : 50), limits: { durationS: 100 } });
    const { sent } = recordRun(workload, { answerMs: 1 });
    expect(sent).toHaveLength(workload.expectedRequests);
    const gaps = sent.slice(1).map(({ sentMs }, at) => ({ isSlow: slow(at + 1), ms: sentMs - sent[at]!.sentMs }));
    for (const [isSlow, meanMs] of [
      [true, 100],
      [false, 20],
    ] as const) {
      const ofRate = gaps.filter((gap) => gap.isSlow === isSlow);
      const mean = ofRate.reduce((sum, { ms }) => sum + ms, 0) / ofRate.length;
      expect(Math.abs(mean / meanMs - 1)).toBeLessThan(5 / Math.sqrt(ofRate.length));
    }
  });

  test("does not wait for answers", () => {
    const times = (answerMs: number) =>
      recordRun(open({ startsPerS: 50, limits: { durationS: 5 } }), { answerMs }).sent.map(({ sentMs }) => sentMs);
    expect(times(100_000)).toEqual(times(1));
  });

  test("has the arrivals of its seed", () => {
    const times = (seed: number) =>
      recordRun(open({ startsPerS: 50, seed, limits: { durationS: 5 } })).sent.map(({ sentMs }) => sentMs);
    expect(times(1)).toEqual(times(1));
    expect(times(1)).not.toEqual(times(2));
  });

  test("sends follow-ups until the end", () => {
    const workload = open({ startsPerS: 10, turns: 3, pauseMs: 50, limits: { durationS: 60 } });
    const run = recordRun(workload);
    const first = run.sent.filter(({ turn }) => turn === 0).length;
    expect(workload.expectedRequests).toBe(3 * first);
    expect(run.sent.length).toBeLessThanOrEqual(3 * first);
    expect(run.sent.length).toBeGreaterThan(3 * first - 20);
    expect(Math.max(...run.sent.map(({ sentMs }) => sentMs))).toBeLessThan(60_000);
  });

  test("has bursts at the same rate, each at one moment", () => {
    const workload = open({ startsPerS: 50, burst: 20, limits: { durationS: 400 } });
    const { sent } = recordRun(workload, { answerMs: 1 });
    expect(sent).toHaveLength(workload.expectedRequests);
    expect(Math.abs(sent.length / 20_000 - 1)).toBeLessThan(0.15);
    const moments = new Set(sent.map(({ sentMs }) => sentMs));
    expect(moments.size).toBe(sent.length / 20);
    const cut = recordRun(open({ startsPerS: 50, burst: 20, limits: { requests: 30 } }));
    expect(cut.sent).toHaveLength(30);
  });

  test("ends after so many requests", () => {
    for (const limits of [{ requests: 30 }, { requests: 30, durationS: 1_000 }]) {
      const workload = open({ startsPerS: 10, turns: 2, limits });
      const run = recordRun(workload);
      expect([workload.expectedRequests, run.sent.length, run.finishedCalls]).toEqual([30, 30, 1]);
    }
  });

  test("needs a rate and an end", () => {
    expect(() => open({ startsPerS: 1, limits: {} })).toThrow(RangeError);
    for (const startsPerS of [0, -1, Number.NaN]) {
      expect(() => open({ startsPerS, limits: { requests: 1 } })).toThrow(RangeError);
    }
    for (const burst of [0, 1.5, Number.NaN]) {
      expect(() => open({ startsPerS: 1, burst, limits: { requests: 1 } })).toThrow(RangeError);
    }
  });
});

describe("load in stages", () => {
  const staged = (stages: readonly (readonly [number, number])[], limits: SendLimits = {}, maxInFlight?: number) =>
    createStagedLoad({
      seed: 1,
      ...(maxInFlight === undefined ? {} : { maxInFlight }),
      stages: stages.map(([ratePerS, durationS]) => ({ ratePerS, durationS })),
      limits,
      visitOf: (index) => ({
        session: index % 10,
        turn: Math.floor(index / 10),
        script: {
          expectedTokens: 100,
          write(_, conversation) {
            conversation.share(index % 10, 64);
            return 32;
          },
        },
      }),
    });

  test("sends rate times duration requests in each stage, about as long as it says", () => {
    const workload = staged([
      [10, 40],
      [100, 20],
    ]);
    const run = recordRun(workload, { answerMs: 1_000 });
    expect([workload.expectedRequests, run.sent.length, run.finishedCalls]).toEqual([2_400, 2_400, 1]);
    const ends = [run.sent[399]!.sentMs, run.sent.at(-1)!.sentMs - run.sent[400]!.sentMs];
    expect(Math.abs(ends[0]! / 40_000 - 1)).toBeLessThan(0.25);
    expect(Math.abs(ends[1]! / 20_000 - 1)).toBeLessThan(0.15);
  });

  test("has no more under way than the client takes: one past it waits there, and goes when another is answered", () => {
    // Ten a second, of which two are answered in a second.
    const run = recordRun(staged([[10, 5]], {}, 2), { answerMs: 1_000 });
    expect(run.sent).toHaveLength(50);
    for (let at = 2; at < 50; at++)
      expect(run.sent[at]!.sentMs).toBeGreaterThanOrEqual(run.sent[at - 2]!.sentMs + 1_000);
    expect(run.sent.at(-1)!.sentMs).toBeGreaterThan(23_000);
    expect(run.finishedCalls).toBe(1);
  });

  test("begins a stage when the one before is answered", () => {
    const answerMs = ({ index }: { readonly index: number }) => (index === 3 ? 500_000 : 10);
    const run = recordRun(
      staged([
        [10, 1],
        [10, 1],
      ]),
      { answerMs },
    );
    expect(run.sent[10]!.sentMs).toBeGreaterThan(500_000);
    expect(run.sent[9]!.sentMs).toBeLessThan(10_000);
  });

  test("passes over a stage without requests, and ends when there are none at all", () => {
    const run = recordRun(
      staged([
        [0.1, 1],
        [5, 1],
        [0.1, 1],
      ]),
    );
    expect([run.sent.length, run.finishedCalls]).toEqual([5, 1]);
    expect(recordRun(staged([])).finishedMs).toBe(0);
  });

  test("has sessions that come back with the same prompt and get another answer", () => {
    const { sent } = recordRun(staged([[10, 5]]));
    for (const requests of bySession(sent).values()) {
      expect(requests.map(({ turn }) => turn)).toEqual([0, 1, 2, 3, 4]);
      for (const later of requests.slice(1)) expect(sharedBlocks(requests[0]!.chain, later.chain)).toBe(4);
    }
  });

  test("ends within a stage at a limit", () => {
    const workload = staged([[10, 5]], { requests: 7 });
    expect([workload.expectedRequests, recordRun(workload).sent.length]).toEqual([7, 7]);
    const run = recordRun(staged([[10, 50]], { durationS: 10 }));
    expect(run.sent.length).toBeGreaterThan(50);
    expect(run.sent.length).toBeLessThan(150);
    expect(run.finishedMs).toBe(10_000);
  });
});
