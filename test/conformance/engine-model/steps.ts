import type { CapturedRequest, CapturedSession } from "@espalier/bench";
import { argument, type Capture, type CapturedMessage } from "./capture.ts";

/** Requests that ran at the same time, or a single one. */
export interface RequestStep {
  readonly requests: readonly CapturedRequest[];
  /** First message that can belong to it. */
  readonly from: number;
  readonly rankUnknown: boolean;
}

type Step = RequestStep | { readonly reset: true; readonly from: number };

export const hasPrompt = (request: CapturedRequest): boolean => (request.prompt_token_ids?.length ?? 0) > 0;

/** What one rank was asked in one epoch, in order. */
export function stepsOf(
  capture: Capture,
  session: CapturedSession,
  endpoint: number,
  messages: readonly CapturedMessage[],
): Step[] {
  const ranks = argument(session, "--data-parallel-size") ?? 1;
  const steps: Step[] = [];
  let reached = messages[0]?.n ?? 0;
  let together: CapturedRequest[] = [];
  const closeGroup = (): void => {
    if (together.length > 0) steps.push({ from: reached, requests: inOrder(together), rankUnknown: ranks > 1 });
    together = [];
  };
  for (const request of capture.requests) {
    if (request.session !== session.session || request.status !== 200) continue;
    if (together.length > 0 && together[0]!.phase !== request.phase) closeGroup();
    if (/reset_prefix_cache|flush_cache/.test(request.path)) {
      steps.push({ reset: true, from: request.events_from ?? reached });
    } else if (request.events_from === null) {
      together.push(request);
    } else {
      const rank = ranks === 1 ? 0 : rankOf(request, capture.messages);
      if (rank === undefined || rank === endpoint) {
        steps.push({ from: request.events_from, requests: [request], rankUnknown: rank === undefined });
      }
      reached = request.events_to!;
    }
  }
  closeGroup();
  return steps;
}

const inOrder = (requests: readonly CapturedRequest[]): CapturedRequest[] =>
  [...requests].sort((one, other) => one.t_start - other.t_start);

/** The data-parallel rank that served a request: the one asked for, else the one that told of events meanwhile. */
function rankOf(request: CapturedRequest, messages: readonly CapturedMessage[]): number | undefined {
  const asked = request.request_headers?.["X-data-parallel-rank"];
  if (asked !== undefined) return Number(asked);
  return messages.find((message) => message.n >= request.events_from! && message.n < request.events_to!)?.endpoint;
}
