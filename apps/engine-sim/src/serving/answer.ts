import type { ServerResponse } from "node:http";
import type { Cancel, Clock, Scheduler } from "@espalier/core";
import type { RequestReport } from "@espalier/engine-model";
import type { Outcome } from "../engine/request-log.ts";
import type { SequenceListener, SequenceRequest } from "../engine/simulated-engine.ts";
import type { Fault } from "../faults.ts";
import { ApiError, asApiError, describeExchange, type Exchange, errorBody, jsonType, send } from "../http/exchange.ts";
import type { AnswerExtra } from "../transfer/leg.ts";
import type { EngineContext, LiveRequest } from "./engine-context.ts";

/** The format of an endpoint's answers. */
export interface AnswerFormat {
  /** The answer as one body. */
  whole(reports: readonly RequestReport[], extra: AnswerExtra): string;
  /** The events for one token of one sequence. */
  token(sequence: number, index: number): string;
  /** The events after the last token. */
  end(reports: readonly RequestReport[]): string;
  /** An answer without tokens, for endpoints that allow it. */
  readonly empty?: (finishReason: string) => { readonly whole: string; readonly events: string };
}

/** The sequences that a request needs, and the format of its answer. */
export interface Generation {
  readonly model: string;
  /** See `LiveRequest`. */
  readonly rid?: string | undefined;
  readonly stream: boolean;
  readonly sequences: readonly SequenceRequest[];
  readonly format: AnswerFormat;
  /** Called when all sequences are complete, before the end is sent. */
  readonly completed?: (reports: readonly RequestReport[]) => void;
}

/** Callbacks of the exchange of blocks with other engines. */
interface Hooks {
  /** The imported tokens have arrived. */
  imported?(tokens: number): void;
  /** All sequences are complete. The end is sent when it resolves; an ApiError is sent in its place. */
  computed?(reports: readonly RequestReport[]): Promise<AnswerExtra>;
  /** A sequence was completed while it was being dropped. */
  unwanted?(report: RequestReport): void;
}

/** Sequences that an engine has queued or running at once; requests beyond are answered 503. */
const maxActiveSequences = 4_096;

/** The answer to one request to the model, from its arrival to its last byte. */
export class Answer {
  readonly #context: EngineContext;
  readonly #exchange: Exchange;
  readonly #generation: Generation;
  readonly #sink: Sink;
  readonly #live: LiveRequest;
  readonly #settledListeners: (() => void)[] = [];
  #ids: readonly string[] = [];
  #reports: RequestReport[] = [];
  /** Sequences that the engine still computes. */
  #open = 0;
  /** Count of submits. Events of earlier ones are ignored. */
  #attempt = 0;
  #outcome: Outcome | undefined;
  #flushing = false;

