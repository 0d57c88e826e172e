import type { RequestResult } from "@espalier/workload";
import type { SimResult } from "../run/run-result.ts";

/** A simulated request as the summary of any run takes it. The gaps between its tokens are the time after the first. */
export function toRequestResult(result: SimResult): RequestResult {
  const { request, sentMs, firstTokenMs, endMs, cachedTokens, engine, error } = result;
  const streamedMs = endMs - firstTokenMs;
  return {
    index: request.index,
    session: String(request.session),
    turn: request.turn,
    startMs: sentMs,
    firstTokenMs,
    endMs,
    inputTokens: request.promptTokens,
    outputTokens: request.outputTokens,
    cachedTokens,
    engine: engine < 0 ? undefined : String(engine),
    error,
    itlSumMs: Number.isNaN(streamedMs) ? 0 : streamedMs,
    itlCount: Number.isNaN(streamedMs) ? 0 : request.outputTokens - 1,
    ...(request.className === undefined ? {} : { className: request.className }),
  };
}
