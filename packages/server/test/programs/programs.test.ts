import type { AnswerEnd } from "@espalier/api";
import { asRouterId, silentMeter } from "@espalier/core";
import type { PromptBlocks } from "@espalier/routing";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import { type CountingMeter, createCountingMeter, createVirtualTime, type VirtualTime } from "@espalier/testing";
import { beforeEach, expect, test } from "vitest";
import { createDecisionFeed } from "../../src/decisions/decision-feed.ts";
import {
  Conversations,
  forgetBeginningsMs,
  maxBeginnings,
  publishBeginningsMs,
} from "../../src/programs/conversations.ts";
import { maxNoteRows, readProgramNote, writeProgramNote } from "../../src/programs/program-note.ts";
import { forgetProgramMs, maxFirstSteps, maxPrograms, type ProgramRow } from "../../src/programs/program-table.ts";
import {
  createPrograms,
  maxPauseSources,
  maxReportedPrograms,
  type Programs,
  publishProgramsMs,
} from "../../src/programs/programs.ts";

let time: VirtualTime;
let meter: CountingMeter;
let routers: readonly Programs[];
/** By router, the keys of prompts that will not be continued. */
let ended: readonly number[][];

/** Routers whose notes all others get at once. */
function startRouters(count: number): readonly Programs[] {
  ended = Array.from({ length: count }, () => []);
  const listeners: ((note: Note) => void)[][] = Array.from({ length: count }, () => []);
  return listeners.map((_, self) => {
    const notes: NoteChannel = {
      post(key, bytes) {
        const note = { origin: { router: asRouterId(`router-${self}`), epoch: 1 }, key, bytes, ageMs: 0 };
        for (const [other, heard] of listeners.entries()) if (other !== self) for (const hear of heard) hear(note);
        return true;
      },
      onNote(listener) {
        listeners[self]!.push(listener);
        return () => {};
      },
    };
    const { sessionName } = createDecisionFeed({ scheduler: time.scheduler, seed: "secret" });
    const programs = createPrograms({
      ...{ sessionName, notes, clock: time.clock, scheduler: time.scheduler },
      memory: { keyOf: ({ blockCount }) => blockCount || undefined, ended: (key) => void ended[self]!.push(key) },
      meter: self === 0 ? meter : silentMeter,
    });
    void programs.start();
    return programs;
  });
}

beforeEach(() => {
  time = createVirtualTime();
  meter = createCountingMeter();
  routers = startRouters(2);
});

const planned = (
  sessionKey: string | undefined,
  { tenant, model = "m" }: { tenant?: string; model?: string } = {},
) => ({
  pool: { model },
  features: { sessionKey, sessionScope: tenant },
  sessionSource: "header:x-session-id",
  service: { tenant: tenant ?? "" },
});

interface Turn {
  readonly queuedMs?: number;
  readonly promptTokens?: number;
  readonly cachedTokens?: number;
  readonly answerEnd?: AnswerEnd;
}

function turn(router: number, key: string, engine: string, { queuedMs = 0, ...usage }: Turn = {}): void {
  const step = routers[router]!.begin(planned(key))!;
  time.advance(queuedMs);
  step.sent(engine);
  step.ended({
    isAnswered: true,
    answerEnd: undefined,
    promptTokens: undefined,
    cachedTokens: undefined,
    outputTokens: 10,
    ...usage,
  });
}

const programsAt = (router: number) => routers[router]!.report().programs;
const publish = () => time.advance(publishProgramsMs);

