import { createSeededRandom } from "@espalier/common";
import {
  createPromptSynthesizer,
  jitterArrivals,
  mooncakeStepMs,
  readTrace,
  type TraceFormat,
  type TraceRequest,
  toChatMessages,
} from "@espalier/workload";

/** One request of a replay, with its body made when it is needed: a thousand prompts of 50 KB need not wait in memory. */
export interface PlannedRequest {
  readonly trace: TraceRequest;
  makeBody(): string;
}

export interface ReplayPlanOptions {
  readonly path: string;
  readonly format?: TraceFormat;
  readonly limit?: number;
  readonly model: string;
  readonly seed: number;
}

/**
 * Reads a trace and plans its requests: arrivals spread inside the steps that the Mooncake traces are rounded to,
 * prompts synthesised from block ids, output lengths as in the trace.
 *
 * @throws EspalierError `trace_invalid`
 */
export async function planReplay(options: ReplayPlanOptions): Promise<readonly PlannedRequest[]> {
  const { path, format, limit, model, seed } = options;
  const read = await readTrace(path, {
    ...(format === undefined ? {} : { format }),
    ...(limit === undefined ? {} : { limit }),
  });
  const requests = isQuantised(read)
    ? jitterArrivals(read, { stepMs: mooncakeStepMs, random: createSeededRandom(seed) })
    : read;
  const synthesize = createPromptSynthesizer({ seed });
  return requests.map((trace) => ({
    trace,
    makeBody: () =>
      JSON.stringify({
        model,
        stream: true,
        stream_options: { include_usage: true },
        max_tokens: trace.outputTokens,
        ignore_eos: true,
        messages: toChatMessages(synthesize(trace)),
      }),
  }));
}

/** Whether several requests share one arrival time to the millisecond wherever one looks: a sign of rounding. */
function isQuantised(requests: readonly TraceRequest[]): boolean {
  const distinct = new Set(requests.map((request) => request.arrivalMs)).size;
  return requests.length > 10 && distinct < requests.length / 2;
}
