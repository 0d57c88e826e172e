import type { RequestReport } from "@espalier/engine-model";
import type { Outcome } from "../engine/request-log.ts";
import type { AnswerExtra } from "../transfer/leg.ts";
import type { AnswerFormat } from "./answer-format.ts";
import type { EngineContext } from "./engine-context.ts";
import { breakAnswer, breakPoint, createEventWriter } from "./event-writer.ts";
import { type Exchange, jsonType } from "./exchange.ts";

/** Where the tokens of a request go. */
export interface Sink {
  /** Called before anything else, when the caller may be told that there will be an answer. */
  begin(): void;
  token(sequence: number, index: number): void;
  complete(reports: readonly RequestReport[], extra: AnswerExtra): void;
  /** Ends without a token. */
  nothing(finishReason: string): void;
  flush(): void;
  stop(): void;
}

type Settle = (as: Outcome) => void;

/** Sends tokens as they come. */
export function streamSink(
  { clock, scheduler }: EngineContext,
  { response, fault }: Exchange,
  format: AnswerFormat,
  settle: Settle,
): Sink {
  const writer = createEventWriter({ response, fault, clock, scheduler, ended: settle });
  return {
    begin() {
      response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache" });
      response.flushHeaders();
    },
    token: (sequence, index) => writer.add(format.token(sequence, index)),
    complete: (reports) => writer.close(format.end(reports)),
    nothing: (finishReason) => writer.close(format.nothing?.(finishReason).events ?? ""),
    flush: writer.flush,
    stop: writer.stop,
  };
}

/** Sends everything in one body. */
export function wholeSink({ response, fault }: Exchange, format: AnswerFormat, settle: Settle): Sink {
  let body: string | undefined;
  return {
    begin() {},
    token() {},
    complete(reports, extra) {
      body = format.whole(reports, extra);
    },
    nothing(finishReason) {
      body = format.nothing?.(finishReason).whole;
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
