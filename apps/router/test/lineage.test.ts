import { expect, test } from "vitest";
import { createLineages, maxAgents, maxEnds, maxSessions } from "../src/replay/lineage.ts";

const from = (session: number | null, agent: number | null = null, parentAgent: number | null = null) => ({
  ...{ model: "m", session, agent, parentAgent },
});

/** Requests of `[beginning, end]`, in the order of their ends; the first one has number 1. */
function lineagesOf(...requests: readonly (readonly [ReturnType<typeof from>, atMs: number, endMs: number])[]) {
  const lineageOf = createLineages();
  return requests.map(([who, atMs, endMs], at) => lineageOf({ ...who, atMs, durationMs: endMs - atMs }, at + 1));
}

test("a turn waits for the one before it of its session, and no session for another one", () => {
  expect(
    lineagesOf(
      [from(7), 1_000, 3_000],
      [from(8), 2_000, 3_500],
      [from(7), 4_200, 5_000],
      [from(null), 4_000, 5_100],
      [{ ...from(7), model: "small" }, 4_500, 5_200],
      [from(7), 5_000, 9_000],
    ),
  ).toEqual([
    { turn: 0, after: [], pauseMs: 0 },
    { turn: 0, after: [], pauseMs: 0 },
    { turn: 1, after: [1], pauseMs: 1_200 },
    { turn: 0, after: [], pauseMs: 0 },
    { turn: 0, after: [], pauseMs: 0 },
    { turn: 2, after: [3], pauseMs: 0 },
  ]);
});

test("requests beside each other wait for the same one; what follows waits for the one that ended last", () => {
  const who = from(7);
  const all = lineagesOf([who, 0, 1_000], [who, 1_500, 3_000], [who, 1_600, 4_000], [who, 4_100, 5_000]);
  expect(all.map(({ turn, after, pauseMs }) => [turn, after, pauseMs])).toEqual([
    [0, [], 0],
    [1, [1], 500],
    [2, [1], 600],
    [3, [3], 100],
  ]);
});

test("a sub-agent begins after the answer that called for it, and its session goes on after it", () => {
  const [own, explore, deeper] = [from(7), from(7, 50), from(7, 60, 50)];
  const all = lineagesOf(
    [own, 0, 1_000],
    [explore, 1_100, 2_000],
    [deeper, 2_300, 3_000],
    [explore, 3_500, 4_000],
    [own, 4_700, 5_000],
    [own, 6_000, 7_000],
  );
  expect(all.map(({ turn, after, pauseMs }) => [turn, after, pauseMs])).toEqual([
    [0, [], 0],
    [0, [1], 100],
    [0, [2], 300],
    [1, [2, 3], 500],
    [1, [1, 4], 700],
    // It was awaited once.
    [2, [5], 1_000],
  ]);
});

test("routers' clocks may differ by a quarter of a second", () => {
  const who = from(7);
  expect(lineagesOf([who, 0, 1_000], [who, 750, 2_000])[1]).toEqual({ turn: 1, after: [1], pauseMs: 0 });
  expect(lineagesOf([who, 0, 1_000], [who, 749, 2_000])[1]).toEqual({ turn: 1, after: [], pauseMs: 0 });
});

test("of sessions, agents and ends so many are remembered, and one more makes the oldest begin anew", () => {
  const ended = { atMs: 0, durationMs: 0 };
  const later = { atMs: 10_000, durationMs: 5 };
  const sessions = createLineages();
  for (let session = 0; session <= maxSessions; session++) sessions({ ...from(session), ...ended }, session);
  expect([0, 1].map((session) => sessions({ ...from(session), ...later }, 0).after)).toEqual([[], []]);
  expect(sessions({ ...from(maxSessions), ...later }, 0).after).toEqual([maxSessions]);

  const agents = createLineages();
  for (let agent = 0; agent <= maxAgents; agent++) agents({ ...from(1, agent + 1), ...ended }, agent);
  expect(agents({ ...from(1, 1), ...later }, 0).after).toEqual([]);
  expect(agents({ ...from(1, maxAgents + 1), ...later }, 0).after).toEqual([maxAgents]);

  // More requests beside each other than are remembered: the next one waits for the latest that still is.
  const ends = createLineages();
  for (let at = 0; at <= maxEnds; at++) ends({ ...from(1), atMs: at, durationMs: 1_000 - 2 * at }, at);
  expect(ends({ ...from(1), ...later }, 99)).toEqual({ turn: maxEnds + 1, after: [1], pauseMs: 9_001 });
});
