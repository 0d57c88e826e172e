import { createSeededRandom, systemClock } from "@espalier/core";
import { poissonArrivals, type RequestResult, type TraceRequest } from "@espalier/simulator";
import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { type PlannedRequest, planReplay } from "../src/replay/replay-plan.ts";
import { type ReplayRunOptions, runReplay } from "../src/replay/run-replay.ts";
import { type SeenRequest, streamAnswer, temporaryFile, temporaryServer } from "./temporary.ts";

function planned(index: number, arrivalMs = 0): PlannedRequest {
  const trace: TraceRequest = {
    index,
    arrivalMs,
    inputTokens: 50,
    outputTokens: 3,
    blockIds: undefined,
    blockTokens: 512,
    session: `session-${index % 2}`,
    turn: Math.floor(index / 2),
  };
  return { trace, path: "/v1/chat/completions", makeBody: () => JSON.stringify({ index }) };
}

const plan = (count: number, everyMs = 0): PlannedRequest[] =>
  Array.from({ length: count }, (_, index) => planned(index, index * everyMs));

function run(urls: readonly string[], options: Partial<ReplayRunOptions> & Pick<ReplayRunOptions, "requests">) {
  const signal = new AbortController().signal;
  return runReplay({ urls, speed: 1, concurrency: undefined, signal, onResult: () => {}, ...options });
}

const indexOf = ({ body }: SeenRequest): number => (JSON.parse(body) as { index: number }).index;

test("an open loop sends each request and says what the client saw", async () => {
  const seen: SeenRequest[] = [];
  const url = await temporaryServer((request) => {
    seen.push(request);
    streamAnswer(request.response, ["one ", "two ", "three"], 64);
  });
  const reported: RequestResult[] = [];
  const results = await run([url], { requests: plan(6), onResult: (result) => reported.push(result) });
  expect(reported).toEqual(results);
  expect(seen.map(({ method, path }) => `${method} ${path}`)).toEqual(Array(6).fill("POST /v1/chat/completions"));
  expect(seen.map(indexOf).sort()).toEqual([0, 1, 2, 3, 4, 5]);
  for (const request of seen) expect(request.headers["x-session-id"]).toBe(`session-${indexOf(request) % 2}`);
  for (const { index, ...result } of results) {
    expect(result).toMatchObject({
      session: `session-${index % 2}`,
      turn: Math.floor(index / 2),
      inputTokens: 100,
      outputTokens: 3,
      cachedTokens: 64,
      engine: "engine-of-the-test",
      error: undefined,
      itlCount: 2,
    });
    expect(result.startMs).toBeLessThanOrEqual(result.firstTokenMs);
    expect(result.firstTokenMs).toBeLessThanOrEqual(result.endMs);
    expect(result.itlSumMs).toBe(result.endMs - result.firstTokenMs);
  }
});

test("requests go out at their times, scaled by the speed, whether or not earlier ones have ended", async () => {
  const held: SeenRequest[] = [];
  const url = await temporaryServer((request) => {
    held.push(request);
    // None is answered before the last one has come.
    if (held.length === 5) for (const { response } of held) streamAnswer(response, ["x"]);
  });
  const begunMs = systemClock.nowMs();
  const results = await run([url], { requests: plan(5, 1_000), speed: 20 });
  expect(results).toHaveLength(5);
  // A busy machine may send any of them late, so only the earliest moment is certain; timers may fire 1 ms early.
  for (const { index, startMs } of results) expect(startMs - begunMs).toBeGreaterThanOrEqual(index * 50 - 2);
});

test("requests go to the endpoints in turn", async () => {
  const seen: string[] = [];
  const server = (name: string) =>
    temporaryServer((request) => {
      seen.push(`${name}${indexOf(request)}`);
      streamAnswer(request.response, ["x"]);
    });
  await run([await server("a"), await server("b"), await server("c")], { requests: plan(7) });
  expect(seen.sort()).toEqual(["a0", "a3", "a6", "b1", "b4", "c2", "c5"]);
});

