import type { AnswerEnd, AnswerFault, Usage } from "@espalier/api";
import type { EspalierError } from "@espalier/core";
import type { Target } from "@espalier/engines";
import type { Selection } from "@espalier/routing";
import type { ExchangeOutcome } from "./answer-source.ts";

/**
 * How a request ended for its client. Metrics, counts, log, trace and hooks use these words.
 *
 * - `answered`: with a whole answer. An error that is the client's own is one.
 * - `refused`: with 429 or 503. Neither the router nor an engine took it.
 * - `failed`: with another error, without any content.
 * - `cut`: with a part of an answer.
 * - `cancelled`: the client went away.
 */
export type RequestOutcome = "answered" | "refused" | "failed" | "cut" | "cancelled";

/** A request that is over. */
export interface HookAnswer {
  readonly requestId: string;
  /** Empty for a request that was refused before its model was known. */
  readonly model: string;
  readonly status: number;
  readonly outcome: RequestOutcome;
  /** Code of the error that the client got. */
  readonly error: string | undefined;
  /** Undefined when no engine was asked. */
  readonly engine: string | undefined;
  readonly attempts: number;
  readonly durationMs: number;
  /** By the engine's own report of its usage; undefined without one. */
  readonly promptTokens: number | undefined;
  readonly cachedTokens: number | undefined;
  readonly completionTokens: number | undefined;
}

/** What is known when a planned request is over. */
export interface RequestEnd {
  readonly outcome: ExchangeOutcome;
  /** What the client got instead of an answer. */
  readonly error: EspalierError | undefined;
  /** Why an answer with status 200 is none. */
  readonly fault: AnswerFault | undefined;
  /** Of the last attempt; undefined when no engine was asked. */
  readonly selection: Selection<Target> | undefined;
  readonly prefillEngine: string | undefined;
  readonly attempts: number;
  readonly queuedMs: number | undefined;
  /** When it was first sent to an engine, less its time in the queue; NaN if never sent. */
  readonly dispatchedMs: number;
  /** NaN when no content came. */
  readonly firstByteMs: number;
  readonly usage: Usage | undefined;
  /** Undefined where the engine does not say it, and for a request of no program. */
  readonly answerEnd: AnswerEnd | undefined;
  readonly isStream: boolean;
  readonly outputTokens: number;
}

/** Nginx's 499: the client went away. Used in metrics only. */
const clientClosedStatus = 499;

/** The status of a request in metrics. */
export function outcomeStatus({ outcome, error }: Pick<RequestEnd, "outcome" | "error">): number {
  if (outcome.kind === "completed") return outcome.status;
  if (outcome.kind === "client_closed") return clientClosedStatus;
  return (error ?? (outcome.kind === "failed" ? outcome.error : undefined))?.kind.status ?? 502;
}

export function requestOutcome(end: Pick<RequestEnd, "outcome" | "error" | "fault" | "firstByteMs">): RequestOutcome {
  const { outcome, fault, firstByteMs } = end;
  if (outcome.kind === "cut") return "cut";
  const sent = outcomeStatus(end);
  if (outcome.kind !== "completed" && sent === clientClosedStatus) return "cancelled";
  const status = fault?.status ?? sent;
  if (status < 500 && status !== 429) return "answered";
  if (fault && !Number.isNaN(firstByteMs)) return "cut";
  return status === 429 || status === 503 ? "refused" : "failed";
}
