import { readFileSync } from "node:fs";
import { type IncomingMessage, request } from "node:http";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { type EngineSimOptions, startEngineSim } from "@espalier/engine-sim";
import { sharedPath, waitFor } from "@espalier/testing";
import { expect, onTestFinished } from "vitest";

export type Json = Record<string, unknown>;

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The body as JSON; throws when it is not. */
  readonly json: Json;
}

export interface SseEvent {
  readonly name: string | undefined;
  /** The text after `data: `. */
  readonly data: string;
}

/** A simulated engine that stops with its test. */
export interface TestSim {
  readonly url: string;
  get(path: string, headers?: Record<string, string>): Promise<Answer>;
  post(path: string, body: unknown, headers?: Record<string, string>): Promise<Answer>;
  del(path: string): Promise<Answer>;
  /** Posts, expects 200 and an event stream, and reads it to its end. */
  events(path: string, body: unknown, headers?: Record<string, string>): Promise<SseEvent[]>;
  state(): Promise<SimState>;
  stop(): Promise<void>;
}

export interface SimState extends Json {
  readonly epoch: number;
  readonly engineMs: number;
  readonly stats: Record<string, number>;
  readonly active: readonly Json[];
  readonly totals: Record<string, number>;
  readonly faults: readonly Json[];
  readonly requests: readonly LoggedRequest[];
}

export interface LoggedRequest extends Json {
  readonly outcome: string;
  readonly headers: Record<string, string>;
  readonly reports: readonly Record<string, number>[];
}

/** Starts one engine, a thousand times faster than life unless told otherwise. */
export async function startSim(options: EngineSimOptions = {}): Promise<TestSim> {
  const sim = await startEngineSim({ speed: 1_000, models: ["tiny"], ...options });
  onTestFinished(() => sim.stop());
  return clientOf(sim.engines[0]?.url ?? "", sim.stop);
}

/** A client for an engine that somebody else started. */
export function clientOf(url: string, stop: () => Promise<void>): TestSim {
  const send = async (path: string, init: RequestInit): Promise<Answer> => {
    const response = await fetch(url + path, init);
    const text = await response.text();
    return {
      status: response.status,
      headers: response.headers,
      text,
      get json() {
        return JSON.parse(text) as Json;
      },
    };
  };
  const post = (path: string, body: unknown, headers: Record<string, string> = {}): Promise<Answer> =>
    send(path, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: typeof body === "string" ? body : JSON.stringify(body),
    });
  return {
    url,
    get: (path, headers = {}) => send(path, { headers }),
    post,
    del: (path) => send(path, { method: "DELETE" }),
    async events(path, body, headers) {
      const answer = await post(path, body, headers);
      const type = answer.headers.get("content-type");
      if (answer.status !== 200 || !type?.startsWith("text/event-stream")) throw new Error(`${type}: ${answer.text}`);
      return parseEvents(answer.text);
    },
    state: async () => (await send("/sim/state", {})).json as SimState,
    stop,
  };
}

/** `length` token ids that no other `first` gives. */
export const prompt = (first: number, length: number): number[] =>
  Array.from({ length }, (_, index) => first * 10_000 + index);

export const modelsOf = async (sim: TestSim): Promise<unknown[]> =>
  (at((await sim.get("/v1/models")).json, "data") as { id: string }[]).map(({ id }) => id);

/** What `/tokenize` makes of a body. */
export async function tokensOf(sim: TestSim, body: Json): Promise<number[]> {
  const { status, text, json } = await sim.post("/tokenize", body);
  expect(status, text).toBe(200);
  const tokens = json.tokens as number[];
  expect(json.count).toBe(tokens.length);
  return tokens;
}

/** Sends many requests, fifty at a time. */
export async function fiftyAtATime(count: number, send: (index: number) => Promise<unknown>): Promise<void> {
  for (let sent = 0; sent < count; sent += 50) {
    await Promise.all(Array.from({ length: Math.min(50, count - sent) }, (_, at) => send(sent + at)));
  }
}

/** Cuts an event stream into its events. Throws when it does not end with a complete one. */
export function parseEvents(text: string): SseEvent[] {
  if (!text.endsWith("\n\n")) throw new Error(`the stream ends inside an event: ${JSON.stringify(text.slice(-80))}`);
  return text
    .slice(0, -2)
    .split("\n\n")
    .map((block) => {
      const lines = block.split("\n");
      const data = lines.find((line) => line.startsWith("data: "))?.slice("data: ".length);
      if (data === undefined) throw new Error(`no data in ${JSON.stringify(block)}`);
      return { name: lines.find((line) => line.startsWith("event: "))?.slice("event: ".length), data };
    });
}