test("a closed loop never has more requests under way than users, and keeps all of them busy", async () => {
  let underWay = 0;
  let most = 0;
  const waiting: SeenRequest[] = [];
  const url = await temporaryServer((request) => {
    most = Math.max(most, ++underWay);
    waiting.push(request);
    if (waiting.length < 3) return;
    for (const { response } of waiting.splice(0)) {
      underWay--;
      streamAnswer(response, ["x"]);
    }
  });
  const results = await run([url], { requests: plan(12, 1_000_000), concurrency: 3 });
  expect(results).toHaveLength(12);
  expect(most).toBe(3);
});

/** Two sessions: two requests one after the other; one, and then two beside each other. */
function plannedSessions(): PlannedRequest[] {
  const waits: readonly (readonly [session: string, turn: number, after: readonly number[]])[] = [
    ["one", 0, []],
    ["two", 0, []],
    ["one", 1, [0]],
    ["two", 1, [0]],
    ["two", 2, [0]],
  ];
  return waits.map(([session, turn, after], index) => {
    const { trace, ...rest } = planned(index, index * 1_000);
    return { ...rest, trace: { ...trace, session, turn, wait: { after, thinkMs: 2_000 } } };
  });
}

test("sessions send what waits for answers when these have ended and the client has thought, scaled by the speed", async () => {
  const url = await temporaryServer(({ response }) => streamAnswer(response, ["x"]));
  const results = await run([url], { requests: plannedSessions(), speed: 50 });
  expect(results).toHaveLength(5);
  const of = (session: string, turn: number) => results.find((one) => one.session === session && one.turn === turn)!;
  for (const [session, turn] of [
    ["one", 1],
    ["two", 1],
    ["two", 2],
  ] as const) {
    expect(of(session, turn).startMs - of(session, 0).endMs).toBeGreaterThanOrEqual(2_000 / 50 - 2);
  }
});

test("a user works through whole sessions; one begins when the one before has ended", async () => {
  const seen: string[] = [];
  const url = await temporaryServer(({ response, headers }) => {
    seen.push(String(headers["x-session-id"]));
    streamAnswer(response, ["x"]);
  });
  await run([url], { requests: plannedSessions(), speed: 10_000, concurrency: 1 });
  expect(seen).toEqual(["one", "one", "two", "two", "two"]);
});

/** A session of Claude Code that calls a sub-agent, which calls one of its own, and goes on after both. */
const claudeCode = JSON.stringify({
  ...{ id: "s", models: ["m"], block_size: 64, hash_id_scope: "local", tool_tokens: 0, system_tokens: 0 },
  requests: [
    claudeCodeStep(0, 0),
    {
      ...{ t: 30, type: "subagent", duration_ms: 20_000, tool_tokens: 0, system_tokens: 0 },
      requests: [
        claudeCodeStep(0, 3),
        {
          t: 12,
          type: "subagent",
          duration_ms: 2_000,
          tool_tokens: 0,
          system_tokens: 0,
          requests: [claudeCodeStep(0, 2)],
        },
      ],
    },
    claudeCodeStep(34, 4),
  ],
});

function claudeCodeStep(t: number, block: number): object {
  return { t, type: "n", model: "m", in: 64, out: 5, hash_ids: [[1 + 10 * block, 1]], api_time: 2 };
}

test("a Claude Code trace is replayed with its agents, each after its recorded pause behind what it waits for", async () => {
  const path = temporaryFile("sessions.jsonl", `${claudeCode}\n`);
  const seen: SeenRequest[] = [];
  const url = await temporaryServer((request) => {
    seen.push(request);
    streamAnswer(request.response, ["x"]);
  });
  const requests = await planReplay({ path, format: "claude-code", model: "m", seed: 1 });
  const results = await run([url], { requests, speed: 100 });
  const names = ["x-session-id", "x-claude-code-session-id", "x-claude-code-agent-id", "x-claude-code-parent-agent-id"];
  expect(seen.map(({ headers }) => names.map((name) => headers[name]))).toEqual([
    ["s", undefined, undefined, undefined],
    [undefined, "s", "requests[1]", undefined],
    [undefined, "s", "requests[1].requests[1]", "requests[1]"],
    ["s", undefined, undefined, undefined],
  ]);
  const turn = (number: number) => results.find((result) => result.turn === number)!;
  // 10 s - 2 s after the first answer; 8 s after that; 34 s - 22 s after the last of them.
  const pausesMs = [8_000, 8_000, 10_000];
  for (const [at, pauseMs] of pausesMs.entries()) {
    expect(turn(at + 1).startMs - turn(at).endMs).toBeGreaterThanOrEqual(pauseMs / 100 - 2);
  }
});

