import { formatCount, formatMs, formatShare } from "./format.ts";
import { asNumber, asObject, asText, asTextOrNull, from, listOf, objectOf } from "./read-json.ts";

/** A choice of a target, and the router that made it. */
export interface Decision extends ReturnType<typeof readDecision> {
  readonly router: string;
  /** How its request ended; null before, and where nobody said. */
  readonly end: DecisionEnd | null;
}

export type DecisionEnd = ReturnType<typeof readEnd>;

const readEnd = objectOf({
  requestId: asText,
  outcome: asText,
  status: asNumber,
  durationMs: asNumber,
  attempts: (attempts) => asNumber(attempts, 1),
});

const readDecision = objectOf({
  number: asNumber,
  atMs: asNumber,
  model: asText,
  policy: asText,
  reason: asText,
  target: asText,
  promptTokens: asNumber,
  matchedTokens: asNumber,
  /** Empty if its router does not tell. */
  requestId: asText,
  session: asTextOrNull,
  className: from("class", asTextOrNull),
  queuedMs: asNumber,
  attempt: (attempt) => asNumber(attempt, 1),
  prefillEngine: asTextOrNull,
  /** KV blocks that the target fetches from another engine, and what that takes beside computing them. */
  pull: (pull) => (pull === null || pull === undefined ? null : readPull(pull)),
  /** How many engines could not be chosen, by reason. */
  excluded: (excluded) => readExcluded(excluded),
});

const readExcluded = listOf(objectOf({ reason: asText, count: asNumber }));

const readPull = objectOf({ from: asText, tokens: asNumber, ms: asNumber, computeMs: asNumber });

/** Decisions kept, over all routers. */
export const maxDecisions = 200;

/** @param data of an event of `GET /admin/decisions` */
export function readDecisions(router: string, data: unknown): readonly Decision[] {
  return listOf(readDecision)(asObject(data).decisions).map((decision) => ({ router, ...decision, end: null }));
}

/** @param data of an event of `GET /admin/decisions` */
export const readEnds = (data: unknown): readonly DecisionEnd[] => listOf(readEnd)(asObject(data).ends);

/** The decisions of a router with the ends of their requests. */
export function endDecisions(
  decisions: readonly Decision[],
  router: string,
  ends: readonly DecisionEnd[],
): readonly Decision[] {
  if (ends.length === 0) return decisions;
  const byId = new Map(ends.map((end) => [end.requestId, end]));
  return decisions.map((decision) => {
    const end = decision.router === router && decision.end === null ? byId.get(decision.requestId) : undefined;
    return end ? { ...decision, end } : decision;
  });
}

const outcomeWords: Readonly<Record<string, string>> = { cut: "cut off", cancelled: "client left" };

/** `200 · 1.2 s`, `cut off · 0.8 s`; empty for what has not ended. An attempt that was not the last one was tried again. */
export function endText({ attempt, end }: Pick<Decision, "attempt" | "end">): string {
  if (end === null) return "";
  if (attempt < end.attempts) return "tried again";
  return `${outcomeWords[end.outcome] ?? end.status} · ${formatMs(end.durationMs)}`;
}

/** Whether its request went wrong. */
export const isBadEnd = ({ end }: Pick<Decision, "end">): boolean =>
  end !== null && end.outcome !== "cancelled" && (end.outcome === "cut" || end.status >= 400);

/** `2 saturated, 1 draining`; empty for none. */
export const excludedText = ({ excluded }: Pick<Decision, "excluded">): string =>
  excluded.map(({ reason, count }) => `${formatCount(count)} ${reason.replaceAll("_", " ")}`).join(", ");

/** How many decisions an event counts without sending them. */
export function skippedOf(data: unknown): number {
  return asNumber(asObject(data).skipped);
}

/** Those that are not known yet: a router sends its latest again after a reconnect. */
export function freshDecisions(known: readonly Decision[], more: readonly Decision[]): readonly Decision[] {
  const keys = new Set(known.map(decisionKey));
  return more.filter((decision) => !keys.has(decisionKey(decision)));
}

/** Merges fresh decisions into the known ones, newest first. */
export function mergeDecisions(known: readonly Decision[], fresh: readonly Decision[]): readonly Decision[] {
  return [...fresh, ...known]
    .sort((one, other) => other.atMs - one.atMs || other.number - one.number)
    .slice(0, maxDecisions);
}

/** Identifies a decision. */
export function decisionKey({ router, number, atMs }: Decision): string {
  return `${router} ${number} ${atMs}`;
}

/** The reasons of the policies. */
const reasonWords: Readonly<Record<string, string>> = {
  only_candidate: "the only candidate",
  random: "random",
  rotation: "next in rotation",
  least_load: "least loaded",
  better_of_two: "less loaded of two random engines",
  hash: "hash ring position of the session",
  hash_overflow: "next on the hash ring: session's engine full",
  no_session_key: "no session key: least loaded",
  session_new: "new session: least work",
  session_bound: "the session's engine",
  session_moved: "session's engine gone: least work",
  session_overflow: "session's engine overloaded: least work",
  no_prefix_key: "no prefix key: least loaded",
  imbalanced: "load imbalance: least loaded",
  prefix_match: "longest cache match",
  no_match: "no match long enough: least loaded",
  most_free_cache: "no match long enough: most free cache",
  best_score: "best score",
  affinity: "least loaded of the engines that cache the prompt",
  affinity_too_slow: "engines that cache the prompt are too busy: least loaded",
  least_cost: "lowest cost",
  softmax: "sampled by cost",
  least_work: "least work before the first token",
  least_time: "shortest time to the answer",
};

/** What the reason of a policy means. */
export function reasonName(reason: string): string {
  return reasonWords[reason] ?? reason.replaceAll("_", " ");
}

/** One line on a decision: its reason, the cached part of the prompt, and the waits and attempts before it. */
export function reasonText(decision: Decision): string {
  const { reason, promptTokens, matchedTokens, queuedMs, attempt, prefillEngine, pull } = decision;
  const others = reason === "only_candidate" ? excludedText(decision) : "";
  const parts = [others === "" ? reasonName(reason) : `${reasonName(reason)} (others: ${others})`];
  if (pull) {
    const beside = `${formatCount(Math.round(pull.ms))} ms beside ${formatCount(Math.round(pull.computeMs))} to compute`;
    parts.push(`fetched ${formatCount(pull.tokens)} tokens from ${pull.from}: ${beside}`);
  }
  if (matchedTokens > 0) parts.push(`${formatCount(matchedTokens)} of ${formatCount(promptTokens)} tokens cached`);
  else if (promptTokens > 0) parts.push(`cold: ${formatCount(promptTokens)} tokens to compute`);
  if (queuedMs > 0) parts.push(`waited ${formatCount(queuedMs)} ms`);
  if (attempt > 1) parts.push(`attempt ${attempt}`);
  if (prefillEngine !== null) parts.push(`prompt computed by ${prefillEngine}`);
  return parts.join(" · ");
}

/** The cached share of the prompt, from 0 to 1. */
export function matchedShare({ promptTokens, matchedTokens }: Decision): number {
  return promptTokens > 0 ? Math.min(1, matchedTokens / promptTokens) : 0;
}

/** The same for screen readers. */
export function matchedText(decision: Decision): string {
  return `${formatShare(matchedShare(decision))} of the prompt is cached there`;
}
