import type { Selection } from "@espalier/routing";
import type { Target } from "@espalier/workers";
import type { PlannedRequest } from "./planned-request.ts";
import type { RouterContext } from "./router-context.ts";

/** Who answers a request, and how it came there. Times in milliseconds. */
export interface Answering {
  readonly selection: Selection<Target> | undefined;
  readonly attempts: number;
  /** What the router itself took. */
  readonly overheadMs: number;
  readonly queuedMs: number;
  readonly prefillWorker: string | undefined;
}

/** What the router says of an answer to the client; flat pairs. */
export function answerHeaders(
  { drain }: Pick<RouterContext, "drain">,
  { pool, prompt, requestId }: PlannedRequest,
  { selection, attempts, overheadMs, queuedMs, prefillWorker }: Answering,
): readonly string[] {
  const headers = [
    "x-espalier-worker",
    selection?.target.engine.id ?? "",
    "x-espalier-policy",
    pool.policy.name,
    "x-espalier-attempts",
    String(attempts),
    "x-espalier-overhead-ms",
    overheadMs.toFixed(3),
    "x-request-id",
    requestId,
  ];
  if (queuedMs > 0) headers.push("x-espalier-queued-ms", queuedMs.toFixed(3));
  if (prompt) headers.push("x-espalier-cache-hit-tokens", String(selection?.matchedTokens ?? 0));
  if (prefillWorker !== undefined) headers.push("x-espalier-prefill-worker", prefillWorker);
  if (drain.started) headers.push("connection", "close");
  return headers;
}
