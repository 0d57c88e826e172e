import { once } from "node:events";
import { createServer, request as httpRequest, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import { errorResponse } from "@espalier/api";
import {
  type Clock,
  type Meter,
  type Scheduler,
  silentLogger,
  silentMeter,
  systemClock,
  systemScheduler,
} from "@espalier/core";
import { createProxy, dropHeader, type ProxyOptionsInput, requestHeaders } from "@espalier/engines";
import { createRetryBudget, createRetryMeters, Retries, type RetryBudgetOptions } from "@espalier/routing";
import { waitFor } from "@espalier/testing";
import { onTestFinished } from "vitest";
import type {
  AnswerSource,
  AttemptFailure,
  Engine,
  ExchangeControl,
  ExchangeOutcome,
  HeadVerdict,
  NextEngine,
  Verdict,
} from "../../src/request/answer-source.ts";
import { type Carrier, Exchange, type ExchangedRequest } from "../../src/request/exchange.ts";
import { createAttemptMetrics } from "../../src/request/request-metrics.ts";
import type { BodyFilter } from "../../src/request/response-sink.ts";
import { listen } from "./engines.ts";

/** An engine of a test. */
export interface Upstream extends Engine {
  readonly key: string;
}

/** A failed attempt, and at whom. */
interface SeenFailure extends AttemptFailure {
  readonly upstream: Upstream;
}

type SeenOutcome =
  | Exclude<ExchangeOutcome, { readonly kind: "failed" }>
  | (Extract<ExchangeOutcome, { readonly kind: "failed" }> & { readonly failures: readonly SeenFailure[] });

/** What a test has of a request and its source; the rig's own where it is left out. */
export interface Scripted extends Pick<ExchangedRequest, "method" | "path" | "body" | "family"> {
  readonly headers: readonly string[];
  readonly ownHeaders: readonly string[];
  readonly forwardAuthorization: boolean;
  readonly deadlineMs: number;
  /** Of a request beside which others are sent. */
  readonly retries: Retries;
  next(tried: readonly SeenFailure[]): Upstream | undefined | Promise<Upstream | undefined>;
  judge(upstream: Upstream, status: number, head: Buffer, ended: boolean): Verdict;
  bodyFilter(status: number, contentType: string): BodyFilter | undefined;
  readonly observer: Partial<Observer>;
}

interface Observer {
  attemptStarted(upstream: Upstream, attempt: number, withdraw: () => void): void;
  attemptFailed(upstream: Upstream, failure: SeenFailure): void;
  responseHeaders(upstream: Upstream, status: number): readonly string[];
  responseStarted(upstream: Upstream, status: number, headers: readonly string[]): void;
  firstByte(upstream: Upstream): void;
}

/** A source that does what a test says. */
class RigSource implements AnswerSource {
  readonly reader: AnswerSource["reader"] = {
    awaitsContent: false,
    filter: (status, contentType) => {
      this.#status = status;
      return this.#script.bodyFilter?.(status, contentType);
    },
    firstByte: () => this.#script.observer.firstByte?.(this.#upstream!),
  };
  readonly retries: Retries;
  readonly #retryStatuses: ReadonlySet<number>;
  readonly #script: Script;
  readonly #ended: (outcome: SeenOutcome) => void;
  readonly #failures: SeenFailure[] = [];
  #exchange!: ExchangeControl;
  #upstream: Upstream | undefined;
  #later: { readonly chosen: Upstream | undefined } | undefined;
  #attempts = 0;
  #status = 0;
  /** The engine's, of the present answer. */
  #headers: readonly string[] = [];

  constructor(retryStatuses: ReadonlySet<number>, script: Script, ended: (outcome: SeenOutcome) => void) {
    this.retries = script.retries;
    this.#retryStatuses = retryStatuses;
    this.#script = script;
    this.#ended = ended;
  }

  start(exchange: ExchangeControl): void {
    this.#exchange = exchange;
    exchange.launch();
  }

  judgeHead(status: number): HeadVerdict {
    return this.#retryStatuses.has(status) ? "pass_over" : "pass";
  }

  choose(): NextEngine {
    if (this.#later) {
      const { chosen } = this.#later;
      this.#later = undefined;
      return this.#try(chosen);
    }
    const chosen = this.#script.next(this.#failures);
    if (!(chosen instanceof Promise)) return this.#try(chosen);
    chosen
      .then((upstream) => {
        this.#later = { chosen: upstream };
        this.#exchange.proceed();
      })
      .catch((thrown) => this.#exchange.crash(thrown));
    return "later";
  }

  #try(upstream: Upstream | undefined): Upstream | undefined {
    if (upstream) this.#upstream = upstream;
    return upstream;
  }

  started(): void {
    const attempt = this.#attempts++;
    const withdraw = (): void => {
      if (this.#attempts === attempt + 1) this.#exchange.withdraw();
    };
    this.#script.observer.attemptStarted?.(this.#upstream!, attempt, withdraw);
  }

  failed(failure: AttemptFailure): void {
    const seen = { ...failure, upstream: this.#upstream! };
    this.#failures.push(seen);
    this.#script.observer.attemptFailed?.(this.#upstream!, seen);
  }

  judge(status: number, head: Buffer, ended: boolean): Verdict {
    this.#status = status;
    return this.#script.judge?.(this.#upstream!, status, head, ended) ?? "pass";
  }

  editHeaders(pairs: string[]): void {
    this.#headers = [...pairs];
    const own = this.#script.observer.responseHeaders?.(this.#upstream!, this.#status) ?? [];
    for (let at = 0; at < own.length; at += 2) dropHeader(pairs, own[at]!);
    pairs.push(...own);
  }

  answering(status: number): void {
    this.#script.observer.responseStarted?.(this.#upstream!, status, this.#headers);
  }

  ended(outcome: ExchangeOutcome): void {
    this.#ended(outcome.kind === "failed" ? { ...outcome, failures: this.#failures } : outcome);
  }
}

type Script = Pick<Scripted, "next" | "observer" | "retries"> & Partial<Pick<Scripted, "judge" | "bodyFilter">>;

export interface RigOptions {
  /** URLs of the engines in order of preference, with keys `a`, `b`, ... */
  readonly engines: readonly string[];
  readonly options?: ProxyOptionsInput & {
    readonly retry?: Partial<RetryBudgetOptions> & { readonly retryStatuses?: readonly number[] };
  };
  readonly time?: { readonly clock: Clock; readonly scheduler: Scheduler };
  readonly meter?: Meter;
  /** Makes attempts in place of the proxy. */
  readonly attempt?: Carrier["attempt"];
  /** Replaces parts of each exchange. */
  readonly exchange?: (response: ServerResponse) => Partial<Scripted>;
}

export interface Rig {
  readonly proxy: ReturnType<typeof createProxy> & {
    /** Requests under way. */
    activeStreams(): number;
  };
  /** What may be sent again of one request, by the rig's budget. */
  createRetries(): Retries;
  readonly port: number;
  /** The responses to clients, in order of their requests. */
  readonly responses: ServerResponse[];
  /** Outcomes in order of their ends. */
  readonly outcomes: SeenOutcome[];
  /** What the observer heard, such as `start a 0`, `fail a reset`, `answer b 200`, `byte b`. */
  readonly events: string[];
  readonly failures: SeenFailure[];
  /** The next outcome that has not been asked for. */
  outcome(): Promise<SeenOutcome>;
}

/** A proxy behind a bare node:http server, as the router has it. A failed exchange is answered with its error. */
export async function createRig(setup: RigOptions): Promise<Rig> {
  const { clock, scheduler } = setup.time ?? { clock: systemClock, scheduler: systemScheduler };
  const meter = setup.meter ?? silentMeter;
  const { retry = {}, ...options } = setup.options ?? {};
  let active = 0;
  const proxy = { ...createProxy({ clock, scheduler, options }), activeStreams: () => active };
  const parts = {
    carrier: setup.attempt ? { attempt: setup.attempt } : proxy,
    logger: silentLogger,
    attemptMetrics: createAttemptMetrics(meter),
  };
  const retryStatuses = new Set([429, ...(retry.retryStatuses ?? [502, 503, 504])]);
  const budget = createRetryBudget(clock, { budgetRatio: 0.2, budgetMinimum: 50, ...retry });
  const retryMeters = createRetryMeters(meter);
  const createRetries = (): Retries => new Retries(budget, retryMeters);
  await proxy.start();
  const responses: ServerResponse[] = [];
  const outcomes: SeenOutcome[] = [];
  const events: string[] = [];
  const failures: SeenFailure[] = [];
  const upstreams = setup.engines.map((url, i): Upstream => ({ key: "abcdefgh"[i] ?? `${i}`, url, headers: [] }));

  const server = createServer(async (message, response) => {
    responses.push(response);
    const body: Buffer[] = [];
    for await (const chunk of message) body.push(chunk as Buffer);
    const observer: Partial<Observer> = {
      attemptStarted: ({ key }, attempt) => void events.push(`start ${key} ${attempt}`),
      attemptFailed: ({ key }, failure) => {
        events.push(`fail ${key} ${failure.kind}`);
        failures.push(failure);
      },
      responseStarted: ({ key }, status) => void events.push(`answer ${key} ${status}`),
      firstByte: ({ key }) => void events.push(`byte ${key}`),
    };
    const changes = setup.exchange?.(response) ?? {};
    const { forwardAuthorization = false, ownHeaders = [], headers = message.rawHeaders, deadlineMs, ...own } = changes;
    const source = { headers, ownHeaders, forwardAuthorization, withheld: new Set<string>(), requestId: "request-1" };
    const request: ExchangedRequest = {
      ...{ method: message.method ?? "", path: message.url ?? "", headers: requestHeaders(source) },
      ...{ body, requestId: "request-1", family: "openai", ...own },
      ...(deadlineMs !== undefined && { answerDueMs: deadlineMs }),
    };
    const script = {
      next: (tried: readonly unknown[]) => upstreams[tried.length],
      observer,
      retries: createRetries(),
      ...own,
    };
    active += 1;
    const outcome = await new Promise<SeenOutcome>((resolve) => {
      const ended = (seen: SeenOutcome): void => {
        active -= 1;
        resolve(seen);
      };
      new Exchange(parts, request, response, new RigSource(retryStatuses, script, ended)).start();
    });
    outcomes.push(outcome);
    if (outcome.kind === "failed") answerError(response, outcome);
  });
  server.keepAliveTimeout = 60_000;
  const { port } = await listen(server);
  onTestFinished(() => proxy.stop());
  let asked = 0;
  const outcome = (): Promise<SeenOutcome> => {
    const index = asked++;
    return waitFor(() => outcomes[index], { what: `outcome ${index}` });
  };
  return { proxy, createRetries, port, responses, outcomes, events, failures, outcome };
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