test("a program whose turns go to different routers is one program at each", () => {
  turn(0, "agent", "a", { promptTokens: 1_000, cachedTokens: 0, queuedMs: 400 });
  turn(1, "agent", "a", { promptTokens: 1_100, cachedTokens: 1_000, queuedMs: 100 });
  turn(0, "agent", "b", { promptTokens: 1_200, cachedTokens: 1_100, queuedMs: 200 });
  publish();
  const whole = {
    ...{ model: "m", source: "header:x-session-id", tenant: null, state: "idle", engine: "b", steps: 3, failed: 0 },
    ...{ contextTokens: 1_210, cachedShare: 2_100 / 3_300, computedTokens: 1_200, outputTokens: 30 },
    ...{ queuedMs: 700, longestQueuedMs: 400 },
  };
  expect(programsAt(0)).toEqual([expect.objectContaining(whole)]);
  expect(programsAt(1)).toEqual([expect.objectContaining(whole)]);
  expect(programsAt(0)[0]!.name).toBe(programsAt(1)[0]!.name);
  time.advance(5_000);
  expect(programsAt(1)[0]).toMatchObject({ idleMs: 5_000 + publishProgramsMs, ageMs: 5_700 + publishProgramsMs });
});

test("is queued, running, idle; a request that never went to an engine has waited too", () => {
  const step = routers[0]!.begin(planned("agent"))!;
  expect(programsAt(0)[0]).toMatchObject({ state: "queued", queued: 1, engine: null });
  time.advance(300);
  step.sent("a");
  step.sent("b");
  publish();
  expect(programsAt(1)[0]).toMatchObject({ state: "running", queued: 0, running: 1, engine: "b", queuedMs: 300 });
  expect(meter.value("espalier_programs", "running")).toBe(1);
  step.ended({
    isAnswered: false,
    answerEnd: undefined,
    promptTokens: undefined,
    cachedTokens: undefined,
    outputTokens: 0,
  });
  expect(programsAt(0)[0]).toMatchObject({ state: "idle", running: 0, steps: 0, failed: 1, cachedShare: null });
  const refused = routers[0]!.begin(planned("refused"))!;
  time.advance(50);
  refused.ended({
    isAnswered: false,
    answerEnd: undefined,
    promptTokens: undefined,
    cachedTokens: undefined,
    outputTokens: 0,
  });
  expect(programsAt(0)[0]).toMatchObject({ queued: 0, queuedMs: 50, failed: 1 });
});

test("tenants, models and sessions are programs of their own; a request without a key is none", () => {
  expect(routers[0]!.begin(planned(undefined))).toBeUndefined();
  for (const request of [planned("s"), planned("s", { tenant: "t" }), planned("s", { model: "other" }), planned("r")]) {
    routers[0]!.begin(request);
  }
  expect(new Set(programsAt(0).map(({ name }) => name)).size).toBe(4);
  expect(JSON.stringify(routers[0]!.report())).not.toContain('"s"');
});

test("the end of a session is known to all, in every model, also to a router that never served it", () => {
  routers = startRouters(3);
  turn(0, "agent", "a");
  routers[0]!.begin(planned("agent", { model: "other" }))!.ended({
    ...{ isAnswered: true, answerEnd: undefined, promptTokens: 5, cachedTokens: 0, outputTokens: 1 },
  });
  turn(1, "another", "a");
  publish();
  routers[2]!.endSession("agent");
  publish();
  for (const at of [0, 1, 2])
    expect(routers[at]!.report().counts).toEqual({ queued: 0, running: 0, idle: 1, ended: 2 });
  turn(1, "agent", "b");
  expect(routers[1]!.report().counts).toMatchObject({ idle: 2, ended: 1 });
});

test("is forgotten when it was idle for half an hour, everywhere", () => {
  turn(0, "agent", "a");
  publish();
  time.advance(forgetProgramMs - publishProgramsMs - 1);
  expect([programsAt(0).length, programsAt(1).length]).toEqual([1, 1]);
  time.advance(1);
  expect([programsAt(0).length, programsAt(1).length]).toEqual([0, 0]);
});

test("one program too many: the one that was idle longest is forgotten; a report has the latest", () => {
  for (let at = 0; at <= maxPrograms; at++) {
    time.advance(1);
    turn(0, `agent-${at}`, "a");
  }
  publish();
  expect(routers[0]!.report().counts.idle).toBe(maxPrograms);
  expect(programsAt(0)).toHaveLength(maxReportedPrograms);
  // Others know as many as fit into notes.
  expect(routers[1]!.report().counts.idle).toBeGreaterThan(maxPrograms / 2);
});