test("sessions begin at random times of a rate, and only where the trace says what requests wait for", async () => {
  const url = await temporaryServer(({ response }) => streamAnswer(response, ["x"]));
  const begunMs = systemClock.nowMs();
  const starts = { perS: 1, seed: 2 };
  const results = await run([url], { requests: plannedSessions(), speed: 20, starts });
  expect(results).toHaveLength(5);
  const [one, two] = poissonArrivals(1, createSeededRandom(2));
  const firsts = results.filter(({ turn }) => turn === 0).sort((a, b) => a.startMs - b.startMs);
  for (const [at, dueMs] of [one!, two!].entries()) {
    expect(firsts[at]!.startMs - begunMs).toBeGreaterThanOrEqual((dueMs + 2_000) / 20 - 2);
  }
  await expect(run([url], { requests: plan(1), starts })).rejects.toThrow(RangeError);
});

test("an abort ends sessions whose users think, and those that wait for answers", async () => {
  const abort = new AbortController();
  const url = await temporaryServer((request) => {
    if (indexOf(request) === 0) streamAnswer(request.response, ["x"]);
  });
  const results: RequestResult[] = [];
  const running = run([url], {
    requests: plannedSessions().map(({ trace, ...rest }) => ({
      ...rest,
      trace: { ...trace, wait: { ...trace.wait!, thinkMs: trace.turn * 3_600_000 } },
    })),
    signal: abort.signal,
    onResult: (result) => results.push(result),
  });
  await waitFor(() => results.length === 1, { what: "a result" });
  abort.abort();
  expect(await running).toHaveLength(1);
});

test("a key is sent when there is one", async () => {
  const keys: unknown[] = [];
  const url = await temporaryServer(({ headers, response }) => {
    keys.push(headers.authorization);
    streamAnswer(response, ["x"]);
  });
  await run([url], { requests: plan(1), apiKey: "secret" });
  await run([url], { requests: plan(1) });
  expect(keys).toEqual(["Bearer secret", undefined]);
});

test("failures are results with an error, and do not stop the others", async () => {
  const url = await temporaryServer((request) => {
    const { response } = request;
    if (indexOf(request) === 0) response.writeHead(503).end('{"error":{"message":"full"}}');
    else if (indexOf(request) === 1)
      response.writeHead(200, { "content-type": "text/event-stream" }).end("data: {}\n\n");
    else if (indexOf(request) === 2) response.destroy();
    else streamAnswer(response, ["x"]);
  });
  const results = await run([url], { requests: plan(5), concurrency: 1 });
  expect(results.map(({ error }) => error)).toEqual([
    "status 503: full",
    "the stream ended without [DONE]",
    "socket hang up",
    undefined,
    undefined,
  ]);
});

test("an abort stops what is due later and what is under way, and keeps what had ended", async () => {
  const abort = new AbortController();
  let closed = 0;
  const url = await temporaryServer((request) => {
    if (indexOf(request) < 2) streamAnswer(request.response, ["x"]);
    else request.response.on("close", () => closed++);
  });
  const results: RequestResult[] = [];
  const requests = [planned(0), planned(1), planned(2), planned(3), planned(4, 3_600_000)];
  const running = run([url], {
    requests,
    signal: abort.signal,
    onResult: (result) => results.push(result),
  });
  await waitFor(() => results.length === 2, { what: "two results" });
  abort.abort();
  expect((await running).map(({ index }) => index).sort()).toEqual([0, 1]);
  await waitFor(() => closed === 2, { what: "end of the requests under way" });
});

test("an abort stops a closed loop", async () => {
  const abort = new AbortController();
  const url = await temporaryServer(({ response }) => streamAnswer(response, ["x"]));
  const running = run([url], {
    requests: plan(100_000),
    concurrency: 2,
    signal: abort.signal,
    onResult: ({ index }) => {
      if (index === 10) abort.abort();
    },
  });
  expect((await running).length).toBeLessThan(100);
});
