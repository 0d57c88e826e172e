import { Agent, request as httpRequest, type IncomingMessage } from "node:http";
import type { Clock } from "@espalier/core";

/** One request to send. */
export interface LoadRequest {
  /** `http://host:port` of a router or an engine. */
  readonly url: string;
  /** For example `/v1/chat/completions`. */
  readonly path: string;
  readonly body: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Keeps the content of the answer. */
  readonly keepText?: boolean;
  /** Headers of the answer to keep, in lower case. */
  readonly keepHeaders?: readonly string[];
}

/** The outcome of a request, in real milliseconds on the clock's axis. */
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
  /** The engine that the router named, if it did. */
  readonly engine: string | undefined;
  readonly error: string | undefined;
  /** What names the failure: the code of an error object, or the system's, such as `ECONNREFUSED`. */
  readonly errorCode?: string | undefined;
  /** The content with `keepText`; else empty. */
  readonly text: string;
  /** The requested headers that are present; absent when none is. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Whether the error was in the body of an answer with status 200, for example as the last event of a stream. */
  readonly isErrorInBody?: boolean;
}

/** A client with its own keep-alive connections. */
export interface LoadClient {
  /** Never rejects: a failure is an answer with an `error`. `signal` aborts the request. */
  send(request: LoadRequest, signal?: AbortSignal): Promise<Answer>;
  close(): void;
}

const errorTextLimit = 200;
/** Characters of an error's body that are read. */
const maxErrorBody = 4_096;
/** Headers in which routers name the engine: Espalier, SMG 1.13. */
const engineHeaders = ["x-espalier-engine", "x-smg-routed-worker-id"];

/** Connections per host; further requests wait for a free one. */
const maxConnections = 4_096;

export function createLoadClient(clock: Clock): LoadClient {
  const agent = new Agent({ keepAlive: true, maxSockets: maxConnections, scheduling: "lifo" });
  return {
    send: (request, signal) => send(agent, clock, request, signal),
    close: () => agent.destroy(),
  };
}

/** An answer under construction. */
type Draft = { -readonly [Name in keyof Answer]: Answer[Name] };

function send(agent: Agent, clock: Clock, load: LoadRequest, signal: AbortSignal | undefined): Promise<Answer> {
  const answer: Draft = {
    ...{ startMs: clock.nowMs(), firstTokenMs: Number.NaN, endMs: Number.NaN, status: 0 },
    ...{ promptTokens: undefined, completionTokens: undefined, cachedTokens: undefined },
    ...{ engine: undefined, error: undefined, text: "" },
  };
  return new Promise((resolve) => {
    const fail = (error: unknown): void => {
      answer.error = error instanceof Error ? error.message : String(error);
      answer.errorCode ??= error instanceof Error ? (error as NodeJS.ErrnoException).code : undefined;
      answer.endMs = clock.nowMs();
      resolve(answer);
    };
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
    outgoing.on("error", fail);
    outgoing.on("response", (incoming) => {
      readAnswer(incoming, { answer, clock, load }).then(() => resolve(answer), fail);
    });
    outgoing.end(load.body);
  });
}

interface Reading {
  readonly answer: Draft;
  readonly clock: Clock;
  readonly load: LoadRequest;
}

/** Records the fields of an answer as they arrive, so that a broken answer has them too. */
async function readAnswer(incoming: IncomingMessage, { answer, clock, load }: Reading): Promise<void> {
  answer.status = incoming.statusCode ?? 0;
  const engine = engineHeaders.map((name) => incoming.headers[name]).find((value) => value !== undefined);
  if (typeof engine === "string") answer.engine = engine;
  if (load.keepHeaders) answer.headers = pickHeaders(incoming, load.keepHeaders);
  incoming.setEncoding("utf8");
  if (answer.status !== 200) {
    let text = "";
    for await (const chunk of incoming) if (text.length < maxErrorBody) text += chunk;
    const { code, message = text } = readErrorObject(text);
    answer.errorCode = code;
    throw new Error(`status ${answer.status}: ${message.slice(0, errorTextLimit)}`);
  }
  const streamed = incoming.headers["content-type"]?.startsWith("text/event-stream") ?? false;
  const reader = createAnswerReader(streamed, load.keepText ?? false);
  for await (const chunk of incoming) {
    reader.push(chunk as string);
    if (Number.isNaN(answer.firstTokenMs) && reader.reading.sawContent) answer.firstTokenMs = clock.nowMs();
  }
  const reading = reader.end();
  answer.endMs = clock.nowMs();
  if (Number.isNaN(answer.firstTokenMs) && reading.sawContent) answer.firstTokenMs = answer.endMs;
  answer.promptTokens = reading.promptTokens;
  answer.completionTokens = reading.completionTokens;
  answer.cachedTokens = reading.cachedTokens;
  answer.error = reading.error ?? (reading.sawDone ? undefined : "the stream ended without [DONE]");
  if (reading.error !== undefined) answer.isErrorInBody = true;
  answer.errorCode = reading.errorCode;
  answer.text = reading.text;
}

