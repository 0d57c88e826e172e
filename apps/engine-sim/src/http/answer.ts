import type { RequestReport } from "@espalier/engine-model";
import type { Outcome } from "../engine/request-log.ts";
import type { SequenceListener, SequenceRequest } from "../engine/simulated-engine.ts";
import type { AnswerExtra } from "../transfer/leg.ts";
import type { AnswerFormat } from "./answer-format.ts";
import { ApiError, errorBody } from "./api-error.ts";
import type { EngineContext, LiveRequest } from "./engine-context.ts";
import { type Exchange, headersForLog, jsonType, send } from "./exchange.ts";
import { type Sink, streamSink, wholeSink } from "./sinks.ts";

/** Sequences that an engine has queued or running at once; requests beyond are answered 503. */
const maxActiveSequences = 4_096;

/** What a request asks of the engine, and how it is answered. */
interface Asked {
  readonly model: string;
  readonly stream: boolean;
  readonly sequences: readonly SequenceRequest[];
  readonly format: AnswerFormat;
  /** Called when all sequences are complete, before the end is sent. */
  readonly completed?: (reports: readonly RequestReport[]) => void;
}

/** What else is to be done while the engine computes. */
interface Hooks {
  /** What was wanted from outside is here. */
  imported?(tokens: number): void;
  /** All sequences are complete. The end is sent when it resolves; an ApiError is sent in its place. */
  computed?(reports: readonly RequestReport[]): Promise<AnswerExtra>;
  /** A sequence was completed while it was being dropped. */
  unwanted?(report: RequestReport): void;
}

/** The answer to one request to the model, from its arrival to its last byte. */
export class Answer {
  readonly #context: EngineContext;
  readonly #exchange: Exchange;
  readonly #asked: Asked;
  readonly #sink: Sink;
  readonly #live: LiveRequest;
  readonly #settledListeners: (() => void)[] = [];
  #ids: readonly string[] = [];
  #reports: RequestReport[] = [];
  /** Sequences that the engine works on. */
  #open = 0;
  /** How often sequences were handed in. What the engine says of earlier ones is of no interest. */
  #attempt = 0;
  #outcome: Outcome | undefined;
  #flushing = false;

  constructor(context: EngineContext, exchange: Exchange, asked: Asked) {
    this.#context = context;
    this.#exchange = exchange;
    this.#asked = asked;
    const settle = (as: Outcome): void => this.#settle(as);
    const { format, stream } = asked;
    this.#sink = stream ? streamSink(context, exchange, format, settle) : wholeSink(exchange, format, settle);
    this.#live = liveRequest(exchange, asked, settle);
  }

  get isOver(): boolean {
    return this.#outcome !== undefined;
  }

  /** Called once, when the answer was sent, or never will be. */
  whenSettled(listener: () => void): void {
    this.#settledListeners.push(listener);
  }

  /** The request is taken in: from here on its caller may go away. */
  begin(): void {
    const { response, fault } = this.#exchange;
    this.#context.live.add(this.#live);
    response.on("close", () => this.#settle(fault ? "faulted" : "aborted"));
    this.#sink.begin();
    this.#sink.flush();
  }

  /**
   * Has the engine compute the sequences, in place of those that it may have already.
   *
   * @throws ApiError 400 when it can never hold them, 503 when too many are active
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

  /** Sends an error in place of what is missing of the answer: after the head of a stream, as an event. */
  fail(error: ApiError): void {
    if (this.isOver) return;
    const { response, path } = this.#exchange;
    const { status, message, param } = error;
    const body = errorBody(this.#context.flavour, path, { status, message, param });
    if (response.headersSent) response.end(`data: ${body}\n\ndata: [DONE]\n\n`);
    else send(this.#exchange, status, jsonType, body);
    this.#settle("rejected");
  }

  /** Ends the answer without a token. */
  endWithout(finishReason: string): void {
    this.#sink.nothing(finishReason);
    this.#flush();
  }

  #listener(sequence: number, attempt: number, hooks: Hooks): SequenceListener {
    return {
      imported: (tokens) => {
        if (attempt === this.#attempt) hooks.imported?.(tokens);
      },
      token: (index) => {
        if (!this.#asked.stream || this.isOver || attempt !== this.#attempt) return;
        this.#sink.token(sequence, index);
        this.#touch();
      },
      finished: (report) => {
        const isDropped = this.isOver || attempt !== this.#attempt;
        if (isDropped && report.finishReason === "length") hooks.unwanted?.(report);
        if (attempt !== this.#attempt) return;
        this.#reports[sequence] = report;
        if (--this.#open > 0) return;
        if (this.isOver) this.#log();
        else this.#complete(hooks);
      },
    };
  }

  #complete({ computed }: Hooks): void {
    const reports = this.#reports;
    this.#asked.completed?.(reports);
    if (!computed) {
      this.#sink.complete(reports, {});
      this.#touch();
      return;
    }
    const send = (extra: AnswerExtra): void => {
      if (this.isOver) return;
      this.#sink.complete(reports, extra);
      this.#flush();
    };
    computed(reports).then(send, (error: unknown) =>
      this.fail(error instanceof ApiError ? error : new ApiError(500, String(error))),
    );
  }

  /** Has what is queued sent once the engine has gone as far as it can. */
  #touch(): void {
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
    const { path, requestId, receivedWallMs, request, response, fault } = this.#exchange;
    const { model, stream } = this.#asked;
    this.#context.log.add({
      path,
      requestId,
      receivedWallMs,
      headers: headersForLog(request),
      outcome: this.#outcome as Outcome,
      status: response.headersSent ? response.statusCode : 0,
      model,
      stream,
      ...(fault && { fault: fault.kind }),
      reports: this.#reports,
    });
  }
}

function liveRequest(
  { path, requestId, response }: Exchange,
  { model, stream, sequences }: Asked,
  settle: (as: Outcome) => void,
): LiveRequest {
  return {
    describe: () => ({ path, requestId, model, stream, sequences: sequences.length }),
    kill() {
      settle("aborted");
      response.socket?.resetAndDestroy();
    },
  };
}
