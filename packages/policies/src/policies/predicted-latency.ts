import { composePolicy } from "../compose-policy.ts";
import type { Decision } from "../decision.ts";
import type { PolicyDefinition } from "../definition.ts";
import { belowHotspot, shortQueue } from "../guard-rails.ts";
import { requestLoad } from "../load.ts";
import { createNearTiePicker } from "../pickers/near-tie.ts";
import { createSecondCopyPicker } from "../pickers/second-copy.ts";
import { createUnseenWork } from "../pickers/unseen-work.ts";
import { believedCreditOptions, type CheckedOption, foreignRequestTokens, tierCredits } from "../policy-options.ts";
import { createAdapterLoadMs } from "../scorers/adapter-load.ts";
import {
  backlog,
  createFetchTime,
  createForeignBacklog,
  createKvPressure,
  createOwnWork,
  ownMsOf,
  tokenMsOf,
} from "../scorers/prefill-time.ts";
import { slotWait } from "../scorers/slot-wait.ts";
import { weightedOnly } from "../weights.ts";

/** Costs that differ by less are equal: it is less than a step of decoding takes. Routers that decide at once need equals. */
const nearTieMs = 8;
/**
 * What a request in flight costs the next one and those beside it: steps of a batch that is larger by one. Scores of terms that
 * do not depend on the prompt have weight 1.
 */
const requestMs = 1;

/** What answers under way weigh beside first tokens: the share of a prompt's time that counts for each that it holds up. */
const objective: CheckedOption = {
  name: "objective",
  default: 0.01,
  words: { balanced: 0.01, ttft: 0.003, e2e: 0.03, throughput: 0 },
  range: "balanced, ttft, e2e or throughput",
  accepts: (value) => value >= 0 && value <= 1,
  meaning:
    "What counts most: first tokens, answers to their end, or tokens per second. It moves one weight, what a prompt costs the " +
    "answers that it holds up; see the picture in docs/SCHEDULING.md.",
};

export const predictedLatency: PolicyDefinition = {
  summary:
    "The engine that answers first, what that costs others counted in: the time until the prompts before this one are " +
    "computed there, by dead reckoning, and until its batch has a place; the time that its own takes, which counts the more " +
    "the busier the engines are and the more answers it holds up; the time that bringing its blocks back from slower memory " +
    "takes; and the KV blocks that it holds where few are left. What many prompts begin with is copied to another engine " +
    "once they have paid for that by what they would have saved there. No engine gets more while it has 16 requests in " +
    "flight more than three times the mean, or a queue of a quarter of its batch. Times are learned from answers; credits are what is " +
    "believed of slower memory before. Near equals, and other routers beside this one, as for least_work.",
  source:
    "dead-reckoned backlog and s / (1 - rho), found by simulation; learned rates; ski rental for copies (Karlin et al., " +
    "1988); bounded loads (Mirrokni et al., 2016)",
  readsPrefixes: true,
  options: [objective, foreignRequestTokens, ...believedCreditOptions],
  create: (option) => {
    const credits = tierCredits(option);
    return composePolicy({
      name: "predicted_latency",
      filters: [weightedOnly, belowHotspot, shortQueue],
      terms: [
        { scorer: backlog, weight: 1 },
        { scorer: createForeignBacklog(option(foreignRequestTokens.name)), weight: 1 },
        { scorer: requestLoad, weight: requestMs },
        { scorer: createOwnWork(option(objective.name)), weight: 1 },
        { scorer: createFetchTime(credits), weight: 1 },
        { scorer: createKvPressure(credits), weight: 1 },
        { scorer: slotWait, weight: 1 },
        { scorer: createAdapterLoadMs(), weight: 1 },
      ],
      picker: createSecondCopyPicker(
        createNearTiePicker({
          reason: "least_time",
          tolerance: nearTieMs,
          tieBreaker: requestLoad,
          unseen: createUnseenWork({ commonTerms: 3, amountOf: unseenMs, tieCost: 0 }),
        }),
        { ownTerm: 3, ownMs: ownMsOf },
      ),
    });
  },
};

/** What other routers are expected to have sent unseen, in milliseconds of the mean candidate. */
function unseenMs(decision: Decision): number {
  const { request, eligible, eligibleCount } = decision;
  const { unseenTokens = 0 } = request;
  if (!(unseenTokens > 0)) return 0;
  let sum = 0;
  for (let place = 0; place < eligibleCount; place++) sum += tokenMsOf(decision, eligible[place]!);
  return (unseenTokens * sum) / eligibleCount;
}
