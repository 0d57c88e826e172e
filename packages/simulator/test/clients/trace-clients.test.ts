import { describe, expect, test } from "vitest";
import { createTraceStarts, createTraceUsers } from "../../src/clients/trace-clients.ts";
import { readTraceLines, type TraceRequest } from "../../src/workload/index.ts";
import { bySession, recordRun, sharedBlocks } from "./recorded-run.ts";

/** Sessions of three requests: the second after 4 s, the third after 6 s, all behind 64 tokens of tools. */
function rows(sessions: number): readonly TraceRequest[] {
  const lines = Array.from({ length: sessions }, (_, number) =>
    JSON.stringify({
      ...{ id: String(number), block_size: 64, hash_id_scope: "local", tool_tokens: 64, system_tokens: 0 },
      requests: [
        { t: 0, type: "n", in: 640, out: 10, hash_ids: [[1, 10]], api_time: 1 },
        { t: 5, type: "n", in: 700, out: 10, hash_ids: [[1, 10]], api_time: 1, think_time: 4 },
        {
          t: 12,
          type: "n",
          in: 960,
          out: 10,
          hash_ids: [
            [1, 9],
            [20, 6],
          ],
          api_time: 1,
          think_time: 6,
        },
      ],
    }),
  );
  return readTraceLines("file", lines);
}

describe("users", () => {
  const users = (of: Partial<Parameters<typeof createTraceUsers>[0]> = {}) =>
    createTraceUsers({ seed: 3, rows: rows(4), users: 2, rampS: 0, limits: { requests: 30 }, ...of });

  test("work through one session after the other, with its times to think after each answer", () => {
    const { sent, finishedCalls, mostInFlight } = recordRun(users(), { answerMs: 2_000 });
    expect([sent.length, finishedCalls, mostInFlight]).toEqual([30, 1, 2]);
    for (const session of bySession(sent).values()) {
      const [first, second, third] = session.map(({ sentMs }) => sentMs);
      expect([second! - first!, third! - second!]).toEqual([6_000, 8_000]);
    }
    // A session takes three answers and 10 s of thinking; the next one begins at once.
    expect([...bySession(sent).values()].map(([first]) => first!.sentMs)).toEqual(
      [0, 0, 1, 1, 2, 2, 3, 3, 4, 4].map((lap) => lap * 16_000),
    );
  });

  test("find their own text again, the tools of all, and nothing else, even when a session comes again", () => {
    const { sent } = recordRun(users());
    const sessions = [...bySession(sent).values()];
    expect(sessions).toHaveLength(10);
    for (const [at, [first, second, third]] of sessions.entries()) {
      expect(first!.promptTokens).toBe(640);
      expect(sharedBlocks(first!.chain, second!.chain)).toBe(640 / 16);
      expect(sharedBlocks(second!.chain, third!.chain)).toBe((9 * 64) / 16);
      for (const [other] of sessions.slice(at + 1)) expect(sharedBlocks(first!.chain, other!.chain)).toBe(64 / 16);
    }
  });

  test("begin within the ramp, in another order with another seed, the same with the same", () => {
    const startsOf = (seed: number) => {
      const run = recordRun(users({ seed, users: 40, rampS: 10, limits: { durationS: 10 } }));
      return [...bySession(run.sent).values()].map(([first]) => first!.sentMs);
    };
    const starts = startsOf(1);
    expect(starts).toHaveLength(40);
    expect(Math.max(...starts)).toBeLessThan(10_000);
    expect(Math.max(...starts) - Math.min(...starts)).toBeGreaterThan(7_000);
    expect(startsOf(1)).toEqual(starts);
    expect(startsOf(2)).not.toEqual(starts);
  });
});

describe("starts", () => {
  test("come at their rate, however slow answers are", () => {
    for (const answerMs of [10, 100_000]) {
      const workload = createTraceStarts({ seed: 1, rows: rows(4), startsPerS: 2, limits: { durationS: 300 } });
      const sessions = bySession(recordRun(workload, { answerMs }).sent).size;
      expect(sessions).toBeGreaterThan(540);
      expect(sessions).toBeLessThan(660);
    }
  });

  test("need a rate", () => {
    const limits = { durationS: 1 };
    expect(() => createTraceStarts({ seed: 1, rows: rows(1), startsPerS: 0, limits })).toThrow(RangeError);
  });
});

test("without a limit, and without what requests wait for, there is nothing to run", () => {
  const of = { seed: 1, users: 1, rampS: 0 };
  expect(() => createTraceUsers({ ...of, rows: rows(1), limits: {} })).toThrow(RangeError);
  const [{ wait: _, ...row }] = rows(1) as readonly [TraceRequest];
  expect(() => createTraceUsers({ ...of, rows: [row], limits: { requests: 1 } })).toThrow(RangeError);
});
