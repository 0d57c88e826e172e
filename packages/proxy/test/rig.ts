import { once } from "node:events";
import { createServer, request as httpRequest, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import {
  type Clock,
  type Meter,
  type Scheduler,
  silentLogger,
  silentMeter,
  systemClock,
  systemScheduler,
} from "@espalier/common";
import { errorResponse } from "@espalier/openai";
import {
  type AttemptFailure,
  createProxy,
  type Exchange,
  type ExchangeOutcome,
  type ProxyOptionsInput,
  type Upstream,
} from "@espalier/proxy";
import { waitFor } from "@espalier/testing";
import { onTestFinished } from "vitest";
import { listen } from "./engines.ts";

export interface RigOptions {
  /** URLs of the engines in order of preference, with keys `a`, `b`, ... */
  readonly engines: readonly string[];
  readonly options?: ProxyOptionsInput;
  readonly time?: { readonly clock: Clock; readonly scheduler: Scheduler };
  readonly meter?: Meter;
  /** Replaces parts of each exchange. */
  readonly exchange?: (response: ServerResponse) => Partial<Exchange>;
}

export interface Rig {
  readonly proxy: ReturnType<typeof createProxy>;
  readonly port: number;
  /** The responses to clients, in order of their requests. */
  readonly responses: ServerResponse[];
  /** Outcomes in order of their ends. */
  readonly outcomes: ExchangeOutcome[];
  /** What the observer heard, such as `start a 0`, `fail a reset`, `answer b 200`, `byte b`. */
  readonly events: string[];
  readonly failures: AttemptFailure[];
  /** The next outcome that has not been asked for. */
  outcome(): Promise<ExchangeOutcome>;
}

/** A proxy behind a bare node:http server, as the router has it. A failed exchange is answered with its error. */
export async function createRig(setup: RigOptions): Promise<Rig> {
  const { clock, scheduler } = setup.time ?? { clock: systemClock, scheduler: systemScheduler };
  const meter = setup.meter ?? silentMeter;
  const proxy = createProxy({ clock, scheduler, logger: silentLogger, meter, options: setup.options ?? {} });
  await proxy.start();
  const responses: ServerResponse[] = [];
  const outcomes: ExchangeOutcome[] = [];
  const events: string[] = [];
  const failures: AttemptFailure[] = [];
  const upstreams = setup.engines.map((url, i): Upstream => ({ key: "abcdefgh"[i] ?? `${i}`, url, headers: [] }));

  const server = createServer(async (message, response) => {
    responses.push(response);
    const body: Buffer[] = [];
    for await (const chunk of message) body.push(chunk as Buffer);
    const outcome = await proxy.forward({
      method: message.method ?? "",
      path: message.url ?? "",
      headers: message.rawHeaders,
      body,
      requestId: "request-1",
      family: "openai",
      response,
      next: (tried) => upstreams.find(({ key }) => tried.every((failure) => failure.upstream.key !== key)),
      observer: {
        attemptStarted: ({ key }, attempt) => void events.push(`start ${key} ${attempt}`),
        attemptFailed: ({ key }, failure) => {
          events.push(`fail ${key} ${failure.kind}`);
          failures.push(failure);
        },
        responseStarted: ({ key }, status) => void events.push(`answer ${key} ${status}`),
        firstByte: ({ key }) => void events.push(`byte ${key}`),
      },
      ...setup.exchange?.(response),
    });
    outcomes.push(outcome);
    if (outcome.kind === "failed") answerError(response, outcome);
  });
  server.keepAliveTimeout = 60_000;
  const { port } = await listen(server);
  onTestFinished(() => proxy.stop());
  let asked = 0;
  const outcome = (): Promise<ExchangeOutcome> => {
    const index = asked++;
    return waitFor(() => outcomes[index], { what: `outcome ${index}` });
  };
  return { proxy, port, responses, outcomes, events, failures, outcome };
}

function answerError(response: ServerResponse, outcome: ExchangeOutcome & { kind: "failed" }): void {
  const { status, headers, body } = errorResponse("openai", outcome.error);
  response.writeHead(status, headers).end(body);
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
  /** Whether the body ended as it should. */
  readonly complete: boolean;
}

export interface SendOptions {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string | string[]>>;
  readonly body?: string | Buffer;
}

/** Sends one request and reads the whole answer, whether or not it is cut. */
export async function send(port: number, options: SendOptions = {}): Promise<Answer> {
  const { method = "POST", path = "/v1/chat/completions", headers = {}, body = "{}" } = options;
  const message = httpRequest({ host: "127.0.0.1", port, method, path, headers, agent: false });
  message.end(method === "GET" || method === "HEAD" ? undefined : body);
  const [response] = await once(message, "response");
  const chunks: Buffer[] = [];
  response.on("data", (chunk: Buffer) => chunks.push(chunk));
  response.on("error", () => {});
  await new Promise((resolve) => response.once("close", resolve));
  const { statusCode: status, headers: received, rawHeaders, complete } = response;
  return { status, headers: received, rawHeaders, body: Buffer.concat(chunks), complete };
}

/** A client that speaks bytes. */
export interface RawClient {
  readonly socket: Socket;
  /** Everything received so far. */
  text(): string;
  /** Waits until what was received contains `part`. */
  received(part: string): Promise<void>;
}

export function rawClient(port: number, head: string): RawClient {
  const socket = connect(port, "127.0.0.1");
  let text = "";
  socket.on("error", () => {});
  socket.on("data", (chunk: Buffer) => {
    text += chunk.toString("latin1");
  });
  socket.write(head);
  onTestFinished(() => void socket.destroy());
  const received = async (part: string): Promise<void> => {
    await waitFor(() => text.includes(part), { what: `${JSON.stringify(part)} at the client` });
  };
  return { socket, text: () => text, received };
}

export const postHead = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}";
