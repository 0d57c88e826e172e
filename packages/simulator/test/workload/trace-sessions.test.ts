import { createVirtualTime, randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { expect, test } from "vitest";
import { readTraceLines, runTraceSession, type TraceRequest, traceSessions } from "../../src/workload/index.ts";
import { traceRequest } from "./helpers.ts";

const of = (turn: number, after: readonly number[], thinkMs: number, session = "s"): TraceRequest =>
  traceRequest({ turn, session, wait: { after, thinkMs } });

/** Runs a session whose answers take the given times, and says when each request was sent. */
function sentAt(session: readonly TraceRequest[], answerMs: (turn: number) => number) {
  const { clock, scheduler, advance } = createVirtualTime();
  const sent: number[] = [];
  let isDone = false;
  runTraceSession(
    session,
    {
      after: (delayMs, task) => void scheduler.after(delayMs, task),
      send({ turn }, ended) {
        expect(isDone).toBe(false);
        sent[turn] = clock.nowMs();
        scheduler.after(answerMs(turn), ended);
      },
    },
    () => {
      isDone = true;
    },
  );
  advance(1e9);
  return { sent, isDone };
}

test("sessions come in the order of their first requests; a trace of arrivals alone has none", () => {
  const rows = [of(0, [], 0, "b"), of(0, [], 0, "a"), of(1, [0], 5, "b")];
  expect(traceSessions(rows)).toEqual([[rows[0], rows[2]], [rows[1]]]);
  expect(traceSessions([...rows, traceRequest({})])).toBeUndefined();
  expect(traceSessions([])).toEqual([]);
});

const recorded = (chat: number, at: number, fields: object = {}) =>
  JSON.stringify({
    ...{ chat_id: chat, parent_chat_id: 700, timestamp: at, input_length: 8, output_length: 1, hash_ids: [] },
    ...fields,
  });

test("a recording says what its requests wait for, whatever the order of its lines", () => {
  const lines = [
    // It ended before the one that began before it.
    recorded(1, 12, { agent: 5, turn: 0, after: [], pause_ms: 0 }),
    recorded(2, 10, { turn: 0, after: [], pause_ms: 0 }),
    recorded(3, 20, { agent: 6, parent_agent: 5, turn: 0, after: [2, 1], pause_ms: 250 }),
  ];
  const [session, ...others] = traceSessions(readTraceLines("recording", lines))!;
  expect(others).toEqual([]);
  expect(session!.map(({ agent, wait }) => [agent, wait])).toEqual([
    [undefined, { after: [], thinkMs: 0 }],
    [{ name: "5" }, { after: [], thinkMs: 2_000 }],
    [
      { name: "6", parent: "5" },
      { after: [0, 1], thinkMs: 250 },
    ],
  ]);
});

test.each([
  ["after", { after: 1 }],
  ["after", { after: [1] }],
  ["after", { after: [9] }],
  ["pause_ms", { after: [], pause_ms: "soon" }],
  ["pause_ms", { after: [], pause_ms: -1 }],
  ["parent_agent", { after: [], pause_ms: 0, agent: 1, parent_agent: "" }],
])("a recording whose %s is wrong is refused: %j", (param, fields) => {
  const lines = [
    recorded(1, 5, { parent_chat_id: 800, after: [], pause_ms: 0 }),
    recorded(2, 10, { pause_ms: 0, ...fields }),
  ];
  expect(() => readTraceLines("recording", lines)).toThrow(expect.objectContaining({ code: "trace_invalid", param }));
});

test("a request is sent when all it waits for is answered and its client has thought", () => {
  const session = [of(0, [], 7), of(1, [0], 10), of(2, [0], 20), of(3, [1, 2], 5)];
  const answers = [100, 1_000, 50, 1];
  expect(sentAt(session, (turn) => answers[turn]!)).toEqual({ sent: [7, 117, 127, 1_122], isDone: true });
});

test("every request is sent once, after what it waits for, however long answers take", () => {
  const sessions = fc.array(
    fc.record({ after: fc.array(fc.nat(30), { maxLength: 3 }), thinkMs: fc.nat(50), answerMs: fc.nat(50) }),
    { minLength: 1, maxLength: 30 },
  );
  fc.assert(
    fc.property(sessions, (drawn) => {
      const session = drawn.map(({ after, thinkMs }, turn) =>
        of(turn, turn === 0 ? [] : [...new Set(after.map((earlier) => earlier % turn))], thinkMs),
      );
      const { sent, isDone } = sentAt(session, (turn) => drawn[turn]!.answerMs);
      expect(isDone).toBe(true);
      for (const { turn, wait } of session) {
        const freeMs = Math.max(0, ...wait!.after.map((earlier) => sent[earlier]! + drawn[earlier]!.answerMs));
        expect(sent[turn]).toBeCloseTo(freeMs + wait!.thinkMs);
      }
    }),
    { numRuns: randomRuns(200) },
  );
});
