import type { Decision } from "./decisions.ts";
import { formatCount, formatShare } from "./format.ts";

/** Why a policy chose what it chose, in words that end no sentence. */
const words: Readonly<Record<string, string>> = {
  only_candidate: "the only engine that could",
  random: "drawn at random",
  rotation: "its turn",
  least_load: "least loaded",
  better_of_two: "less loaded of two drawn",
  hash: "the session's place on the ring",
  hash_overflow: "next place on the ring: the session's own is full",
  no_session_key: "no session named: least loaded",
  session_new: "a new session: least work",
  session_bound: "where the session is at home",
  session_moved: "the session's engine is gone: least work",
  session_overflow: "the session's engine is overloaded: least work",
  no_prefix_key: "no prefix named: least loaded",
  imbalanced: "loads too far apart: least loaded",
  prefix_match: "longest match in a cache",
  no_match: "no match long enough: least loaded",
  most_free_cache: "no match long enough: most free cache",
  best_score: "best score",
  affinity: "least loaded of those that have the prompt",
  affinity_too_slow: "those that have the prompt are too busy: least loaded",
  least_cost: "lowest cost",
  softmax: "drawn by cost",
  least_work: "least work until its first token",
  least_time: "soonest answer",
};

/** One line on a decision: the policy's reason, what of the prompt is there, and what came before. */
export function reasonText(decision: Decision): string {
  const { reason, promptTokens, matchedTokens, queuedMs, attempt, prefillWorker } = decision;
  const parts = [words[reason] ?? reason.replaceAll("_", " ")];
  if (matchedTokens > 0) parts.push(`has ${formatCount(matchedTokens)} of ${formatCount(promptTokens)} tokens`);
  else if (promptTokens > 0) parts.push(`cold: ${formatCount(promptTokens)} tokens to compute`);
  if (queuedMs > 0) parts.push(`waited ${formatCount(queuedMs)} ms`);
  if (attempt > 1) parts.push(`attempt ${attempt}`);
  if (prefillWorker !== null) parts.push(`prompt computed by ${prefillWorker}`);
  return parts.join(" · ");
}

/** The share of the prompt that is there already, from 0 to 1. */
export function matchedShare({ promptTokens, matchedTokens }: Decision): number {
  return promptTokens > 0 ? Math.min(1, matchedTokens / promptTokens) : 0;
}

/** The same for people who hear it. */
export function matchedText(decision: Decision): string {
  return `${formatShare(matchedShare(decision))} of the prompt is cached there`;
}
