import { endpoints } from "@espalier/api";
import {
  compareWith,
  noObjectives,
  type Objectives,
  type ObjectivesResult,
  timePerOutputTokenMs,
} from "@espalier/policies";
import type { PlannedRequest } from "./planned-request.ts";
import { outcomeStatus, type RequestEnd, type RequestOutcome } from "./request-outcome.ts";

/** What users got of a request that counts for goodput. */
export interface Goodput {
  /** Empty for a request that was refused before its model was known. */
  readonly model: string;
  /** Empty without admission, and before the model is known. */
  readonly className: string;
  /** `failed` is a request that the tier or an engine failed: it met nothing. */
  readonly result: ObjectivesResult | "failed";
  /** What it had to keep. */
  readonly objectives: Objectives;
  /** NaN for an answer that was not streamed, or of one token. */
  readonly tpotMs: number;
}

/** When a request was over, and how. */
interface Ended {
  readonly outcome: RequestOutcome;
  readonly endMs: number;
}

/**
 * Measures a request that is over against its objectives. A stream is measured by its first token and by the time of each one
 * after it. Of a whole answer only the end is seen: it must come by when a stream that met both would have ended.
 *
 * @returns undefined for what is not counted: a request that generates nothing or that its client cancelled, an error that is
 *   the client's own, and an answer that the router did not see or whose engine does not tell its tokens
 */
export function goodputOf(plan: PlannedRequest, end: RequestEnd, { outcome, endMs }: Ended): Goodput | undefined {
  const { features, acceptedMs, pool, service } = plan;
  if (!generating.has(plan.endpointId) || features.expectedOutputTokens === 0 || outcome === "cancelled")
    return undefined;
  const objectives = pool.objectivesOf(service?.className);
  const of = { model: pool.model, className: service?.className ?? pool.defaultClass, objectives };
  if (outcome !== "answered") return { ...of, result: "failed", tpotMs: Number.NaN };
  if (end.fault || outcomeStatus(end) >= 400 || Number.isNaN(end.firstByteMs)) return undefined;
  const { firstByteMs, outputTokens } = end;
  if (end.isStream) {
    const tpotMs = timePerOutputTokenMs({ firstTokenMs: firstByteMs, endMs, outputTokens });
    return { ...of, result: compareWith(objectives, { ttftMs: firstByteMs - acceptedMs, tpotMs }), tpotMs };
  }
  if (outputTokens === 0) return undefined;
  const dueMs = acceptedMs + objectives.ttftMs + (outputTokens > 1 ? (outputTokens - 1) * objectives.tpotMs : 0);
  return { ...of, result: endMs <= dueMs ? "met" : "both_missed", tpotMs: Number.NaN };
}

const generating: ReadonlySet<PlannedRequest["endpointId"] | undefined> = new Set(
  endpoints.filter(({ kind }) => kind === "generate").map(({ id }) => id),
);

/** Measures a request that ended before it was planned: one that the router was too busy for, for instance. */
export function goodputOfRefusal(
  endpointId: PlannedRequest["endpointId"] | undefined,
  outcome: RequestOutcome,
): Goodput | undefined {
  if (!generating.has(endpointId) || outcome === "answered" || outcome === "cancelled") return undefined;
  return { model: "", className: "", objectives: noObjectives, result: "failed", tpotMs: Number.NaN };
}
