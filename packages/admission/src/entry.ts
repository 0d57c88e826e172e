import type { AdmissionRequest } from "./admission-request.ts";
import type { ClassSettings } from "./settings.ts";

/** A request that waits. */
export interface Entry {
  readonly request: AdmissionRequest;
  /** In order of arrival. */
  readonly sequence: number;
  /** By the clock. */
  readonly arrivedMs: number;
  /** When its first token is due, by the clock; Infinity for none. */
  readonly dueMs: number;
  /** When it has to leave the queue for that. */
  readonly leaveByMs: number;
  /** Prompt tokens that an engine will have to compute, as far as it can be told. */
  readonly uncachedTokens: number;
}

/** `edf` counts a request without a deadline as due then. */
const usualDueMs = 30_000;
/**
 * How much later than it came a request counts as arrived for a token of its prompt, in milliseconds, so that short ones
 * pass long ones, but none for ever: 10,000 tokens wait 20 s longer than one token at most.
 */
const agePerTokenMs = 2;

/** Where a request stands among those of its class: the least goes first. It never changes, so that none is overtaken for ever. */
export function orderKey({ order }: Pick<ClassSettings, "order">, entry: Entry): number {
  const { arrivedMs, dueMs, uncachedTokens } = entry;
  if (order === "edf") return Math.min(dueMs, arrivedMs + usualDueMs);
  return order === "shortest_prefill" ? arrivedMs + agePerTokenMs * uncachedTokens : arrivedMs;
}
