import { createSeededRandom } from "@espalier/core";
import {
  createPromptSynthesizer,
  jitterArrivals,
  mooncakeStepMs,
  readTrace,
  type TraceFormat,
  type TraceRequest,
  toChatMessages,
  wordTokenIds,
} from "@espalier/simulator";

/**
 * One request of a replay. Its body is created on demand, so that a thousand waiting prompts of 50 KB take no memory.
 */
export interface PlannedRequest {
  readonly trace: TraceRequest;
  /** For example `/v1/chat/completions`. */
  readonly path: string;
  makeBody(): string;
}

/** The form of a synthesised prompt: the text of a chat message, or the token ids of a completion. */
export const promptForms = ["text", "tokens"] as const;

export type PromptForm = (typeof promptForms)[number];

export interface ReplayPlanOptions {
  readonly path: string;
  readonly format?: TraceFormat;
  readonly limit?: number;
  readonly model: string;
  readonly seed: number;
  /** Text by default. Prompts in the trace itself are always sent as text. */
  readonly prompts?: PromptForm;
}

/**
 * Reads a trace and plans its requests. Arrivals are spread within the steps to which the Mooncake traces are rounded,
 * prompts are synthesised from block ids, and output lengths are the trace's.
 *
 * @throws EspalierError `trace_invalid`
 */
export async function planReplay(options: ReplayPlanOptions): Promise<readonly PlannedRequest[]> {
  const { path, format, limit, model, seed, prompts = "text" } = options;
  const read = await readTrace(path, {
    ...(format === undefined ? {} : { format }),
    ...(limit === undefined ? {} : { limit }),
  });
  const requests = isRoundedToSteps(read)
    ? jitterArrivals(read, { stepMs: mooncakeStepMs, random: createSeededRandom(seed) })
    : read;
  const synthesize = createPromptSynthesizer({ seed });
  const makeBody = (trace: TraceRequest, prompt: Readonly<Record<string, unknown>>): string =>
    JSON.stringify({
      model,
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: trace.outputTokens,
      ignore_eos: true,
      ...prompt,
    });
  return requests.map((trace) => {
    const asTokens = prompts === "tokens" && trace.prompt === undefined;
    return asTokens
      ? {
          trace,
          path: "/v1/completions",
          makeBody: () => makeBody(trace, { prompt: wordTokenIds(synthesize(trace) as string) }),
        }
      : {
          trace,
          path: "/v1/chat/completions",
          makeBody: () => makeBody(trace, { messages: toChatMessages(synthesize(trace)) }),
        };
  });
}

/** Times in the files miss their steps by up to this. */
const stepToleranceMs = 10;

/** Whether these requests come from a Mooncake trace with rounded times. A trace without block ids does not. */
function isRoundedToSteps(requests: readonly TraceRequest[]): boolean {
  return requests.every(({ arrivalMs, blockIds, wait }) => {
    if (wait !== undefined) return false;
    const step = Math.round(arrivalMs / mooncakeStepMs);
    return blockIds !== undefined && Math.abs(arrivalMs - step * mooncakeStepMs) <= stepToleranceMs;
  });
}
