import { MessageChannel } from "node:worker_threads";
import { createSeededRandom, systemClock, systemScheduler } from "@espalier/core";
import {
  createLoadClient,
  poissonArrivals,
  type RequestResult,
  runClosedLoop,
  runOpenLoop,
  runTraceSession,
  type TraceSession,
  traceSessions,
} from "@espalier/simulator";
import type { PlannedRequest } from "./replay-plan.ts";
import { resultOf } from "./replay-results.ts";

export interface ReplayRunOptions {
  readonly requests: readonly PlannedRequest[];
  /** Requests go to them in rotation. */
  readonly urls: readonly string[];
  /** Trace seconds per real second. */
  readonly speed: number;
  /**
   * Users of a closed loop; undefined sends each request at its time in the trace. Where the trace says what requests
   * wait for, users take whole sessions, and without users only the sessions begin at their times.
   */
  readonly concurrency: number | undefined;
  /** Mean sessions that begin per trace second, at random times instead of the trace's, and the seed of these. */
  readonly starts?: { readonly perS: number; readonly seed: number };
  readonly apiKey?: string;
  readonly signal: AbortSignal;
  readonly onResult: (result: RequestResult) => void;
}

/**
 * Sends every request and returns each outcome, in order of their ends.
 *
 * @throws RangeError for `starts` with a trace that does not say what requests wait for
 */
export async function runReplay(options: ReplayRunOptions): Promise<readonly RequestResult[]> {
  const { requests, urls, speed, concurrency, starts, signal, onResult } = options;
  const client = createLoadClient(systemClock);
  const results: RequestResult[] = [];
  const headers = options.apiKey === undefined ? {} : { authorization: `Bearer ${options.apiKey}` };

  const send = async ({ trace, path, makeBody }: PlannedRequest): Promise<void> => {
    const url = urls[trace.index % urls.length] as string;
    const answer = await client.send(
      { url, path, body: makeBody(), headers: { ...headers, ...sessionHeaders(trace) } },
      signal,
    );
    if (signal.aborted) return;
    const result = resultOf(answer, trace);
    results.push(result);
    onResult(result);
  };
  const sessions = traceSessions(requests.map(({ trace }) => trace));
  if (sessions === undefined && starts !== undefined)
    throw new RangeError("the trace does not say what requests wait for");
  const startsMs = starts === undefined ? undefined : poissonArrivals(starts.perS, createSeededRandom(starts.seed));
  const byIndex = new Map(requests.map((request) => [request.trace.index, request]));
  const jobs =
    sessions?.map((session) => {
      const atMs = startsMs?.next().value ?? session[0]!.arrivalMs - (session[0]!.wait?.thinkMs ?? 0);
      const run = () => runSession(session, { send: ({ index }) => send(byIndex.get(index)!), speed, signal });
      return { dueMs: Math.max(0, atMs) / speed, run };
    }) ?? requests.map((request) => ({ dueMs: request.trace.arrivalMs / speed, run: () => send(request) }));
  // Timers let the process end, and servers close idle connections while every user of a trace thinks.
  const { port1: alive } = new MessageChannel();
  alive.ref();
  try {
    if (concurrency === undefined) {
      await runOpenLoop(jobs, { clock: systemClock, scheduler: systemScheduler }, signal);
    } else {
      const waiting = jobs.values();
      await runClosedLoop(() => waiting.next().value?.run, concurrency, signal);
    }
  } finally {
    alive.close();
    client.close();
  }
  return results;
}

/** An agent is named as Claude Code names its own: so it is another program than its session. */
function sessionHeaders({ session, agent }: PlannedRequest["trace"]): Readonly<Record<string, string>> {
  if (agent === undefined) return { "x-session-id": session };
  return {
    ...{ "x-claude-code-session-id": session, "x-claude-code-agent-id": agent.name },
    ...(agent.parent !== undefined && { "x-claude-code-parent-agent-id": agent.parent }),
  };
}

interface SessionRunOptions {
  readonly send: (request: TraceSession[number]) => Promise<void>;
  readonly speed: number;
  readonly signal: AbortSignal;
}

/** Runs one session to its last answer, or until it is aborted and nothing is under way any more. */
function runSession(session: TraceSession, { send, speed, signal }: SessionRunOptions): Promise<void> {
  return new Promise((resolve) => {
    const cancels = new Set<() => void>();
    let underWay = 0;
    const finish = (): void => {
      signal.removeEventListener("abort", stop);
      resolve();
    };
    const stop = (): void => {
      for (const cancel of cancels) cancel();
      if (underWay === 0) finish();
    };
    signal.addEventListener("abort", stop, { once: true });
    runTraceSession(
      session,
      {
        after(delayMs, task) {
          const cancel = systemScheduler.after(delayMs / speed, () => {
            cancels.delete(cancel);
            task();
          });
          cancels.add(cancel);
        },
        send(request, ended) {
          underWay += 1;
          void send(request).then(() => {
            underWay -= 1;
            if (!signal.aborted) ended();
            else if (underWay === 0) finish();
          });
        },
      },
      finish,
    );
    if (signal.aborted) stop();
  });
}