interface ErrorObject {
  readonly code?: string;
  readonly message?: string;
}

/** The error object of a body, if it has one. Engines write the status as its code, which names nothing. */
function readErrorObject(body: string): ErrorObject {
  try {
    const { error } = JSON.parse(body) as { error?: { code?: unknown; message?: unknown } | null };
    return {
      ...(typeof error?.code === "string" ? { code: error.code } : {}),
      ...(typeof error?.message === "string" ? { message: error.message } : {}),
    };
  } catch {
    return {};
  }
}

function pickHeaders(incoming: IncomingMessage, names: readonly string[]): Readonly<Record<string, string>> {
  const found = names.map((name) => [name, incoming.headers[name]]);
  return Object.fromEntries(found.filter(([, value]) => typeof value === "string"));
}

/** The content of one streamed or plain answer. */
interface AnswerReading {
  /** Bytes of content text have arrived. */
  readonly sawContent: boolean;
  readonly sawDone: boolean;
  readonly promptTokens: number | undefined;
  readonly completionTokens: number | undefined;
  readonly cachedTokens: number | undefined;
  /** Message of an error object in the stream. */
  readonly error: string | undefined;
  /** Its code. */
  readonly errorCode: string | undefined;
  /** The content, with `keepText`. */
  readonly text: string;
}

/** Reads a chat or text completion as a client would, whole (JSON) or in events (SSE), chunk by chunk. */
export interface AnswerReader {
  push(text: string): void;
  /** Call once at the end of the body. */
  end(): AnswerReading;
  readonly reading: AnswerReading;
}

interface Content {
  readonly content?: string | null;
  /** Calls of tools, which an answer may be in place of text. */
  readonly tool_calls?: readonly unknown[] | null;
}

interface AnswerBody {
  readonly choices?: readonly {
    readonly text?: string;
    readonly delta?: Content;
    readonly message?: Content;
  }[];
  readonly usage?: {
    readonly prompt_tokens?: number;
    readonly completion_tokens?: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number } | null;
  } | null;
  readonly error?: { readonly message?: string; readonly code?: unknown };
}

/**
 * @param streamed whether the body is a stream of server-sent events
 * @param keepText whether to keep the content, which costs time
 */
export function createAnswerReader(streamed: boolean, keepText = false): AnswerReader {
  const reading = {
    sawContent: false,
    sawDone: false,
    promptTokens: undefined as number | undefined,
    completionTokens: undefined as number | undefined,
    cachedTokens: undefined as number | undefined,
    error: undefined as string | undefined,
    errorCode: undefined as string | undefined,
    text: "",
  };
  let pending = "";

  const readBody = (text: string): void => {
    const body = JSON.parse(text) as AnswerBody;
    const choice = body.choices?.[0];
    const content = choice?.text || choice?.delta?.content || choice?.message?.content;
    if (content || choice?.delta?.tool_calls?.length || choice?.message?.tool_calls?.length) reading.sawContent = true;
    if (keepText && content) reading.text += content;
    if (body.error) {
      reading.error = body.error.message ?? "unnamed error";
      reading.errorCode = typeof body.error.code === "string" ? body.error.code : undefined;
    }
    if (!body.usage) return;
    reading.promptTokens = body.usage.prompt_tokens;
    reading.completionTokens = body.usage.completion_tokens;
    reading.cachedTokens = body.usage.prompt_tokens_details?.cached_tokens;
  };
  const readEvent = (event: string): void => {
    if (!event.startsWith("data:")) return;
    const data = event.slice(5).trim();
    if (data === "[DONE]") {
      reading.sawDone = true;
      return;
    }
    // Between the first content and the usage, no event affects a measurement. Parsing each event would cost the client
    // more than the measured router spends.
    if (keepText || !reading.sawContent || data.includes('"usage":{') || data.includes('"error"')) readBody(data);
  };

  return {
    reading,
    push(text) {
      pending += text;
      if (!streamed) return;
      let from = 0;
      for (let end = pending.indexOf("\n\n"); end >= 0; end = pending.indexOf("\n\n", from)) {
        readEvent(pending.slice(from, end));
        from = end + 2;
      }
      pending = pending.slice(from);
    },
    end() {
      if (!streamed) {
        readBody(pending);
        reading.sawDone = true;
      }
      return reading;
    },
  };
}