  constructor(context: EngineContext, exchange: Exchange, generation: Generation) {
    this.#context = context;
    this.#exchange = exchange;
    this.#generation = generation;
    const settle = (as: Outcome): void => this.#settle(as);
    const { format, stream } = generation;
    this.#sink = stream ? streamSink(context, exchange, format, settle) : wholeSink(exchange, format, settle);
    this.#live = liveRequest(exchange, generation, settle, () => {
      for (const sequence of this.#ids) context.engine.abort(sequence);
    });
  }

  get isOver(): boolean {
    return this.#outcome !== undefined;
  }

  /** Called once, when the answer was sent or given up. */
  whenSettled(listener: () => void): void {
    this.#settledListeners.push(listener);
  }

  /** Admits the request: from here on, its client may disconnect. */
  begin(): void {
    const { response, fault } = this.#exchange;
    this.#context.live.add(this.#live);
    response.on("close", () => this.#settle(fault ? "faulted" : "aborted"));
    this.#sink.begin();
    this.#sink.flush();
  }

  /**
   * Submits the sequences to the engine, in place of earlier ones.
   *
   * @throws ApiError 400 when they can never fit, 503 when too many are active
   */
  submit(sequences: readonly SequenceRequest[], hooks: Hooks = {}): void {
    const { engine } = this.#context;
    const attempt = ++this.#attempt;
    for (const id of this.#ids) engine.abort(id);
    this.#open = 0;
    if (engine.activeCount() + sequences.length > maxActiveSequences) {
      throw new ApiError(503, "The engine's queue is full.");
    }
    try {
      this.#ids = engine.submit(sequences, (sequence) => this.#listener(sequence, attempt, hooks));
      this.#open = sequences.length;
    } catch (error) {
      throw error instanceof RangeError ? new ApiError(400, error.message) : error;
    }
    if (this.#exchange.fault?.kind === "reset-mid-prefill") this.#exchange.response.socket?.resetAndDestroy();
  }

  /** Ends the answer with an error; as an event when the stream has begun. */
  fail(error: ApiError): void {
    if (this.isOver) return;
    const { response, path } = this.#exchange;
    const { status, message, param } = error;
    const body = errorBody(this.#context.flavour, path, { status, message, param });
    if (response.headersSent) response.end(errorEvents(this.#context.flavour, path, body));
    else send(this.#exchange, status, jsonType, body);
    this.#settle("rejected");
  }

  /** Ends the answer without a token. */
  endEmpty(finishReason: string): void {
    this.#sink.empty(finishReason);
    this.#flush();
  }

  #listener(sequence: number, attempt: number, hooks: Hooks): SequenceListener {
    return {
      imported: (tokens) => {
        if (attempt === this.#attempt) hooks.imported?.(tokens);
      },
      token: (index) => {
        if (!this.#generation.stream || this.isOver || attempt !== this.#attempt) return;
        this.#sink.token(sequence, index);
        this.#flushLater();
      },
      finished: (report) => {
        const isDropped = this.isOver || attempt !== this.#attempt;
        if (isDropped && report.finishReason === "length") hooks.unwanted?.(report);
        if (attempt !== this.#attempt) return;
        this.#reports[sequence] = report;
        if (--this.#open > 0) return;
        if (this.isOver) this.#log();
        else if (this.#reports.some(({ finishReason }) => finishReason === "aborted")) this.#endAborted();
        else this.#complete(hooks);
      },
    };
  }

  #complete({ computed }: Hooks): void {
    const reports = this.#reports;
    this.#generation.completed?.(reports);
    if (!computed) {
      this.#sink.complete(reports, {});
      this.#flushLater();
      return;
    }
    const send = (extra: AnswerExtra): void => {
      if (this.isOver) return;
      this.#sink.complete(reports, extra);
      this.#flush();
    };
    computed(reports).then(send, (error: unknown) => this.fail(asApiError(error)));
  }

  /** The engine ended it. Of a whole answer's text nothing is kept, where its API has a reason for that. */
  #endAborted(): void {
    if (this.#generation.format.empty) this.#sink.empty("abort");
    else this.#sink.complete(this.#reports, {});
    this.#flushLater();
  }

  /** Sends the queued output at the end of the current advance. */
  #flushLater(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    this.#context.engine.flushLater({ flush: () => this.#flush() });
  }

  #flush(): void {
    this.#flushing = false;
    if (!this.isOver) this.#sink.flush();
  }

  #settle(as: Outcome): void {
    if (this.isOver) return;
    this.#outcome = as;
    this.#sink.stop();
    this.#context.live.delete(this.#live);
    if (this.#open === 0) this.#log();
    else for (const id of this.#ids) this.#context.engine.abort(id);
    for (const listener of this.#settledListeners) listener();
  }

  #log(): void {
    const { model, stream } = this.#generation;
    const outcome = this.#outcome as Outcome;
    this.#context.log.add({ ...describeExchange(this.#exchange), outcome, model, stream, reports: this.#reports });
  }
}

/** The end of a stream that failed: Anthropic's events have names, and SGLang's flat errors are nested in streams. */
function errorEvents(flavour: EngineContext["flavour"], path: string, body: string): string {
  if (path.startsWith("/v1/messages")) return `event: error\ndata: ${body}\n\n`;
  return `data: ${flavour === "sglang" ? `{"error":${body}}` : body}\n\ndata: [DONE]\n\n`;
}

function liveRequest(
  { path, requestId, response }: Exchange,
  { model, rid, stream, sequences }: Generation,
  settle: (as: Outcome) => void,
  abort: () => void,
): LiveRequest {
  return {
    ...{ rid, abort },
    describe: () => ({ path, requestId, model, stream, sequences: sequences.length }),
    kill() {
      settle("aborted");
      response.socket?.resetAndDestroy();
    },
  };
}

/** The receiver of a request's tokens. */
interface Sink {
  /** Called first, when the head of the answer may be sent. */
  begin(): void;
  token(sequence: number, index: number): void;
  complete(reports: readonly RequestReport[], extra: AnswerExtra): void;
  /** Ends without a token. */
  empty(finishReason: string): void;
  flush(): void;
  stop(): void;
}

type Settle = (as: Outcome) => void;

/** vLLM takes whole seconds of silence. */
const keepAliveMs = 1_000;

/** Streams tokens. */
function streamSink(
  { behaviours, clock, scheduler }: EngineContext,
  { response, fault }: Exchange,
  format: AnswerFormat,
  settle: Settle,
): Sink {
  const keepsAlive = behaviours.has("vllm-0.32.0:keep-alive-comments");
  const writer = createEventWriter({ response, fault, clock, scheduler, keepsAlive, ended: settle });
  return {
    begin() {
      response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache" });
      response.flushHeaders();
      writer.begin();
    },
    token: (sequence, index) => writer.add(format.token(sequence, index)),
    complete: (reports) => writer.close(format.end(reports)),
    empty: (finishReason) => writer.close(format.empty?.(finishReason).events ?? ""),
    flush: writer.flush,
    stop: writer.stop,
  };
}

/** Sends everything in one body. */
function wholeSink({ response, fault }: Exchange, format: AnswerFormat, settle: Settle): Sink {
  let body: string | undefined;
  return {
    begin() {},
    token() {},
    complete(reports, extra) {
      body = format.whole(reports, extra);
    },
    empty(finishReason) {
      body = format.empty?.(finishReason).whole;
    },
    flush() {
      if (body === undefined) return;
      response.writeHead(200, { "content-type": jsonType, "content-length": Buffer.byteLength(body) });
      if (breakPoint(fault) !== Number.POSITIVE_INFINITY) {
        breakAnswer(response, fault, body.slice(0, body.length / 2));
        return;
      }
      response.end(body);
      settle("finished");
    },
    stop() {},
  };
}

/** A client with more unread bytes than this is behind. */
const maxBufferedBytes = 1024 * 1024;

/**
 * Real time that a client may be behind before its connection is closed. It is longer than a burst after the process
 * stalled, so that a client that reads is not dropped.
 */
const maxBehindMs = 2_000;

interface EventWriterOptions {
  readonly response: ServerResponse;
  readonly fault: Fault | undefined;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Whether silence is broken by comments. */
  readonly keepsAlive: boolean;
  /** Called once, when the answer is complete or the client was dropped. Not called after a fault broke the stream. */
  readonly ended: (how: "finished" | "dropped-slow-client") => void;
}

/** Streams an answer, with the mid-stream faults. */
function createEventWriter(options: EventWriterOptions) {
  const { response, fault, clock, scheduler, keepsAlive, ended } = options;
  const breaksAfter = breakPoint(fault);
  const slowsAfter =
    fault?.kind === "slow" ? (fault.afterTokens ?? Number.POSITIVE_INFINITY) : Number.POSITIVE_INFINITY;
  let tokens = 0;
  let pending = "";
  /** Events that the fault `slow` delays, sent one by one. */
  const delayed: string[] = [];
  let cancelDelayed: Cancel | undefined;
  let cancelKeepAlive: Cancel | undefined;
  let last: string | undefined;
  let over = false;
  let behindSinceMs = Number.POSITIVE_INFINITY;

  const isTooSlow = (): boolean => {
    if (response.writableLength <= maxBufferedBytes) behindSinceMs = Number.POSITIVE_INFINITY;
    else behindSinceMs = Math.min(behindSinceMs, clock.nowMs());
    return clock.nowMs() - behindSinceMs >= maxBehindMs;
  };
  const keepAlive = (): void => {
    if (!keepsAlive) return;
    cancelKeepAlive?.();
    cancelKeepAlive = scheduler.every(keepAliveMs, () => response.write(": keep-alive\n\n"));
  };
  const releaseDelayed = (): void => {
    cancelDelayed = undefined;
    pending += delayed.shift() ?? "";
    flush();
  };
  function flush(): void {
    if (over) return;
    if (isTooSlow()) {
      over = true;
      response.destroy();
      ended("dropped-slow-client");
    } else if (tokens >= breaksAfter) {
      over = true;
      breakAnswer(response, fault, pending);
    } else {
      if (pending !== "") {
        response.write(pending);
        keepAlive();
      }
      pending = "";
      if (delayed.length > 0) cancelDelayed ??= scheduler.after(fault?.delayMs ?? 0, releaseDelayed);
      else if (last !== undefined) {
        over = true;
        response.end(last);
        ended("finished");
      }
    }
  }
  return {
    begin: keepAlive,
    /** Queues the events of one token. */
    add(events: string): void {
      if (tokens >= breaksAfter) return;
      if (tokens++ < slowsAfter) pending += events;
      else delayed.push(events);
    },
    /** Queues the last events. */
    close(events: string): void {
      last = events;
    },
    /** Sends the queue in one write. */
    flush,
    stop(): void {
      over = true;
      cancelDelayed?.();
      cancelKeepAlive?.();
    },
  };
}

/** The token after which a mid-stream fault happens; Infinity without one. */
function breakPoint(fault: Fault | undefined): number {
  return fault?.kind.endsWith("-mid-stream") ? (fault.afterTokens ?? 1) : Number.POSITIVE_INFINITY;
}

/** Sends `rest`, then hangs, resets the connection, or closes it before the end of the answer. */
function breakAnswer(response: ServerResponse, fault: Fault | undefined, rest: string): void {
  const { socket } = response;
  const act = (): void => {
    if (fault?.kind === "reset-mid-stream") socket?.resetAndDestroy();
    else if (fault?.kind === "cut-mid-stream") socket?.destroySoon();
  };
  if (rest === "") {
    response.flushHeaders();
    act();
  } else {
    response.write(rest, act);
  }
}
