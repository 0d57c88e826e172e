import { type AddressInfo, connect } from "node:net";
import { createSeededRandom, silentLogger } from "@espalier/core";
import type { PromptBlocks } from "@espalier/routing";
import { createVirtualTime, waitFor } from "@espalier/testing";
import fastify from "fastify";
import { expect, onTestFinished, test } from "vitest";
import { describeRoutes } from "../src/admin/admin-api.ts";
import {
  createRecorder,
  type EndedRequest,
  maxRecordedBlocks,
  maxRecordings,
  registerRecording,
} from "../src/admin/recorder.ts";
import type { PlannedRequest } from "../src/request/planned-request.ts";

const salt = Buffer.alloc(16, 7);
const { clock, scheduler, advance } = createVirtualTime();
const startRecorder = () => createRecorder({ clock, random: createSeededRandom(1) });

/** Chain hashes that say which text they stand for. */
function promptOf(texts: readonly number[], changes: Partial<PromptBlocks> = {}): PromptBlocks {
  const chain = Uint32Array.from(texts.flatMap((text) => [text, 1]));
  const { blockSize = 16 } = changes;
  return {
    ...{
      chain,
      contents: chain,
      blockCount: texts.length,
      blockSize,
      tokens: texts.length * blockSize,
      from: "tokens",
    },
    ...changes,
  };
}

interface Sent {
  readonly prompt?: PromptBlocks;
  readonly tokens?: number;
  readonly session?: string;
  readonly scope?: string;
  readonly agent?: string;
  readonly parent?: string;
  readonly tenant?: string;
  readonly adapter?: string;
  readonly promptTokens?: number;
  readonly outputTokens?: number;
  readonly expected?: number;
}

function ended({ prompt, promptTokens, outputTokens = 5, expected = 9, ...sent }: Sent): EndedRequest {
  const { tokens = prompt?.tokens ?? 0, session, scope, agent, parent, tenant, adapter } = sent;
  const plan = {
    pool: { model: "m" },
    features: {
      promptTokens: tokens,
      expectedOutputTokens: expected,
      sessionKey: agent === undefined ? session : `${session}/${agent}`,
      sessionScope: scope,
      adapter,
    },
    service: tenant === undefined ? undefined : { tenant },
    acceptedMs: clock.nowMs(),
    recordedPrompt: prompt,
    recordedAgent: agent === undefined ? undefined : { session, agent, parent },
  } as unknown as PlannedRequest;
  return { plan, promptTokens, outputTokens };
}

type Recorded = Parameters<Parameters<ReturnType<typeof createRecorder>["record"]>[1]>[0];

function recordAll(requests: readonly Sent[], key = salt): readonly NonNullable<Recorded>[] {
  const recorder = startRecorder();
  const seen: Recorded[] = [];
  recorder.record(key, (request) => seen.push(request));
  for (const sent of requests) recorder.ended(ended(sent));
  return seen.map((request) => request!);
}

test("equal beginnings have equal numbers in one recording, and others in the next one", () => {
  const requests = [
    { prompt: promptOf([1, 2, 3]) },
    { prompt: promptOf([1, 2, 4, 5]) },
    { prompt: promptOf([9, 2, 3]) },
  ];
  const [one, two, three] = recordAll(requests).map(({ blocks }) => blocks);
  expect(one).toHaveLength(3);
  expect(two?.slice(0, 2)).toEqual(one?.slice(0, 2));
  expect(new Set([...one!, ...two!, ...three!.slice(0, 1)]).size).toBe(6);
  const [again] = recordAll(requests, Buffer.alloc(16, 8)).map(({ blocks }) => blocks);
  expect(again?.filter((number) => one?.includes(number))).toEqual([]);
  expect(recordAll(requests)[0]?.blocks).toEqual(one);
});

