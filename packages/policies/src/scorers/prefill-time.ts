import type { CandidateSet } from "../candidates.ts";
import type { Decision, Scorer } from "../decision.ts";
import { estimateForeignQueue } from "../load.ts";
import { availableTokens, matchedInAll, type TierCredits } from "../match.ts";
import { defaultObjectives } from "../objectives.ts";
import { countingWeight } from "../weights.ts";

/** Milliseconds to compute a prompt token until something is learned: 8,000 tokens per second. */
const believedMsPerToken = 0.125;
/** Bound of the weight of a long stall. */
const maxStallWeight = 10;

/**
 * Over the objective for the time per output token, this is the share of a prompt's time that counts for each answer that
 * it stalls: a hundredth at 50 ms. Found in simulation: `docs/decisions/0013-what-work-costs-others.md`.
 */
const answerShareMs = 0.5;

/**
 * While engines have time left, each answer that a prompt stalls beyond the mean of the engines counts up to this many
 * times more: another engine would have stalled fewer. Found in simulation, see the same decision.
 */
const avoidableStalls = 50;

/** Milliseconds until the candidate has computed the prompts sent to it before, per unit of weight. */
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
 * Milliseconds that other clients' queued prompts take at the engine, per unit of weight.
 *
 * @param requestTokens assumed size of such a request
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
 * Milliseconds for an engine that another router owns. Each router places cold prompts on the engines that it owns unless
 * another one's are better by more than this: it knows what it has sent there itself, and learns late what others send. The
 * price falls with the third power of the cached share, so that conversations are not kept from the engine that has them.
 */
export const ownership: Scorer = {
  name: "ownership_ms",
  score({ request, candidates, eligible, eligibleCount }, out) {
    const { ownershipMs = 0, promptTokens } = request;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      if (ownershipMs === 0 || candidates.own[index] === 1) {
        out[index] = 0;
        continue;
      }
      const cold = Math.max(0, 1 - matchedInAll(candidates, index) / Math.max(1, promptTokens));
      out[index] = ownershipMs * cold * cold * cold;
    }
  },
};

/** Milliseconds of a round trip by which engines of one data centre differ, and one engine from one minute to the next. */
const nearbyMs = 2;

/**
 * How many ways of later turns count for a request while the nearest engines have all of their memory: a conversation stays
 * with the engine that has it. Found in simulation: `docs/decisions/0040-regions.md`.
 */
const laterTurns = 4;

/**
 * Milliseconds that a round trip to the candidate takes longer than to the nearest one, and than `nearbyMs` more. This
 * request waits for it, and the later turns of its conversation do. The latter count by the sixth power of the memory that
 * the nearest engines have left, and by the share of them that have no prompt to compute: where they are short of either,
 * later turns would pay for that as well. It costs others nothing, so it does not depend on the weight. Distances that are
 * equal, or that differ like those of one data centre, count 0, so that they change no decision, and an unknown one counts
 * like the nearest.
 */
export const network: Scorer = {
  name: "network_ms",
  score({ candidates: { networkMs, kvUse, pendingPrefillTokens }, eligible, eligibleCount }, out) {
    let nearest = Number.POSITIVE_INFINITY;
    for (let place = 0; place < eligibleCount; place++) {
      const ms = networkMs[eligible[place]!]!;
      if (ms < nearest) nearest = ms;
    }
    let near = 0;
    let use = 0;
    let idle = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      const extraMs = networkMs[index]! - nearest - nearbyMs;
      out[index] = Number.isNaN(extraMs) ? 0 : Math.max(0, extraMs);
      if (out[index] > 0) continue;
      near += 1;
      use += kvUse[index]!;
      if (pendingPrefillTokens[index] === 0) idle += 1;
    }
    if (near === eligibleCount) return;
    // Unknown memory counts as none.
    const left = Math.max(0, 1 - use / near) || 0;
    const times = 1 + laterTurns * left ** 6 * (idle / near);
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      out[index] = out[index]! * times;
    }
  },
};

/**
 * Milliseconds that the candidate computes on the uncached part of the prompt, per unit of weight, plus what that costs
 * others. The latter is `costToOthers` times that work, so that affinity grows with load, plus a share of the work for
 * each answer under way, which it stalls: the larger, the stricter the objective for the time per output token. Requests
 * that wait for their first token are in the backlog, and stall nobody.
 *
 * @param stallMs time from which that share grows in proportion, up to a bound: a longer prompt makes answers stand still
 * @param avoidable weight of stalled answers beyond the mean of the candidates, while all are idle
 */
