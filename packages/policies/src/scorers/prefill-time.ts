import type { Decision, Scorer } from "../decision.ts";
import { estimateForeignQueue } from "../load.ts";
import { matchedInAll, type TierCredits } from "../match.ts";
import { countingWeight } from "../weights.ts";

/** Milliseconds that an engine computes on a prompt token as long as nothing is learned: 8,000 tokens a second. */
const believedMsPerToken = 0.125;
/**
 * A prompt stalls every answer of its batch while it is computed. One of many seconds makes them stand still, which counts for
 * more: from so many milliseconds on in proportion to them, up to a bound.
 */
const stallMs = 2_000;
const maxStallWeight = 10;

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
 * others: `costToOthers` times itself, so that affinity grows with load, and a share of itself for each request in flight, whose
 * answer it holds up.
 *
 * @param answerWeight that share of a prompt of which nobody stands still, 0 to 1
 */
export function createOwnWork(answerWeight: number): Scorer {
  return {
    name: "own_work_ms",
    score(decision, out) {
      const { request, candidates, eligible, eligibleCount } = decision;
      const { weight, inFlight } = candidates;
      const forOthers = 1 + costToOthers(request.busyShare ?? 0, candidates.count);
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        const computeMs = ownMs(decision, index);
        const heldUp = answerWeight * Math.min(maxStallWeight, Math.max(1, computeMs / stallMs));
        out[index] = (computeMs * (forOthers + heldUp * inFlight[index]!)) / countingWeight(weight[index]!);
      }
    },
  };
}

/**
 * Milliseconds that the candidate takes to bring what it has of the prompt in slower tiers back to its GPU, per unit of
 * weight. Its engine computes other prompts meanwhile.
 *
 * @param credits what they leave of computing it takes where nothing is learned
 */
export function createFetchTime(credits: TierCredits): Scorer {
  return {
    name: "fetch_ms",
    score(decision, out) {
      const { candidates, eligible, eligibleCount } = decision;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        out[index] = fetchMsOf(decision, index, credits) / countingWeight(candidates.weight[index]!);
      }
    },
  };
}

/**
 * What the request costs others by the KV blocks that it takes while it runs, in milliseconds per unit of weight: its share
 * of the engine's blocks, times how long it holds them, times how near the engine is to having none left.
 */
export function createKvPressure(credits: TierCredits): Scorer {
  return {
    name: "kv_pressure_ms",
    score(decision, out) {
      const { request, candidates, eligible, eligibleCount } = decision;
      const { promptTokens, expectedOutputTokens, msPerOutputToken = 0 } = request;
      const { weight, kvUse, kvCapacityTokens, matchedTokens } = candidates;
      const answerMs = expectedOutputTokens * msPerOutputToken;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        // Blocks that others use already are shared.
        const tokens = Math.max(0, promptTokens - matchedTokens[index]!) + expectedOutputTokens;
        const computeMs = ownMs(decision, index) + fetchMsOf(decision, index, credits);
        const cost = (tokens / kvCapacityTokens[index]!) * (computeMs + answerMs) * kvUse[index]! ** 4;
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

/** What it computes of the prompt: all but what it has in any tier, and the last token in any case. */
function ownMs(decision: Decision, index: number): number {
  const { promptTokens } = decision.request;
  return ownMsOf(decision, index, Math.min(promptTokens, matchedInAll(decision.candidates, index)));
}

/** What it computes of the prompt if it has so many tokens of it. */
export function ownMsOf(decision: Decision, index: number, matched: number): number {
  const uncached = Math.max(1, decision.request.promptTokens - matched);
  const perPair = decision.candidates.prefillMsPerTokenPair[index]!;
  const pairsMs = Number.isNaN(perPair) ? 0 : perPair * uncached * (matched + uncached / 2);
  return tokenMsOf(decision, index) * uncached + pairsMs;
}

/** Tokens that it has beyond the prompt, for whatever reason, are not fetched. */
function fetchMsOf(decision: Decision, index: number, credits: TierCredits): number {
  const { candidates, request } = decision;
  const cpu = candidates.matchedCpuTokens[index]!;
  const disk = candidates.matchedDiskTokens[index]!;
  const external = candidates.matchedExternalTokens[index]!;
  if (cpu + disk + external === 0) return 0;
  const tokenMs = tokenMsOf(decision, index);
  let left = Math.max(0, request.promptTokens - candidates.matchedTokens[index]!);
  const part = (tokens: number, learnedMs: number, credit: number): number => {
    const fetched = Math.min(left, tokens);
    left -= fetched;
    return fetched > 0 ? fetched * (Number.isNaN(learnedMs) ? (1 - credit) * tokenMs : learnedMs) : 0;
  };
  return (
    part(cpu, candidates.cpuFetchMsPerToken[index]!, credits.cpu) +
    part(disk, candidates.diskFetchMsPerToken[index]!, credits.disk) +
    part(external, candidates.externalFetchMsPerToken[index]!, credits.external)
  );
}
