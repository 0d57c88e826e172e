import { sharedPath } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createTraceReplay, type TraceReplayOptions } from "../../src/clients/traces.ts";
import { infiniteCacheBound, mooncakeStepMs, readTrace, type TraceRequest } from "../../src/workload/index.ts";
import { bySession, infiniteCacheShare, recordRun, type SentRequest, sharedBlocks } from "./recorded-run.ts";

const rowsOf = (rows: readonly Partial<TraceRequest>[]): readonly TraceRequest[] => {
  const turns = new Map<string, number>();
  return rows.map((row, index) => {
    const session = row.session ?? `request-${index}`;
    const turn = turns.get(session) ?? 0;
    turns.set(session, turn + 1);
    const defaults = { arrivalMs: 10 * index, inputTokens: 64, outputTokens: 16, blockIds: undefined, blockTokens: 16 };
    return { ...defaults, ...row, index, session, turn };
  });
};

const replay = (rows: readonly Partial<TraceRequest>[], options: Partial<TraceReplayOptions> = {}) =>
  createTraceReplay({ seed: 1, rows: rowsOf(rows), speed: 1, limits: {}, ...options });

const sentBy = (rows: readonly Partial<TraceRequest>[], options: Partial<TraceReplayOptions> = {}) =>
  recordRun(replay(rows, options), { copiesChains: true }).sent;

const shared = (sent: readonly SentRequest[], one: number, other: number): number =>
  sharedBlocks(sent[one]!.chain, sent[other]!.chain);

describe("a replay", () => {
  test("sends each row at its time, with its tokens, session and turn", () => {
    const rows = [
      { arrivalMs: 0, inputTokens: 100, outputTokens: 7, session: "a" },
      { arrivalMs: 500, inputTokens: 3, outputTokens: 1, session: "b" },
      { arrivalMs: 500, inputTokens: 200, outputTokens: 1, session: "a" },
    ];
    const workload = replay(rows);
    const run = recordRun(workload, { startMs: 777 });
    expect(workload.expectedRequests).toBe(3);
    expect(run.sent.map(({ sentMs }) => sentMs)).toEqual([0, 500, 500]);
    expect(run.sent.map(({ session, turn }) => [session, turn])).toEqual([
      [0, 0],
      [1, 0],
      [0, 1],
    ]);
    expect(run.sent.map(({ promptTokens, outputTokens }) => [promptTokens, outputTokens])).toEqual([
      [100, 7],
      [3, 1],
      [200, 1],
    ]);
    expect(run.sent.map(({ chain }) => chain.length / 2)).toEqual([6, 0, 12]);
    expect([run.finishedMs, run.finishedCalls]).toEqual([500, 1]);
  });

  test("goes as fast as it is told", () => {
    const times = sentBy([{ arrivalMs: 0 }, { arrivalMs: 900 }, { arrivalMs: 3_000 }], { speed: 3 });
    expect(times.map(({ sentMs }) => Math.round(sentMs))).toEqual([0, 300, 1_000]);
  });

  test("comes to its end however times are rounded: a timer may fire a fraction before a row's time", () => {
    const rows = Array.from({ length: 300 }, (_, at) => ({ arrivalMs: at * 331 + (at % 7) }));
    for (const speed of [6, 7, 0.3]) {
      const { sent, finishedCalls } = recordRun(replay(rows, { speed }), { startMs: 1_000 / 3 });
      expect([sent.length, finishedCalls]).toEqual([300, 1]);
      for (const [at, { sentMs }] of sent.entries()) expect(sentMs).toBeCloseTo(rows[at]!.arrivalMs / speed, 6);
    }
  });

  test("ends after so many rows, or after so many seconds", () => {
    const rows = Array.from({ length: 100 }, (_, at) => ({ arrivalMs: at * 100 }));
    for (const [limits, speed, count] of [
      [{ requests: 30 }, 1, 30],
      [{ durationS: 2 }, 1, 20],
      [{ durationS: 2 }, 2, 40],
      [{ requests: 500 }, 1, 100],
    ] as const) {
      const workload = replay(rows, { limits, speed });
      expect([workload.expectedRequests, recordRun(workload).sent.length]).toEqual([count, count]);
    }
  });

  test("spreads rounded times over their steps, in order, by the seed", () => {
    const rows = Array.from({ length: 200 }, (_, at) => ({ arrivalMs: Math.floor(at / 20) * mooncakeStepMs }));
    const times = (seed: number) =>
      sentBy(rows, { seed, stepMs: mooncakeStepMs, speed: 2 }).map(({ sentMs }) => 2 * sentMs);
    const [one, again, other] = [times(1), times(1), times(2)];
    expect(one).toEqual(again);
    expect(one).not.toEqual(other);
    expect(one).toEqual(one.toSorted((a, b) => a - b));
    for (const [at, time] of one.entries()) expect(Math.floor(time / mooncakeStepMs)).toBe(Math.floor(at / 20));
    const workload = replay(rows, { stepMs: mooncakeStepMs, limits: { durationS: 15 } });
    expect(recordRun(workload).sent).toHaveLength(workload.expectedRequests);
  });
});