const row: ProgramRow = {
  ...{
    name: "0a1b2c3d",
    session: "3d2c1b0a",
    parent: "11112222",
    answerEnd: "length",
    model: "m",
    source: "header:x-session-id",
    tenant: "t",
    engine: "e",
  },
  ...{
    queued: 1,
    running: 2,
    steps: 3,
    failed: 4,
    contextTokens: 5,
    promptKey: 2 ** 53 - 1,
    promptTokens: 6,
    cachedTokens: 7,
    outputTokens: 8,
  },
  ...{ queuedMs: 9, longestQueuedMs: 10, ageMs: 11, idleMs: 12, isOver: true },
};

test("a note has its rows; of too many, and of those that do not fit, the last ones", () => {
  expect(readProgramNote(writeProgramNote([row], 16_384))).toEqual([row]);
  const many = Array.from({ length: maxNoteRows + 1 }, (_, steps) => ({ ...row, steps }));
  expect(readProgramNote(writeProgramNote(many, 65_536)).map(({ steps }) => steps)).toEqual(
    Array.from({ length: maxNoteRows }, (_, at) => at + 1),
  );
  const small = writeProgramNote(many, 1_024);
  expect(small.length).toBeLessThanOrEqual(1_024);
  expect(readProgramNote(small).at(-1)!.steps).toBe(maxNoteRows);
  expect(readProgramNote(writeProgramNote([{ ...row, model: "m".repeat(256) }, row], 16_384))).toEqual([row]);
});

test("bytes that are no note are nothing", () => {
  expect(() => readProgramNote(Uint8Array.of(1, 255))).toThrow(RangeError);
});

const conversation = (digest: number, isContinued: boolean, tenant?: string) => ({
  ...planned(undefined, tenant === undefined ? {} : { tenant }),
  sessionSource: "prefix",
  conversation: { digest, isContinued },
});

/** A turn as the data plane plans it: it continues the first beginning that is one. */
function say(
  router: number,
  beginnings: readonly number[],
  { isAnswered = true }: { isAnswered?: boolean } = {},
): void {
  hold(router, beginnings)(isAnswered);
  time.advance(publishBeginningsMs);
}

function hold(router: number, beginnings: readonly number[]): (isAnswered: boolean) => void {
  const { begin, isBeginning } = routers[router]!;
  const known = beginnings.slice(0, -1).find(isBeginning);
  const step = begin(conversation(known ?? beginnings.at(-1)!, known !== undefined))!;
  step.sent("a");
  return (isAnswered) =>
    step.ended({
      isAnswered,
      answerEnd: undefined,
      promptTokens: 10,
      cachedTokens: 0,
      outputTokens: isAnswered ? 5 : 0,
    });
}

test("a conversation without a key whose turns go to two routers is one program, from its second turn on", () => {
  say(0, [1]);
  publish();
  expect([programsAt(0), programsAt(1)]).toEqual([[], []]);
  for (const [router, ...beginnings] of [
    [1, 1, 2],
    [0, 1, 2, 3],
    [1, 1, 2, 3, 4],
    [0, 1, 2, 3, 4, 5],
  ] as const) {
    say(router, beginnings);
  }
  publish();
  const whole = [expect.objectContaining({ source: "prefix", steps: 5, outputTokens: 25, state: "idle" })];
  expect([programsAt(0), programsAt(1)]).toEqual([whole, whole]);
});

test("goes on at a router that had no turn of it, as long as its beginning is remembered", () => {
  routers = startRouters(3);
  say(0, [1]);
  say(1, [1, 2]);
  say(2, [1, 2, 3]);
  publish();
  expect(routers.map((router) => router.report().programs.map(({ steps }) => steps))).toEqual([[3], [3], [3]]);
  time.advance(forgetBeginningsMs);
  expect(routers.map(({ isBeginning }) => isBeginning(1))).toEqual([false, false, false]);
});

