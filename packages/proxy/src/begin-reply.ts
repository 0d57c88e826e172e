import { EspalierError } from "@espalier/common";
import type { Exchange, Upstream } from "./exchange.ts";
import { answerHeaders, dropHeader } from "./headers.ts";
import type { ResponseSink } from "./response-sink.ts";

export interface EngineAnswer {
  readonly status: number;
  readonly rawHeaders: readonly Buffer[];
}

export interface BegunReply {
  /** Flat name and value pairs of the engine's, as far as the client may see them. */
  readonly headers: readonly string[];
  /** Whether it is an event stream to which a frame of our own can be added. */
  readonly takesFrames: boolean;
}

/**
 * Writes an engine's status and headers to the client, with those of the caller.
 *
 * @throws EspalierError `upstream_protocol_error` when they cannot be written; nothing was written then
 */
export function beginReply(
  exchange: Exchange,
  upstream: Upstream,
  sink: ResponseSink,
  { status, rawHeaders }: EngineAnswer,
): BegunReply {
  const answer = answerHeaders(rawHeaders);
  const isEvents = answer.contentType.startsWith("text/event-stream");
  const bodiless = exchange.method === "HEAD" || status === 204 || status === 304;
  // Of a compressed body nothing can be read, and a filter that looks for the end of an event would hold all of it back.
  const filter = bodiless || answer.encoded ? undefined : exchange.bodyFilter?.(status, answer.contentType);
  // A stream may have to take an error frame at its end.
  if (filter?.changesLength || isEvents) dropHeader(answer.pairs, "content-length");
  const extra = exchange.observer.responseHeaders?.(upstream, status) ?? [];
  for (let i = 0; i < extra.length; i += 2) dropHeader(answer.pairs, extra[i]!);
  try {
    sink.begin(status, answer.pairs.concat(extra), filter);
  } catch (thrown) {
    throw new EspalierError("upstream_protocol_error", undefined, { cause: thrown });
  }
  return { headers: answer.pairs, takesFrames: isEvents && !answer.encoded };
}