describe("blocks with names", () => {
  const blockTokens = 64;

  test("are the same text at the same place after the same blocks", () => {
    const sent = sentBy([
      { inputTokens: 256, blockTokens, blockIds: [1, 2, 3, 4] },
      { inputTokens: 256, blockTokens, blockIds: [1, 2, 5, 4] },
      { inputTokens: 256, blockTokens, blockIds: [2, 1, 3, 4] },
      { inputTokens: 256, blockTokens, blockIds: [1, 2, 3, 4] },
    ]);
    expect([shared(sent, 0, 1), shared(sent, 0, 2), shared(sent, 0, 3)]).toEqual([8, 0, 16]);
  });

  test("are partial at the end, named or not; what has no name is nobody else's", () => {
    const sent = sentBy([
      { inputTokens: 112, blockTokens, blockIds: [1, 2] },
      { inputTokens: 112, blockTokens, blockIds: [1, 2] },
      { inputTokens: 112, blockTokens, blockIds: [1] },
      { inputTokens: 112, blockTokens, blockIds: [1] },
    ]);
    expect([shared(sent, 0, 1), shared(sent, 0, 2), shared(sent, 2, 3)]).toEqual([7, 4, 4]);
    expect(sent.every(({ promptTokens }) => promptTokens === 112)).toBe(true);
  });

  test("answers are nobody else's, also between turns of a session", () => {
    const sent = sentBy([
      { session: "s", inputTokens: 64, outputTokens: 64, blockTokens, blockIds: [1] },
      { session: "s", inputTokens: 64, outputTokens: 64, blockTokens, blockIds: [1] },
      { session: "s", inputTokens: 192, outputTokens: 1, blockTokens, blockIds: [1, 2, 3] },
    ]);
    expect([shared(sent, 0, 1), shared(sent, 0, 2)]).toEqual([4, 4]);
  });
});

describe("rows without names", () => {
  test("have nothing in common", () => {
    const sent = sentBy([{ inputTokens: 320 }, { inputTokens: 320 }]);
    expect(shared(sent, 0, 1)).toBe(0);
    expect(infiniteCacheShare(sent)).toBe(0);
  });

  test("go on in a later turn where the earlier answer ended", () => {
    const sent = sentBy([
      { session: "s", inputTokens: 100, outputTokens: 60 },
      { session: "t", inputTokens: 100, outputTokens: 60 },
      { session: "s", inputTokens: 200, outputTokens: 40 },
      { session: "s", inputTokens: 300, outputTokens: 40 },
    ]);
    expect([shared(sent, 0, 1), shared(sent, 0, 2), shared(sent, 2, 3)]).toEqual([0, 10, 15]);
  });

  test("have as much of the earlier turn as their tokens allow", () => {
    const sent = sentBy([
      { session: "s", inputTokens: 160, outputTokens: 160 },
      { session: "s", inputTokens: 105, outputTokens: 160 },
      { session: "s", inputTokens: 320, outputTokens: 16 },
    ]);
    // 105 tokens have 6 full blocks; the later turn goes on from the shorter one.
    expect([shared(sent, 0, 1), shared(sent, 1, 2), shared(sent, 0, 2)]).toEqual([6, 16, 6]);
    expect(sent.map(({ promptTokens }) => promptTokens)).toEqual([160, 105, 320]);
  });

  test("share what their texts share, a block of 64 bytes at a time", () => {
    const common = "a rule of the house, told to everybody. ".repeat(8);
    const rows = ["one question", "another question"].map((end) => {
      const prompt = common + end.repeat(10);
      return { prompt, inputTokens: Math.ceil(prompt.length / 4) };
    });
    const chat = { inputTokens: 80, prompt: [{ role: "system", content: common }, { role: "user" }] };
    const sent = sentBy([...rows, chat]);
    expect(common.length / 64).toBe(5);
    expect([shared(sent, 0, 1), shared(sent, 0, 2)]).toEqual([5, 5]);
  });

  test("with texts of more bytes than letters, or of parts, keep their tokens", () => {
    const prompt = "größer".repeat(20);
    const parts = [{ role: "user", content: [{ type: "text", text: "x".repeat(50) }] }];
    const sent = sentBy([
      { prompt, inputTokens: Math.ceil(Buffer.byteLength(prompt) / 4) },
      { prompt: parts, inputTokens: 20 },
    ]);
    expect(sent.map(({ promptTokens }) => promptTokens)).toEqual([40, 20]);
  });
});

const path = sharedPath("traces", "conversation_trace.jsonl.gz");

describe.skipIf(path === undefined)("the Mooncake conversation trace", () => {
  test("is replayed whole: at least its bound of blocks of 512 is shared, and views are all that is kept", async () => {
    const rows = (await readTrace(path!)).slice(0, 500);
    const workload = createTraceReplay({ seed: 1, rows, speed: 1, stepMs: mooncakeStepMs, limits: {} });
    const { sent } = recordRun(workload);
    expect(sent.map(({ promptTokens }) => promptTokens)).toEqual(rows.map(({ inputTokens }) => inputTokens));
    const share = infiniteCacheShare(sent);
    const bound = infiniteCacheBound(rows)!;
    expect(share).toBeGreaterThanOrEqual(bound - 0.002);
    expect(share).toBeLessThan(bound + 0.02);
    expect(bySession(sent).size).toBe(new Set(rows.map(({ session }) => session)).size);
    for (const { chain } of sent) expect(chain.buffer.byteLength).toBeLessThanOrEqual(Math.max(256, chain.byteLength));
  });
});