test.each([
  [0, 0],
  [0, 1],
])("samples of one prompt at routers %i and %i are programs of their own from their second turn on", (one, other) => {
  const ends = [hold(one, [1]), hold(other, [1])];
  time.advance(publishBeginningsMs);
  for (const end of ends) end(true);
  for (const [router, turn] of [
    [one, 20],
    [other, 30],
  ] as const) {
    say(router, [1, turn]);
    say(router, [1, turn, turn + 1]);
    say(router, [1, turn, turn + 1, turn + 2]);
  }
  publish();
  for (const at of [0, 1]) expect(programsAt(at).map(({ steps }) => steps)).toEqual([3, 3]);
});

test("a first request that failed may come again", () => {
  say(0, [1], { isAnswered: false });
  expect([routers[0]!.isBeginning(1), routers[1]!.isBeginning(1)]).toEqual([false, false]);
  say(1, [1]);
  say(0, [1, 2]);
  publish();
  expect(programsAt(1)).toEqual([expect.objectContaining({ steps: 2, failed: 1 })]);
});

test("tenants with the same text are programs of their own", () => {
  for (const [digest, tenant] of [
    [1, "t"],
    [2, "u"],
  ] as const) {
    routers[0]!.begin(conversation(digest, false, tenant));
    routers[0]!.begin(conversation(digest, true, tenant));
  }
  expect(programsAt(0).map(({ tenant, queued }) => [tenant, queued])).toEqual([
    ["t", 2],
    ["u", 2],
  ]);
});

test("one first request too many: the earliest is forgotten, and the next conversation is a program", () => {
  for (let at = 1; at <= maxFirstSteps + 1; at++) hold(0, [at])(true);
  say(0, [1, -1]);
  say(0, [2, -2]);
  expect(programsAt(0).map(({ steps }) => steps)).toEqual([2, 1]);
  expect([1, 2].map((digest) => routers[1]!.isBeginning(digest))).toEqual([true, true]);
});

test("one beginning too many: the oldest note of beginnings goes, at other routers too", () => {
  for (let at = 1; at <= maxBeginnings; at++) hold(0, [at])(true);
  time.advance(publishBeginningsMs);
  expect([0, 1].map((at) => routers[at]!.isBeginning(1))).toEqual([true, true]);
  hold(0, [maxBeginnings + 1])(true);
  time.advance(publishBeginningsMs);
  for (const { isBeginning } of routers) {
    expect([1, 128, 129, maxBeginnings, maxBeginnings + 1].map(isBeginning)).toEqual([false, false, true, true, true]);
  }
});

test("a note of beginnings that is none is ignored", () => {
  const broken: Note = {
    origin: { router: asRouterId("x"), epoch: 1 },
    key: "beginnings/0",
    bytes: Uint8Array.of(9),
    ageMs: 0,
  };
  let hear: (note: Note) => void = () => {};
  const notes: NoteChannel = {
    post: () => true,
    onNote: (listener) => {
      hear = listener;
      return () => {};
    },
  };
  const conversations = new Conversations({ ...time, notes, onContinued: () => {} });
  conversations.start();
  hear(broken);
  conversations.begun(1);
  expect(conversations.isBeginning(1)).toBe(true);
});

