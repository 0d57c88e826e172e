import { expect, test } from "vitest";
import {
  type Decision,
  endDecisions,
  endText,
  freshDecisions,
  isBadEnd,
  matchedShare,
  matchedText,
  maxDecisions,
  mergeDecisions,
  readDecisions,
  readEnds,
  reasonText,
  skippedOf,
} from "../src/model/decisions.ts";
import {
  followSessions,
  latestTrails,
  loseRouter,
  maxSessions,
  maxSteps,
  type Sessions,
  takeoverOf,
  takeoverOutcome,
  takeoverText,
} from "../src/model/sessions.ts";
import { decision } from "./fixtures.ts";

test("events are read, and what is no decision counts as one without anything", () => {
  const reported = {
    decisions: [{ number: 3, target: "a", reason: "least_time", session: "ab", attempt: 2 }, 7],
    skipped: 5,
  };
  const [first, second] = readDecisions("router-1", reported);
  expect(first).toMatchObject({ router: "router-1", number: 3, target: "a", session: "ab", attempt: 2 });
  expect(second).toMatchObject({ router: "router-1", number: 0, target: "", session: null, attempt: 1 });
  expect([skippedOf(reported), skippedOf(undefined), readDecisions("r", "x")]).toEqual([5, 0, []]);
});

test("a decision gets the end of its request; an attempt before the last one was tried again", () => {
  const end = { requestId: "r", outcome: "answered", status: 200, durationMs: 1_240, attempts: 2 };
  const [first, second, other, elsewhere] = endDecisions(
    [
      decision({ requestId: "r", attempt: 1 }),
      decision({ requestId: "r", attempt: 2 }),
      decision({ requestId: "s" }),
      decision({ requestId: "r", router: "router-2" }),
    ],
    "router-1",
    readEnds({ ends: [end] }),
  );
  expect([first, second, other, elsewhere].map((one) => endText(one!))).toEqual(["tried again", "200 · 1.2 s", "", ""]);
  const ended = (outcome: string, status: number) =>
    decision({ end: { ...end, outcome, status, durationMs: 70, attempts: 1 } });
  const ends = [ended("cut", 200), ended("cancelled", 499), ended("failed", 502), ended("answered", 400)];
  expect(ends.map((one) => [endText(one), isBadEnd(one)])).toEqual([
    ["cut off · 70 ms", true],
    ["client left · 70 ms", false],
    ["502 · 70 ms", true],
    ["400 · 70 ms", true],
  ]);
  expect(isBadEnd(second!)).toBe(false);
});

test("decisions of several routers stand in the order of time, the newest first, each once", () => {
  const one = [decision({ number: 1, atMs: 10 }), decision({ number: 2, atMs: 30 })];
  const other = [decision({ router: "router-2", number: 1, atMs: 20 })];
  const merged = mergeDecisions(mergeDecisions([], one), other);
  expect(merged.map(({ atMs }) => atMs)).toEqual([30, 20, 10]);
  const again = freshDecisions(merged, [...one, decision({ number: 3, atMs: 40 })]);
  expect(again.map(({ number }) => number)).toEqual([3]);
});

test("so many are kept, and not one more: the oldest goes", () => {
  const all = Array.from({ length: maxDecisions + 1 }, (_, at) => decision({ number: at, atMs: at }));
  const merged = mergeDecisions([], all);
  expect([merged.length, merged.at(-1)?.number]).toEqual([maxDecisions, 1]);
});

test.each<readonly [Partial<Decision>, string]>([
  [{ matchedTokens: 750 }, "shortest time to the answer · 750 of 1,000 tokens cached"],
  [{}, "shortest time to the answer · cold: 1,000 tokens to compute"],
  [{ reason: "session_bound", promptTokens: 0 }, "the session's engine"],
  [{ reason: "a_new_reason", promptTokens: 0 }, "a new reason"],
  [{ reason: "only_candidate", promptTokens: 0 }, "the only candidate"],
  [
    {
      ...{ reason: "only_candidate", promptTokens: 0 },
      excluded: [
        { reason: "saturated", count: 2 },
        { reason: "class_partition", count: 1 },
      ],
    },
    "the only candidate (others: 2 saturated, 1 class partition)",
  ],
  [{ queuedMs: 40, attempt: 2, promptTokens: 0 }, "shortest time to the answer · waited 40 ms · attempt 2"],
  [
    { promptTokens: 0, pull: { from: "engine-2", tokens: 14_336, ms: 86.2, computeMs: 510.4 } },
    "shortest time to the answer · fetched 14,336 tokens from engine-2: 86 ms beside 510 to compute",
  ],
  [{ promptTokens: 0, prefillEngine: "engine-c" }, "shortest time to the answer · prompt computed by engine-c"],
])("%j reads: %s", (changes, text) => {
  expect(reasonText(decision(changes))).toBe(text);
});