test("equal session keys of two tenants are two sessions", () => {
  const requests = [{ session: "one" }, { session: "one", scope: "ada" }, { session: "one", scope: "bob" }];
  const numbers = recordAll([...requests, ...requests]).map(({ session }) => session);
  expect(new Set(numbers).size).toBe(3);
  expect(numbers.slice(3)).toEqual(numbers.slice(0, 3));
});

test("agents have numbers of their own beside their session's, which is that of all of them", () => {
  const explore = { tokens: 20, session: "one", agent: "explore" };
  const requests = [
    { tokens: 20, session: "one" },
    explore,
    { tokens: 20, session: "one", agent: "deeper", parent: "explore" },
    { tokens: 20, session: "two", agent: "explore" },
    { tokens: 20, session: "one", scope: "ada", agent: "explore" },
    explore,
  ];
  const [own, agent, deeper, elsewhere, scoped, again] = recordAll(requests);
  expect([own?.agent, own?.parentAgent, agent?.parentAgent]).toEqual([null, null, null]);
  expect(new Set([own, agent, deeper, again].map((one) => one?.session)).size).toBe(1);
  expect([again?.agent, deeper?.parentAgent]).toEqual([agent?.agent, agent?.agent]);
  expect(new Set([agent, deeper, elsewhere, scoped].map((one) => one?.agent)).size).toBe(4);
  expect(JSON.stringify([agent, deeper])).not.toMatch(/explore|deeper/);
});

test("a request is told with its time and how long it took", () => {
  const recorder = startRecorder();
  const seen: Recorded[] = [];
  recorder.record(salt, (request) => seen.push(request));
  const request = ended({ tokens: 20 });
  const atMs = clock.wallMs();
  advance(1_234);
  recorder.ended(request);
  expect(seen).toMatchObject([{ atMs: Math.round(atMs), durationMs: 1_234 }]);
});

test("blocks of any size become blocks of 16 tokens", () => {
  const [large, other, small, odd] = recordAll([
    { prompt: promptOf([1, 2], { blockSize: 64 }) },
    { prompt: promptOf([1, 3], { blockSize: 64 }) },
    { prompt: promptOf([1, 2, 3, 4], { blockSize: 8 }) },
    { prompt: promptOf([1, 2], { blockSize: 24 }) },
  ]).map(({ blocks }) => blocks);
  expect([large?.length, small?.length, odd?.length]).toEqual([8, 2, 3]);
  expect(other?.slice(0, 4)).toEqual(large?.slice(0, 4));
  expect(new Set([...large!, ...other!]).size).toBe(12);
});

test("blocks that nobody knows are like no others", () => {
  const partial = promptOf([1], { from: "partial", tokens: 40 });
  const [one, two, none] = recordAll([{ prompt: partial }, { prompt: partial }, { tokens: 33 }]);
  expect([one?.blocks.length, none?.blocks.length]).toEqual([2, 2]);
  expect(two?.blocks[0]).toBe(one?.blocks[0]);
  expect(new Set([...one!.blocks, ...two!.blocks, ...none!.blocks]).size).toBe(5);
});

test("tokens are those that the engine counted, or those of the bytes", () => {
  const bytes = promptOf([1, 2], { from: "bytes" });
  const requests = recordAll([
    { prompt: promptOf([1, 2]), promptTokens: 50 },
    { prompt: bytes, promptTokens: 50 },
    { tokens: 0 },
    { tokens: 20, outputTokens: 0 },
  ]);
  expect(requests.map(({ inputTokens, outputTokens }) => [inputTokens, outputTokens])).toEqual([
    [50, 5],
    [32, 5],
    [1, 5],
    [20, 9],
  ]);
});

