import { expect, test } from "vitest";
import {
  endName,
  type ProgramView,
  programsNote,
  readPrograms,
  totalOf,
  viewedPrograms,
} from "../src/model/programs.ts";

const program = (name: string, changes: object = {}) => ({
  ...{ name, model: "llama-8b", source: "header:x-session-id", tenant: null, state: "idle", engine: "engine-2" },
  ...{ queued: 0, running: 0, steps: 3, failed: 0, contextTokens: 1_000, cachedShare: 0.5, computedTokens: 600 },
  ...{ outputTokens: 90, queuedMs: 0, longestQueuedMs: 0, ageMs: 9_000, idleMs: 2_000 },
  ...changes,
});

const report = readPrograms({
  programs: [
    program("a", { state: "running", running: 1, idleMs: 10, contextTokens: 9_000, engine: "engine-10" }),
    program("b", {
      parent: "a",
      answerEnd: "tool_calls",
      state: "queued",
      queued: 1,
      idleMs: 20,
      queuedMs: 4_000,
      longestQueuedMs: 2_500,
      tenant: "team",
    }),
    program("c", { idleMs: 30, cachedShare: null, computedTokens: 0, contextTokens: 0 }),
    program("d", { state: "ended", idleMs: 40, engine: null, steps: 90 }),
  ],
  counts: { queued: 1, running: 1, idle: 70, ended: 1 },
});

const latestFirst: ProgramView = { by: "used", isDescending: true, state: undefined, query: "" };
const namesOf = (change: Partial<ProgramView>) =>
  viewedPrograms(report.programs, { ...latestFirst, ...change }).map(({ name }) => name);

test("programs are sorted by each column, the latest first where they are equal", () => {
  expect(namesOf({})).toEqual(["a", "b", "c", "d"]);
  expect(namesOf({ by: "state" })).toEqual(["b", "a", "c", "d"]);
  expect(namesOf({ by: "steps" })).toEqual(["d", "a", "b", "c"]);
  expect(namesOf({ by: "context", isDescending: false })).toEqual(["c", "b", "d", "a"]);
  expect(namesOf({ by: "cached" })).toEqual(["a", "b", "d", "c"]);
  expect(namesOf({ by: "longest" })).toEqual(["b", "a", "c", "d"]);
  // Engine 2 before engine 10, and what has none before both.
  expect(namesOf({ by: "engine", isDescending: false })).toEqual(["d", "b", "c", "a"]);
  expect(namesOf({ by: "parent", isDescending: true })).toEqual(["b", "a", "c", "d"]);
  expect(namesOf({ by: "name", isDescending: true })).toEqual(["d", "c", "b", "a"]);
});

test("one state alone is listed, and what is looked for, in whichever words", () => {
  expect(namesOf({ state: "idle" })).toEqual(["c"]);
  expect(namesOf({ query: "LLAMA team" })).toEqual(["b"]);
  expect(namesOf({ query: "engine-10", state: "running" })).toEqual(["a"]);
  expect(namesOf({ query: "engine-10", state: "queued" })).toEqual([]);
});

test("pauses are told by how answers end, the most frequent first", () => {
  const pause = (answerEnd: string | null, count: number) => ({
    source: "s",
    answerEnd,
    count,
    p50Ms: 400,
    p95Ms: 9_000,
  });
  const { pauses } = readPrograms({ pauses: [pause(null, 1), pause("tool_calls", 70)] });
  expect(pauses.map(({ answerEnd, p95Ms }) => [endName(answerEnd), p95Ms])).toEqual([
    ["tool calls", 9_000],
    ["unknown", 9_000],
  ]);
  expect(report.pauses).toEqual([]);
});

test("the line above says how many of all are listed, what they cost, and the longest wait", () => {
  expect(totalOf(report.counts)).toBe(73);
  expect(programsNote(report.programs, report)).toBe("4 shown · 1.8K tokens computed · longest wait 2.5 s");
  const all = { ...report, counts: { queued: 1, running: 1, idle: 1, ended: 1 } };
  expect(programsNote(report.programs, all)).toBe("1.8K tokens computed · longest wait 2.5 s");
  expect(programsNote(report.programs.slice(0, 1), all)).toBe("1 shown · 600 tokens computed · no waits");
  expect(programsNote([], readPrograms({ programs: [], counts: {} }))).toBe("");
});

test("an answer of another version is read as far as it goes", () => {
  const odd = readPrograms({ programs: [{ name: "x", state: "asleep" }, 5], counts: { idle: "many" } });
  expect(odd.programs.map(({ name, state }) => [name, state])).toEqual([
    ["x", "idle"],
    ["", "idle"],
  ]);
  expect(totalOf(odd.counts)).toBe(0);
  expect(readPrograms(undefined).programs).toEqual([]);
});