export function createOwnWork(stallMs: number, avoidable = avoidableStalls): Scorer {
  return {
    name: "own_work_ms",
    score(decision, out) {
      const { request, candidates, eligible, eligibleCount } = decision;
      const { weight, answers } = candidates;
      const { busyShare = 0, sloTpotMs = defaultObjectives.tpotMs } = request;
      const answerShare = answerShareMs / sloTpotMs;
      const avoidableShare = Math.min(1, avoidable * answerShare * (1 - busyShare) ** 4);
      const forOthers = 1 + costToOthers(busyShare, candidates.count);
      let answersInAll = 0;
      let weightInAll = 0;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        answersInAll += answers[index]!;
        weightInAll += countingWeight(weight[index]!);
      }
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        const share = countingWeight(weight[index]!);
        const computeMs = ownMs(decision, index);
        const stalledShare = answerShare * Math.min(maxStallWeight, Math.max(1, computeMs / stallMs));
        const beyondMean = Math.max(0, answers[index]! - (answersInAll * share) / weightInAll);
        const stalls = stalledShare * answers[index]! + avoidableShare * beyondMean;
        out[index] = (computeMs * (forOthers + stalls)) / share;
      }
    },
  };
}

/**
 * Milliseconds that the candidate takes to fetch its part of the prompt from slower tiers, and from another engine, to its
 * GPU, per unit of weight. Its engine computes other prompts meanwhile.
 *
 * @param credits give the fetch time until it is learned: the rest of the time that computing would take
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
 * What a millisecond of work costs later requests, in milliseconds. With one engine, every request of a busy period
 * waits for it: busy / (1 - busy) in total. With several engines, later requests use idle ones if there are any
 * (Sakasegawa's approximation of the wait in M/M/n, 1977).
 */
export function costToOthers(busyShare: number, engines: number): number {
  return busyShare ** (Math.sqrt(2 * (engines + 1)) - 1) / (1 - busyShare);
}

/** Milliseconds that a candidate computes on a prompt token that attends to few others. */
export function tokenMsOf({ candidates }: Decision, index: number): number {
  return tokenMsAt(candidates, index);
}

/** The same by candidate set. */
export function tokenMsAt(candidates: CandidateSet, index: number): number {
  const learned = candidates.prefillMsPerToken[index]!;
  return Number.isNaN(learned) ? believedMsPerToken : learned;
}

/** Milliseconds that it computes on the prompt: all but what it has or pulls, and always the last token. */
function ownMs(decision: Decision, index: number): number {
  const { promptTokens } = decision.request;
  return ownMsOf(decision, index, Math.min(promptTokens, availableTokens(decision.candidates, index)));
}

/** Milliseconds that it would compute on the prompt if it had this many of its tokens. */
export function ownMsOf({ candidates, request }: Decision, index: number, matched: number): number {
  return prefillMs(candidates, index, request.promptTokens, matched);
}

/** Milliseconds that a candidate would compute on a prompt of which it had this many tokens. */
export function prefillMs(candidates: CandidateSet, index: number, promptTokens: number, matched: number): number {
  const uncached = Math.max(1, promptTokens - matched);
  const perPair = candidates.prefillMsPerTokenPair[index]!;
  const pairsMs = Number.isNaN(perPair) ? 0 : perPair * uncached * (matched + uncached / 2);
  return tokenMsAt(candidates, index) * uncached + pairsMs;
}

/** Cached tokens beyond the prompt, if any, are not fetched. */
function fetchMsOf(decision: Decision, index: number, credits: TierCredits): number {
  const { candidates, request } = decision;
  const cpu = candidates.matchedCpuTokens[index]!;
  const disk = candidates.matchedDiskTokens[index]!;
  const external = candidates.matchedExternalTokens[index]!;
  const pullMs = candidates.pullMs[index]!;
  if (cpu + disk + external === 0) return pullMs;
  const tokenMs = tokenMsOf(decision, index);
  const lacking = Math.max(0, request.promptTokens - candidates.matchedTokens[index]!);
  const fromCpu = Math.min(lacking, cpu);
  const fromDisk = Math.min(lacking - fromCpu, disk);
  const fromExternal = Math.min(lacking - fromCpu - fromDisk, external);
  return (
    pullMs +
    tierMs(fromCpu, candidates.cpuFetchMsPerToken[index]!, (1 - credits.cpu) * tokenMs) +
    tierMs(fromDisk, candidates.diskFetchMsPerToken[index]!, (1 - credits.disk) * tokenMs) +
    tierMs(fromExternal, candidates.externalFetchMsPerToken[index]!, (1 - credits.external) * tokenMs)
  );
}

function tierMs(tokens: number, learnedMs: number, believedMs: number): number {
  return tokens > 0 ? tokens * (Number.isNaN(learnedMs) ? believedMs : learnedMs) : 0;
}