/** The JSON of every event but the last `[DONE]`. */
export function chunksOf(events: readonly SseEvent[]): Json[] {
  return events.filter(({ data }) => data !== "[DONE]").map(({ data }) => JSON.parse(data) as Json);
}

/** Follows a path of keys and indexes. */
export function at(value: unknown, ...path: readonly (string | number)[]): unknown {
  let found = value;
  for (const key of path) found = (found as Record<string | number, unknown> | undefined)?.[key];
  return found;
}

/** Every path of keys in a JSON value, lists collapsed, sorted: what two bodies of the same shape have in common. */
export function shapeOf(value: unknown, path = ""): string[] {
  if (Array.isArray(value)) return [...new Set(value.flatMap((item) => shapeOf(item, `${path}[]`)))].sort();
  if (typeof value !== "object" || value === null) return path === "" ? [] : [path];
  const inner = Object.entries(value).flatMap(([key, item]) => shapeOf(item, `${path}.${key}`));
  return [...new Set(inner.length === 0 ? [path] : inner)].sort();
}

/** A request whose answer is read as it comes. */
export interface OpenRequest {
  /** Resolves with the head of the answer. */
  readonly head: Promise<IncomingMessage>;
  /** Resolves when the connection is over, with everything received and the error, if it ended by one. */
  readonly ended: Promise<{ readonly text: string; readonly error: NodeJS.ErrnoException | undefined }>;
  received(): string;
  /** Sizes of the pieces in which the answer arrived. */
  pieces(): readonly number[];
  destroy(): void;
}

/** Posts on a connection of its own, for tests that break it or watch it. */
export function openRequest(url: string, body: unknown, headers: Record<string, string> = {}): OpenRequest {
  const text = JSON.stringify(body);
  const pieces: number[] = [];
  let received = "";
  const client = request(url, {
    method: "POST",
    agent: false,
    headers: { "content-type": "application/json", "content-length": Buffer.byteLength(text), ...headers },
  });
  const head = new Promise<IncomingMessage>((resolve, reject) => {
    client.on("response", resolve);
    client.on("error", reject);
  });
  head.catch(() => {});
  const ended = new Promise<{ text: string; error: NodeJS.ErrnoException | undefined }>((resolve) => {
    const finish = (error?: NodeJS.ErrnoException) => resolve({ text: received, error });
    client.on("error", finish);
    client.on("response", (response) => {
      response.setEncoding("utf8");
      response.on("data", (piece: string) => {
        received += piece;
        pieces.push(piece.length);
      });
      response.on("error", finish);
      response.on("end", () => finish());
    });
  });
  client.end(text);
  return { head, ended, received: () => received, pieces: () => pieces, destroy: () => client.destroy() };
}

/** Waits until the engine has nothing to do. */
export function untilIdle(sim: TestSim): Promise<SimState> {
  return waitFor(
    async () => {
      const state = await sim.state();
      return state.active.length === 0 && state.stats.running === 0 && state.stats.waiting === 0 && state;
    },
    { what: "idle engine" },
  );
}

export type Capture = "vllm-0.32.0" | "sglang-0.5.23";

export interface CapturedRequest {
  readonly phase: string;
  readonly path: string;
  readonly status: number;
  readonly request: Json;
  readonly response: Json | undefined;
  readonly sse: string | undefined;
}

/** The first captured request of a phase of a real engine. */
export async function capturedRequest(folder: string, phase: string): Promise<CapturedRequest> {
  for await (const line of gunzippedLines(`${folder}/requests.jsonl.gz`)) {
    const record = JSON.parse(line) as CapturedRequest;
    if (record.phase === phase) return record;
  }
  throw new Error(`no phase ${phase} in ${folder}`);
}

/** The lines of a real engine's metrics pages. */
export async function capturedMetrics(folder: string): Promise<string[]> {
  const lines: string[] = [];
  for await (const line of gunzippedLines(`${folder}/metrics.txt.gz`)) lines.push(line);
  return lines;
}

/** The folder of a capture, or undefined (said aloud) when it is not at hand. */
export const captureFolder = (capture: Capture): string | undefined => sharedPath("fixtures", capture);

const gunzippedLines = (path: string) =>
  createInterface({ input: Readable.from([readFileSync(path)]).pipe(createGunzip()) });
