import { Agent, request as httpRequest, type IncomingMessage } from "node:http";
import type { Clock } from "@espalier/common";
import { createAnswerReader } from "./stream-reader.ts";

/** One request to send. */
export interface LoadRequest {
  /** `http://host:port` of a router or an engine. */
  readonly url: string;
  /** For instance `/v1/chat/completions`. */
  readonly path: string;
  readonly body: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Keeps the content of the answer. */
  readonly keepText?: boolean;
}

/** What came of it, in real milliseconds on the clock's axis. */
export interface Answer {
  readonly startMs: number;
  /** When the first content arrived; NaN when none did. */
  readonly firstTokenMs: number;
  readonly endMs: number;
  /** 0 when no answer came. */
  readonly status: number;
  readonly promptTokens: number | undefined;
  readonly completionTokens: number | undefined;
  readonly cachedTokens: number | undefined;
  /** The worker that the router named, if it did. */
  readonly engine: string | undefined;
  readonly error: string | undefined;
  /** The content, when it was asked for; else empty. */
  readonly text: string;
}

/** A client with its own keep-alive connections. */
export interface LoadClient {
  /** Never rejects: a failure is an answer with an `error`. `signal` aborts the request. */
  send(request: LoadRequest, signal?: AbortSignal): Promise<Answer>;
  close(): void;
}

const errorTextLimit = 200;
/** How routers name the worker: Espalier, SMG 1.13. */
const workerHeaders = ["x-espalier-worker", "x-smg-routed-worker-id"];

/** @param maxConnections connections per host; further requests wait for a free one */
export function createLoadClient(clock: Clock, maxConnections = 4_096): LoadClient {
  const agent = new Agent({ keepAlive: true, maxSockets: maxConnections, scheduling: "lifo" });
  return {
    send: (request, signal) => send(agent, clock, request, signal),
    close: () => agent.destroy(),
  };
}

function send(agent: Agent, clock: Clock, load: LoadRequest, signal: AbortSignal | undefined): Promise<Answer> {
  const startMs = clock.nowMs();
  return new Promise((resolve) => {
    const fail = (error: string, status = 0): void =>
      resolve({
        startMs,
        firstTokenMs: Number.NaN,
        endMs: clock.nowMs(),
        status,
        promptTokens: undefined,
        completionTokens: undefined,
        cachedTokens: undefined,
        engine: undefined,
        error,
        text: "",
      });
    const outgoing = httpRequest(new URL(load.path, load.url), {
      agent,
      method: "POST",
      headers: {
        "content-type": "application/json",
        "content-length": Buffer.byteLength(load.body),
        ...load.headers,
      },
      ...(signal ? { signal } : {}),
    });
    outgoing.on("error", (error) => fail(error.message));
    outgoing.on("response", (incoming) => {
      readAnswer(incoming, clock, startMs, load.keepText).then(resolve, (error: unknown) =>
        fail(error instanceof Error ? error.message : String(error), incoming.statusCode),
      );
    });
    outgoing.end(load.body);
  });
}

async function readAnswer(incoming: IncomingMessage, clock: Clock, startMs: number, keepText = false): Promise<Answer> {
  const status = incoming.statusCode ?? 0;
  const worker = workerHeaders.map((name) => incoming.headers[name]).find((value) => value !== undefined);
  const engine = typeof worker === "string" ? worker : undefined;
  incoming.setEncoding("utf8");
  if (status !== 200) {
    let text = "";
    for await (const chunk of incoming) if (text.length < errorTextLimit) text += chunk;
    throw new Error(`status ${status}: ${text.slice(0, errorTextLimit)}`);
  }
  const streamed = incoming.headers["content-type"]?.startsWith("text/event-stream") ?? false;
  const reader = createAnswerReader(streamed, keepText);
  let firstTokenMs = Number.NaN;
  for await (const chunk of incoming) {
    reader.push(chunk as string);
    if (Number.isNaN(firstTokenMs) && reader.reading.sawContent) firstTokenMs = clock.nowMs();
  }
  const reading = reader.end();
  const endMs = clock.nowMs();
  return {
    startMs,
    firstTokenMs: Number.isNaN(firstTokenMs) && reading.sawContent ? endMs : firstTokenMs,
    endMs,
    status,
    promptTokens: reading.promptTokens,
    completionTokens: reading.completionTokens,
    cachedTokens: reading.cachedTokens,
    engine,
    error: reading.error ?? (reading.sawDone ? undefined : "the stream ended without [DONE]"),
    text: reading.text,
  };
}
