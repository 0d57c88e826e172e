import type { Decision, Scorer } from "../decision.ts";
import { estimateForeignQueue } from "../load.ts";
import { type TierCredits, writeCredits } from "../match.ts";
import { createScratch } from "../scratch.ts";
import { countingWeight } from "../weights.ts";

/** Milliseconds that an engine computes on a prompt token as long as nothing is learned: 8,000 tokens a second. */
const believedMsPerToken = 0.125;
/** What one request in flight adds to the time in which a prompt is computed beside it, as a share. */
const interference = 0.01;

/** Milliseconds until the prompts that were sent to a candidate before are computed, per unit of weight. */
export const backlog: Scorer = {
  name: "backlog_ms",
  score({ candidates, eligible, eligibleCount }, out) {
    const { weight, backlogMs, pendingPrefillTokens } = candidates;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      const known = backlogMs[index]!;
      const ms = Number.isNaN(known) ? pendingPrefillTokens[index]! * believedMsPerToken : known;
      out[index] = ms / countingWeight(weight[index]!);
    }
  },
};

/**
 * Milliseconds that the prompts of other clients in the engine's queue take, per unit of weight.
 *
 * @param requestTokens what such a request is taken to weigh
 */
export function createForeignBacklog(requestTokens: number): Scorer {
  return {
    name: "foreign_backlog_ms",
    score(decision, out) {
      estimateForeignQueue(decision, requestTokens, out);
      const { candidates, eligible, eligibleCount } = decision;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = (out[index]! * tokenMsOf(decision, index)) / countingWeight(candidates.weight[index]!);
      }
    },
  };
}

/**
 * Milliseconds that the candidate computes on what its cache lacks of the prompt, per unit of weight, and what that costs
 * others: `costToOthers` times itself, so that affinity grows with load; and requests in flight share the engine's steps.
 */
export function createOwnWork(credits: TierCredits): Scorer {
  return {
    name: "own_work_ms",
    score(decision, out) {
      writeOwnMs(decision, credits, out);
      const { request, candidates, eligible, eligibleCount } = decision;
      const { weight, inFlight } = candidates;
      const forOthers = 1 + costToOthers(request.busyShare ?? 0, candidates.count);
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        const share = forOthers + interference * inFlight[index]!;
        out[index] = (out[index]! * share) / countingWeight(weight[index]!);
      }
    },
  };
}

/**
 * What the request costs others by the KV blocks that it takes while it runs, in milliseconds per unit of weight: its share
 * of the engine's blocks, times how long it holds them, times how near the engine is to having none left.
 */
export function createKvPressure(credits: TierCredits): Scorer {
  const own = createScratch();
  return {
    name: "kv_pressure_ms",
    score(decision, out) {
      const ownMs = own.of(decision);
      writeOwnMs(decision, credits, ownMs);
      const { request, candidates, eligible, eligibleCount } = decision;
      const { promptTokens, expectedOutputTokens, msPerOutputToken = 0 } = request;
      const { weight, kvUse, kvCapacityTokens, matchedTokens } = candidates;
      const answerMs = expectedOutputTokens * msPerOutputToken;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        // Blocks that others use already are shared.
        const tokens = Math.max(0, promptTokens - matchedTokens[index]!) + expectedOutputTokens;
        const cost = (tokens / kvCapacityTokens[index]!) * (ownMs[index]! + answerMs) * kvUse[index]! ** 4;
        out[index] = Number.isNaN(cost) ? 0 : cost / countingWeight(weight[index]!);
      }
    },
  };
}

/**
 * What a millisecond of work costs those who come later, in milliseconds. At one engine every request of a busy time waits for
 * it: busy / (1 - busy) in all. Of several engines that are shared, later requests take those that are idle, as long as there
 * are any (Sakasegawa's approximation of the wait in M/M/n, 1977).
 */
function costToOthers(busyShare: number, engines: number): number {
  return busyShare ** (Math.sqrt(2 * (engines + 1)) - 1) / (1 - busyShare);
}

/** What a candidate computes on a token of a prompt; of one that attends to few others. */
export function tokenMsOf({ candidates }: Decision, index: number): number {
  const learned = candidates.prefillMsPerToken[index]!;
  return Number.isNaN(learned) ? believedMsPerToken : learned;
}

function writeOwnMs(decision: Decision, credits: TierCredits, out: Float64Array): void {
  writeCredits(decision, credits, out);
  const { request, candidates, eligible, eligibleCount } = decision;
  const { prefillMsPerTokenPair } = candidates;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    const matched = out[index]!;
    const uncached = Math.max(1, request.promptTokens - matched);
    const perPair = prefillMsPerTokenPair[index]!;
    const pairsMs = Number.isNaN(perPair) ? 0 : perPair * uncached * (matched + uncached / 2);
    out[index] = tokenMsOf(decision, index) * uncached + pairsMs;
  }
}
