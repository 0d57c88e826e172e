import type { Random } from "@espalier/core";
import { type CandidateSet, matchedInAll, type Policy } from "@espalier/policies";

/** The parts of llm-d's router that a policy's rule does not have. */
export interface LlmdRule {
  /**
   * Its `minCachedTokenDelta`: a request pulls when another engine's CPU memory has so many more tokens of the prompt than
   * its own engine has in all. No pulls when absent.
   */
  readonly minPullTokens?: number;
  /** Whether engines are drawn in proportion to their scores (`weighted-random-picker`), instead of taking the highest. */
  readonly draws?: boolean;
}

/** Sources whose prefix is shorter than the longest by no more than this are equal: a block of the source's index. */
const bandTokens = 64;

/**
 * A policy whose requests pull as in llm-d's router (ebab6879, 2026-08-22,
 * `requestcontrol/dataproducer/p2psource/producer.go`). Among the engines that lend the most of the prompt, within one block,
 * it draws one by 1 / (1 + waiting), before it knows where the request goes. What the router has decided about pulls by their
 * cost does not count.
 */
export function withLlmdRule(policy: Policy, { minPullTokens, draws = false }: LlmdRule): Policy {
  return {
    ...policy,
    choose(request, candidates, random) {
      candidates.pulledTokens.fill(0, 0, candidates.count);
      candidates.pullFrom.fill(Number.NaN, 0, candidates.count);
      const source = minPullTokens === undefined ? -1 : drawSource(candidates, random);
      const choice = draws
        ? drawByScore(policy, request, candidates, random)
        : policy.choose(request, candidates, random);
      const { index } = choice;
      const tokens = source < 0 ? 0 : candidates.lendableTokens[source]! - announcedTokens(candidates, index);
      if (source !== index && tokens > 0 && tokens >= minPullTokens!) {
        candidates.pulledTokens[index] = tokens;
        candidates.pullFrom[index] = source;
      }
      return choice;
    },
  };
}

/** What an engine has announced of the prompt. Its index there does not predict (`speculativeIndexing`) where it pulls. */
function announcedTokens(candidates: CandidateSet, index: number): number {
  return Number.isNaN(candidates.matchAgeMs[index]!) ? matchedInAll(candidates, index) : 0;
}

/** @returns -1 if nobody lends anything */
function drawSource({ count, lendableTokens, waiting }: CandidateSet, random: Random): number {
  const most = lendableTokens.subarray(0, count).reduce((highest, tokens) => Math.max(highest, tokens), 0);
  let chosen = -1;
  let weights = 0;
  for (let index = 0; index < count; index++) {
    if (lendableTokens[index] === 0 || lendableTokens[index]! + bandTokens < most) continue;
    const weight = 1 / (1 + (waiting[index] || 0));
    weights += weight;
    if (random.float() * weights < weight) chosen = index;
  }
  return chosen;
}

/** Scores are costs with a minus. Without one above 0, all engines are equal. */
function drawByScore(
  policy: Policy,
  request: Parameters<Policy["choose"]>[0],
  candidates: CandidateSet,
  random: Random,
): ReturnType<Policy["choose"]> {
  const scores = policy.explain(request, candidates).candidates.map(({ cost }) => Math.max(0, -(cost ?? 0)));
  const isNone = scores.every((score) => score === 0);
  let index = 0;
  let weights = 0;
  for (const [at, score] of scores.entries()) {
    const weight = isNone ? 1 : score;
    weights += weight;
    if (random.float() * weights < weight) index = at;
  }
  return { index, target: candidates.target[index]!, reason: "best_score", creditMs: 0 };
}
