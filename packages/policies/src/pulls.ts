import type { CandidateSet } from "./candidates.ts";
import { defaultTierCredits, matchedInAll } from "./match.ts";
import { costToOthers, prefillMs, tokenMsAt } from "./scorers/prefill-time.ts";

/** Milliseconds that a pull takes before its first byte: the connection, the lookup, and their messages. */
export const pullSetupMs = 10;
/** Sources that are compared for each candidate: those that hold the most of the prompt. */
const maxSources = 4;

/** Positions of the best sources of the present decision. */
const sources = new Int32Array(maxSources);

/**
 * Decides for every candidate whether it should compute what it lacks of the prompt, or pull it from the CPU memory of
 * another candidate, and from which one. Pulling takes as long as all tokens that the source is sending, these included, at
 * the learned rate; where sources have failed, computing after all is part of it. Computing also costs the requests behind
 * it, so that pulls count for more the busier the engines are. Writes `pulledTokens`, `pullMs` and `pullFrom`.
 *
 * @param busyShare learned share of the time in which the candidates compute prompts, from 0 to below 1
 */
export function planPulls(promptTokens: number, busyShare: number, candidates: CandidateSet): void {
  const count = findSources(candidates);
  if (count === 0) return;
  const computeWeight = 1 + costToOthers(busyShare, candidates.count);
  const { pullProtocol, pullMsPerToken, lendableTokens, lendingTokens, lendTrust } = candidates;
  for (let index = 0; index < candidates.count; index++) {
    if (pullProtocol[index] === 0) continue;
    const held = Math.min(promptTokens, matchedInAll(candidates, index));
    const learnedMs = pullMsPerToken[index]!;
    const msPerToken = Number.isNaN(learnedMs)
      ? (1 - defaultTierCredits.cpu) * tokenMsAt(candidates, index)
      : learnedMs;
    let bestMs = 0;
    for (let place = 0; place < count; place++) {
      const source = sources[place]!;
      const tokens = lendableTokens[source]! - held;
      if (source === index || tokens <= 0 || pullProtocol[source] !== pullProtocol[index]) continue;
      const computeMs =
        prefillMs(candidates, index, promptTokens, held) - prefillMs(candidates, index, promptTokens, held + tokens);
      const moveMs = pullSetupMs + (lendingTokens[source]! + tokens) * msPerToken;
      const savedMs = lendTrust[source]! * computeMs * computeWeight - moveMs;
      if (savedMs <= bestMs) continue;
      bestMs = savedMs;
      candidates.pulledTokens[index] = tokens;
      candidates.pullMs[index] = moveMs + (1 - lendTrust[source]!) * computeMs;
      candidates.pullFrom[index] = source;
    }
    // Blocks that are only predicted may be on their way there: an engine that knows the source waits for them, and does not
    // compute them again.
    if (bestMs === 0 && !Number.isNaN(candidates.matchAgeMs[index]!)) nameSource(candidates, index, count);
  }
}

/** Names the best source without a pull. */
function nameSource({ pullProtocol, pullFrom }: CandidateSet, index: number, count: number): void {
  for (let place = 0; place < count; place++) {
    const source = sources[place]!;
    if (source === index || pullProtocol[source] !== pullProtocol[index]) continue;
    pullFrom[index] = source;
    return;
  }
}

/** Collects the candidates that lend the most of the prompt; among equals, those that send the least. */
function findSources({ count, lendableTokens, lendingTokens }: CandidateSet): number {
  let found = 0;
  for (let index = 0; index < count; index++) {
    const tokens = lendableTokens[index]!;
    if (tokens === 0) continue;
    let place = found < maxSources ? found++ : maxSources;
    for (; place > 0; place--) {
      const before = sources[place - 1]!;
      const isBefore =
        tokens > lendableTokens[before]! ||
        (tokens === lendableTokens[before]! && lendingTokens[index]! < lendingTokens[before]!);
      if (!isBefore) break;
      if (place < maxSources) sources[place] = before;
    }
    if (place < maxSources) sources[place] = index;
  }
  return found;
}