test("how the latest answer ended, and how long programs pause after it, by what they are known by", () => {
  for (const [pauseMs, answerEnd] of [
    [0, "tool_calls"],
    [400, "tool_calls"],
    [600, "stop"],
    [30_000, undefined],
  ] as const) {
    time.advance(pauseMs);
    turn(0, "agent", "a", answerEnd === undefined ? {} : { answerEnd });
  }
  turn(1, "agent", "a", { answerEnd: "length" });
  publish();
  expect(programsAt(0)[0]).toMatchObject({ steps: 5, answerEnd: "length" });
  const { pauses } = routers[0]!.report();
  expect(pauses.map(({ source, answerEnd, count }) => [source, answerEnd, count])).toEqual([
    ["header:x-session-id", "tool_calls", 2],
    ["header:x-session-id", "stop", 1],
  ]);
  const [afterTools, afterStop] = pauses;
  for (const [ms, of] of [
    [afterTools!.p50Ms, 400],
    [afterTools!.p95Ms, 600],
    [afterStop!.p50Ms, 30_000],
  ] as const) {
    expect(Math.abs(ms / of - 1)).toBeLessThan(0.05);
  }
  expect(meter.value("espalier_program_pause_seconds", "header:x-session-id", "tool_calls")).toBe(2);
  expect(routers[1]!.report().pauses).toEqual([]);
});

test("no pause: before the first answer, after a failure, and while another request is under way", () => {
  const begin = () => routers[0]!.begin(planned("agent"))!;
  const end = { promptTokens: undefined, cachedTokens: undefined, outputTokens: 0, answerEnd: undefined };
  begin().ended({ isAnswered: false, ...end });
  const [one, other] = [begin(), begin()];
  one.ended({ isAnswered: true, ...end });
  const third = begin();
  other.ended({ isAnswered: true, ...end });
  third.ended({ isAnswered: false, ...end });
  expect(routers[0]!.report().pauses).toEqual([]);
  begin();
  expect(routers[0]!.report().pauses).toEqual([expect.objectContaining({ answerEnd: null, count: 1 })]);
});

test("one source too many: its pauses are not learned, those of the others are", () => {
  for (let at = 0; at <= maxPauseSources; at++) {
    for (let step = 0; step < 2; step++) {
      const request = { ...planned(`agent-${at}`), sessionSource: `body:${at}` };
      routers[0]!.begin(request)!.ended({
        ...{ isAnswered: true, answerEnd: "stop", promptTokens: undefined, cachedTokens: undefined, outputTokens: 1 },
      });
    }
  }
  const { pauses } = routers[0]!.report();
  expect([pauses.length, pauses.at(-1)!.source]).toEqual([maxPauseSources, `body:${maxPauseSources - 1}`]);
});

test("a program names its parent, of the same tenant, if it is known", () => {
  const begin = (key: string, parentKey?: string, model = "m", tenant = "t") =>
    routers[0]!.begin({ ...planned(key, { model, tenant }), parentKey });
  begin("s");
  begin("s", undefined, "other");
  begin("s/child", "s");
  begin("s/grandchild", "s/child", "other");
  begin("s/orphan", "s/gone");
  begin("s/foreign", "s", "m", "u");
  publish();
  for (const router of [0, 1]) {
    const all = programsAt(router);
    const named = (of: string | null) => all.find(({ name }) => name === of);
    const parents = all.map(({ parent, model }) => [model, named(parent)?.model ?? null]);
    expect(parents.toSorted()).toEqual(
      [
        ["m", null],
        ["m", null],
        ["m", null],
        ["m", "m"],
        ["other", null],
        ["other", "m"],
      ].toSorted(),
    );
  }
});

test("what a program that is over has in engines' memory is not expected to be used again, at any router", () => {
  const [one, other] = routers as [Programs, Programs];
  const ask = (router: Programs, blockCount: number) => {
    const prompt = { blockCount } as unknown as PromptBlocks;
    router.begin({ ...planned("s"), prompt })!.sent("a");
    time.advance(10);
  };
  ask(one, 3);
  ask(other, 7);
  ask(one, 0);
  time.advance(publishProgramsMs);
  ask(one, 9);
  one.endSession("s");
  expect(ended).toEqual([[9], []]);
  time.advance(publishProgramsMs);
  expect(ended).toEqual([[9], [9]]);
  one.endSession("another");
  expect(ended[0]).toEqual([9]);
});
