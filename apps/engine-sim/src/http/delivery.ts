import type { RequestReport } from "@espalier/engine-model";
import type { Outcome } from "../engine/request-log.ts";
import type { SequenceRequest } from "../engine/simulated-engine.ts";
import { ApiError } from "./api-error.ts";
import type { EngineContext, LiveRequest } from "./engine-context.ts";
import { breakAnswer, breakPoint, createEventWriter } from "./event-writer.ts";
import { type Exchange, headersForLog, jsonType } from "./exchange.ts";

/** How an endpoint words its answer. */
export interface AnswerFormat {
  /** The answer as one body. */
  whole(reports: readonly RequestReport[]): string;
  /** The events for one token of one sequence. */
  token(sequence: number, index: number): string;
  /** The events after the last token. */
  end(reports: readonly RequestReport[]): string;
}

/** What a request asks of the engine, and how it is answered. */
interface Generation {
  readonly model: string;
  readonly stream: boolean;
  readonly sequences: readonly SequenceRequest[];
  readonly format: AnswerFormat;
  /** Called when all sequences are complete, before the end is sent. */
  readonly completed?: (reports: readonly RequestReport[]) => void;
}

/** Sequences that an engine has queued or running at once; requests beyond are answered 503. */
const maxActiveSequences = 4_096;

/** Where the tokens of a request go. */
interface Sink {
  token(sequence: number, index: number): void;
  complete(reports: readonly RequestReport[]): void;
  flush(): void;
  stop(): void;
}

/**
 * Has the engine compute a request and sends the answer as it comes. The engine forgets the request when the client
 * goes away.
 *
 * @throws ApiError 400 when the engine can never hold the request, 503 when too many are active; nothing was sent then
 */
export function deliver(context: EngineContext, exchange: Exchange, generation: Generation): void {
  const { engine } = context;
  const { sequences, stream } = generation;
  if (engine.activeCount() + sequences.length > maxActiveSequences)
    throw new ApiError(503, "The engine's queue is full.");
  let ids: readonly string[] = [];
  const reports: RequestReport[] = [];
  let open = sequences.length;
  let outcome: Outcome | undefined;
  let flushing = false;

  const settle = (as: Outcome): void => {
    if (outcome !== undefined) return;
    outcome = as;
    sink.stop();
    context.live.delete(live);
    if (open === 0) logOutcome(context, exchange, generation, as, reports);
    else for (const id of ids) engine.abort(id);
  };
  const sink = stream ? streamSink(context, exchange, generation, settle) : wholeSink(exchange, generation, settle);
  const flush = (): void => {
    flushing = false;
    if (outcome === undefined) sink.flush();
  };
  const touch = (): void => {
    if (flushing) return;
    flushing = true;
    engine.flushLater({ flush });
  };
  const listener = (sequence: number) => ({
    token(index: number): void {
      if (!stream || outcome !== undefined) return;
      sink.token(sequence, index);
      touch();
    },
    finished(report: RequestReport): void {
      reports[sequence] = report;
      if (--open > 0) return;
      if (outcome !== undefined) {
        logOutcome(context, exchange, generation, outcome, reports);
        return;
      }
      generation.completed?.(reports);
      sink.complete(reports);
      touch();
    },
  });
  const live = liveRequest(exchange, generation, settle);

  try {
    ids = engine.submit(sequences, listener);
  } catch (error) {
    throw error instanceof RangeError ? new ApiError(400, error.message) : error;
  }
  context.live.add(live);
  exchange.response.on("close", () => settle(exchange.fault ? "faulted" : "aborted"));
  if (!stream) return;
  exchange.response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache" });
  exchange.response.flushHeaders();
  sink.flush();
}

function streamSink(
  { clock, scheduler }: EngineContext,
  { response, fault }: Exchange,
  { format }: Generation,
  settle: (as: Outcome) => void,
): Sink {
  const writer = createEventWriter({ response, fault, clock, scheduler, ended: settle });
  return {
    token: (sequence, index) => writer.add(format.token(sequence, index)),
    complete: (reports) => writer.close(format.end(reports)),
    flush: writer.flush,
    stop: writer.stop,
  };
}

function wholeSink({ response, fault }: Exchange, { format }: Generation, settle: (as: Outcome) => void): Sink {
  let body: string | undefined;
  return {
    token() {},
    complete(reports) {
      body = format.whole(reports);
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

function liveRequest(
  { path, requestId, response }: Exchange,
  { model, stream, sequences }: Generation,
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

function logOutcome(
  { log }: EngineContext,
  { path, requestId, receivedWallMs, request, response, fault }: Exchange,
  { model, stream }: Generation,
  outcome: Outcome,
  reports: readonly RequestReport[],
): void {
  log.add({
    path,
    requestId,
    receivedWallMs,
    headers: headersForLog(request),
    outcome,
    status: response.headersSent ? response.statusCode : 0,
    model,
    stream,
    ...(fault && { fault: fault.kind }),
    reports,
  });
}
