import { systemClock, systemScheduler } from "@espalier/common";
import { type Answer, createLoadClient, runClosedLoop, runOpenLoop } from "@espalier/load-driver";
import type { RequestResult } from "@espalier/workload";
import type { PlannedRequest } from "./replay-plan.ts";

export interface ReplayRunOptions {
  readonly requests: readonly PlannedRequest[];
  /** Requests go to them in rotation. */
  readonly urls: readonly string[];
  /** Trace seconds per real second. */
  readonly speed: number;
  /** Users of a closed loop; undefined sends each request at its time in the trace. */
  readonly concurrency: number | undefined;
  readonly apiKey?: string;
  readonly signal: AbortSignal;
  readonly onResult: (result: RequestResult) => void;
}

/** Sends every request and returns each outcome, in order of their ends. */
export async function runReplay(options: ReplayRunOptions): Promise<readonly RequestResult[]> {
  const { requests, urls, speed, concurrency, signal, onResult } = options;
  const client = createLoadClient(systemClock);
  const results: RequestResult[] = [];
  const headers = options.apiKey === undefined ? {} : { authorization: `Bearer ${options.apiKey}` };

  const send = async ({ trace, path, makeBody }: PlannedRequest): Promise<void> => {
    const url = urls[trace.index % urls.length] as string;
    const answer = await client.send(
      { url, path, body: makeBody(), headers: { ...headers, "x-session-id": trace.session } },
      signal,
    );
    if (signal.aborted) return;
    const result = asResult(trace, answer);
    results.push(result);
    onResult(result);
  };
  try {
    if (concurrency === undefined) {
      const jobs = requests.map((request) => ({ dueMs: request.trace.arrivalMs / speed, run: () => send(request) }));
      await runOpenLoop(jobs, { clock: systemClock, scheduler: systemScheduler }, signal);
    } else {
      const waiting = requests.values();
      const next = () => {
        const { value, done } = waiting.next();
        return done ? undefined : () => send(value);
      };
      await runClosedLoop(next, concurrency, signal);
    }
  } finally {
    client.close();
  }
  return results;
}

function asResult(trace: PlannedRequest["trace"], answer: Answer): RequestResult {
  const outputTokens = answer.completionTokens ?? 0;
  return {
    index: trace.index,
    session: trace.session,
    turn: trace.turn,
    startMs: answer.startMs,
    firstTokenMs: answer.firstTokenMs,
    endMs: answer.endMs,
    inputTokens: answer.promptTokens ?? trace.inputTokens,
    outputTokens,
    cachedTokens: answer.cachedTokens ?? Number.NaN,
    engine: answer.engine,
    error: answer.error,
    itlSumMs: outputTokens > 1 ? answer.endMs - answer.firstTokenMs : 0,
    itlCount: Math.max(0, outputTokens - 1),
  };
}
