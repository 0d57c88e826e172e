import { dropHeader, type Target } from "@espalier/engines";
import type { ChosenPull, RequestLifecycle } from "@espalier/routing";
import type { PlannedRequest } from "../request/planned-request.ts";

type Routed = Pick<RequestLifecycle<Target>, "selection" | "prefill" | "attempts" | "queuedMs">;

/**
 * Adds to an answer's headers how its request was routed.
 *
 * @param dispatchedMs when it was first sent to an engine, less its time in the queue
 */
export function addRoutingHeaders(pairs: string[], plan: PlannedRequest, routed: Routed, dispatchedMs: number): void {
  const { pool, prompt, requestId, acceptedMs } = plan;
  const { selection, prefill, attempts, queuedMs } = routed;
  dropHeader(pairs, "x-request-id");
  pairs.push(
    "x-espalier-engine",
    selection?.target.engine.id ?? "",
    "x-espalier-attempts",
    String(attempts),
    "x-espalier-policy",
    pool.policy.name,
    "x-espalier-overhead-ms",
    (dispatchedMs - acceptedMs).toFixed(3),
    "x-request-id",
    requestId,
  );
  if (queuedMs > 0) pairs.push("x-espalier-queued-ms", queuedMs.toFixed(3));
  if (prompt) pairs.push("x-espalier-cache-hit-tokens", String(selection?.matchedTokens ?? 0));
  if (prefill) pairs.push("x-espalier-prefill-engine", prefill.target.engine.id);
  const pull = (prefill ?? selection)?.pull;
  if (pull && pull.tokens > 0) pairs.push("x-espalier-kv-source", pullText(pull));
}

/** For an error: the last engine that was asked, and how many were, as flat pairs; empty when none was. */
export function attemptedHeaders({ selection, attempts }: Routed): readonly string[] {
  if (attempts === 0) return [];
  return ["x-espalier-failed-engine", selection?.target.engine.id ?? "", "x-espalier-attempts", String(attempts)];
}

/** The source of a pull, what is fetched, and the expected milliseconds beside those of computing it. */
function pullText({ source, tokens, expectedMs, computeMs }: ChosenPull<Target>): string {
  return `${source.engine.id};tokens=${tokens};ms=${Math.round(expectedMs)};compute-ms=${Math.round(computeMs)}`;
}