test("sessions and tenants are numbers; nothing else of them is told", () => {
  const [first, second, nobody] = recordAll([
    { tokens: 20, session: "alice", tenant: "acme", adapter: "legal" },
    { tokens: 20, session: "alice", tenant: "other" },
    { tokens: 20 },
  ]);
  expect(second?.session).toBe(first?.session);
  expect(second?.tenant).not.toBe(first?.tenant);
  expect(first).toMatchObject({
    model: "m",
    adapter: "legal",
    session: expect.any(Number),
    tenant: expect.any(Number),
  });
  expect(nobody).toMatchObject({ session: null, tenant: null, adapter: null });
  expect(JSON.stringify([first, second])).not.toMatch(/alice|acme|other/);
});

test("what is answered without tokens is no request of a trace", () => {
  expect(recordAll([{ tokens: 20, expected: 0 }])).toEqual([]);
});

test("one block more than is recorded is left out, and the next request is not", () => {
  const [longest, longer, next] = recordAll([
    { tokens: 16 * maxRecordedBlocks + 15 },
    { tokens: 16 * (maxRecordedBlocks + 1) },
    { tokens: 20 },
  ]) as readonly Recorded[];
  expect([longest?.blocks.length, longer, next?.inputTokens]).toEqual([maxRecordedBlocks, undefined, 20]);
});

test("one recording too many is refused, until another one ends; without any the recorder is off", async () => {
  const recorder = startRecorder();
  const cancels = Array.from({ length: maxRecordings }, () => recorder.record(salt, () => {}));
  expect([recorder.isOn, recorder.record(salt, () => {})]).toEqual([true, undefined]);
  const app = fastify();
  describeRoutes(app);
  registerRecording(app, { recorder, logger: silentLogger, scheduler });
  const ask = async (headers: Record<string, string>) =>
    (await app.inject({ url: "/admin/recording", headers })).json() as { code: string };
  const full = salt.toString("hex");
  expect((await ask({ "x-espalier-salt": full })).code).toBe("overloaded");
  expect((await ask({})).code).toBe("invalid_header");
  expect((await ask({ "x-espalier-salt": full.slice(2) })).code).toBe("invalid_header");
  cancels[0]?.();
  expect(recorder.record(salt, () => {})).toBeDefined();
  for (const cancel of cancels) cancel?.();
  expect(recorder.isOn).toBe(true);
});

test("what a slow reader has no room for is left out and counted, and it gets the next request", async () => {
  const recorder = startRecorder();
  const app = fastify();
  describeRoutes(app);
  registerRecording(app, { recorder, logger: silentLogger, scheduler });
  onTestFinished(() => app.close());
  await app.listen({ port: 0, host: "127.0.0.1" });
  const { port } = app.server.address() as AddressInfo;
  const socket = connect(port, "127.0.0.1").pause();
  onTestFinished(() => void socket.destroy());
  socket.write(`GET /admin/recording HTTP/1.1\r\nhost: h\r\nx-espalier-salt: ${salt.toString("hex")}\r\n\r\n`);
  await waitFor(() => recorder.isOn, { what: "a recording" });
  const sent = 24;
  // Each is more than a megabyte; the kernel's buffers take some of them.
  for (let at = 0; at < sent; at++) recorder.ended(ended({ tokens: 16 * maxRecordedBlocks }));
  let text = "";
  socket.setEncoding("latin1").on("data", (piece: string) => {
    text += piece;
  });
  socket.resume();
  const count = (pattern: RegExp): number => [...text.matchAll(pattern)].length;
  const requests = () => count(/"inputTokens":2097152/g);
  const skipped = (): number => Number([...text.matchAll(/"skipped":(\d+)/g)].at(-1)?.[1]);
  const isComplete = (): boolean => {
    advance(1_000);
    return requests() + skipped() === sent;
  };
  await waitFor(isComplete, { what: "every request, or that it was left out", deadlineMs: 20_000 });
  expect([requests() > 0, skipped() > 0]).toEqual([true, true]);
  recorder.ended(ended({ tokens: 20 }));
  await waitFor(() => count(/"inputTokens":20,/g) === 1, { what: "the next request" });
  socket.destroy();
  await waitFor(() => !recorder.isOn, { what: "the end of the recording" });
});