test("the share of a prompt that is there is between none and all", () => {
  expect(matchedShare(decision({ promptTokens: 0, matchedTokens: 5 }))).toBe(0);
  expect(matchedShare(decision({ promptTokens: 4, matchedTokens: 5 }))).toBe(1);
  expect(matchedText(decision({ matchedTokens: 250 }))).toBe("25 % of the prompt is cached there");
});

const none: Sessions = new Map();
const at = (atMs: number, router: string, target: string, session = "s"): Decision =>
  decision({ atMs, number: atMs, router, target, session });

test("a trail tells the steps in order of time, and which of them went to another engine", () => {
  const sessions = followSessions(none, [at(3, "r2", "b"), at(1, "r1", "a"), at(2, "r2", "a")]);
  const steps = followSessions(sessions, [at(4, "r1", "b")]).get("s")?.steps;
  expect(steps?.map(({ router, target, hasChangedTarget }) => [router, target, hasChangedTarget])).toEqual([
    ["r1", "a", false],
    ["r2", "a", false],
    ["r2", "b", true],
    ["r1", "b", false],
  ]);
});

test("requests of no session leave no trail", () => {
  expect(followSessions(none, [decision({ session: null })])).toBe(none);
});

test("so many sessions and steps are kept: those heard of longest ago go", () => {
  let sessions = none;
  for (let one = 0; one <= maxSessions; one++) sessions = followSessions(sessions, [at(one, "r1", "a", `s${one}`)]);
  expect([sessions.size, sessions.has("s0"), sessions.has("s1")]).toEqual([maxSessions, false, true]);
  const long = followSessions(
    none,
    Array.from({ length: maxSteps + 1 }, (_, step) => at(step, "r1", "a")),
  );
  expect([long.get("s")?.steps.length, long.get("s")?.steps[0]?.atMs]).toEqual([maxSteps, 1]);
});

test("shown are those heard of last, of those that have come back if any have", () => {
  const first = followSessions(none, [at(1, "r1", "a", "x"), at(2, "r1", "a", "y")]);
  expect(latestTrails(first, 5).map(({ session }) => session)).toEqual(["y", "x"]);
  const later = followSessions(first, [at(3, "r1", "a", "x"), at(4, "r1", "a", "z")]);
  expect(latestTrails(later, 5).map(({ session }) => session)).toEqual(["x"]);
  expect(latestTrails(first, 1)).toHaveLength(1);
});

test("of a router that is gone it is told how many of its sessions came back, and how many met their engine again", () => {
  const before = followSessions(none, [
    ...[at(1, "r1", "a", "kept"), at(2, "r1", "b", "switched"), at(3, "r1", "a", "silent")],
    ...[at(4, "r1", "a", "elsewhere"), at(5, "r2", "a", "elsewhere")],
  ]);
  const lost = loseRouter(before, "r1", 1_000);
  expect(takeoverOf(lost, before)).toMatchObject({ router: "r1", sessions: 3, cameBack: 0, keptEngine: 0 });
  const after = followSessions(before, [
    ...[at(2_000, "r2", "a", "kept"), at(2_100, "r3", "c", "switched")],
    ...[at(2_200, "r3", "b", "kept"), at(2_300, "r2", "b", "new")],
  ]);
  expect(takeoverOf(lost, after)).toEqual({ router: "r1", goneMs: 1_000, sessions: 3, cameBack: 2, keptEngine: 1 });
});

test("what became of them is told in a sentence", () => {
  const lost = { router: "r1", goneMs: 0, sessions: 9, cameBack: 4, keptEngine: 3 };
  expect(takeoverText(lost)).toBe("4 of its 9 sessions resumed on other routers, 3 of these on the same engine.");
  expect(takeoverText({ ...lost, cameBack: 0 })).toBe("0 of its 9 sessions resumed on other routers so far.");
  expect(takeoverText({ ...lost, sessions: 0 })).toBe("No session of this router was seen.");
  // That none has come back, as after the loss of all routers, stood there in green.
  const outcomes = [lost, { ...lost, cameBack: 0 }, { ...lost, sessions: 0, cameBack: 0 }].map(takeoverOutcome);
  expect(outcomes).toEqual(["back", "waiting", "none"]);
});
