import { asList, asNumber, asObject, asText, asTextOrNull, type JsonObject } from "./read-json.ts";

/** A choice of a target, with the router that made it. */
export interface Decision {
  readonly router: string;
  readonly number: number;
  readonly atMs: number;
  readonly model: string;
  readonly policy: string;
  readonly reason: string;
  readonly target: string;
  readonly promptTokens: number;
  readonly matchedTokens: number;
  readonly session: string | null;
  readonly className: string | null;
  readonly queuedMs: number;
  readonly attempt: number;
  readonly prefillWorker: string | null;
}

/** Decisions that are kept, of all routers together. */
export const maxDecisions = 200;

/** @param data of an event of `GET /admin/decisions` */
export function readDecisions(router: string, data: unknown): readonly Decision[] {
  return asList(asObject(data).decisions).map((one) => readDecision(router, asObject(one)));
}

/** How many decisions an event only counts. */
export function skippedOf(data: unknown): number {
  return asNumber(asObject(data).skipped);
}

/** Those that are not there yet: a router that is asked again begins with its latest. */
export function freshDecisions(known: readonly Decision[], more: readonly Decision[]): readonly Decision[] {
  const keys = new Set(known.map(keyOf));
  return more.filter((decision) => !keys.has(keyOf(decision)));
}

/** Puts fresh decisions among those that are there, the newest first. */
export function mergeDecisions(known: readonly Decision[], fresh: readonly Decision[]): readonly Decision[] {
  return [...fresh, ...known]
    .sort((one, other) => other.atMs - one.atMs || other.number - one.number)
    .slice(0, maxDecisions);
}

/** Tells a decision from all others. */
export function keyOf({ router, number, atMs }: Decision): string {
  return `${router} ${number} ${atMs}`;
}

function readDecision(router: string, decision: JsonObject): Decision {
  return {
    router,
    number: asNumber(decision.number),
    atMs: asNumber(decision.atMs),
    model: asText(decision.model),
    policy: asText(decision.policy),
    reason: asText(decision.reason),
    target: asText(decision.target),
    promptTokens: asNumber(decision.promptTokens),
    matchedTokens: asNumber(decision.matchedTokens),
    session: asTextOrNull(decision.session),
    className: asTextOrNull(decision.class),
    queuedMs: asNumber(decision.queuedMs),
    attempt: asNumber(decision.attempt, 1),
    prefillWorker: asTextOrNull(decision.prefillWorker),
  };
}
