import type { CandidateSet } from "../candidates.ts";
import type { Decision, Picker } from "../decision.ts";
import { availableTokens, matchedInAll } from "../match.ts";
import { countingWeight } from "../weights.ts";

export interface SecondCopyOptions {
  /** Number of the policy's term for what a candidate computes on the prompt. */
  readonly ownTerm: number;
  /** Milliseconds that a candidate would compute on the prompt if it had this many tokens of its beginning. */
  readonly ownMs: (decision: Decision, index: number, matchedTokens: number) => number;
}

/** A copy that could be made. */
interface Offer {
  /** The cheapest candidate that lacks the shared prefix; -1 if every candidate has it. */
  index: number;
  /** What this prompt and the answers of its batch would save with a copy at any one of the candidates that lack it, on average. */
  creditMs: number;
  /**
   * What the prompt costs more there now, where it computes or pulls the copy, plus what others lose to the blocks it takes.
   */
  priceMs: number;
}

/**
 * Copies a shared prefix to another engine once the copy has paid off. A cost covers one request: the first request to
 * go elsewhere would pay for the whole copy, and only later ones would profit, so no request would ever go. Therefore
 * each prompt that goes where its prefix is cached pays rent: what it would have saved at one other candidate, had
 * that held the same, as the mean over the candidates without it. The cheapest of many is another one each time, so that
 * its savings are no copy's. Once The credits of all prompts with the prefix reach the price of a copy, the next prompt goes
 * elsewhere and makes it, by computing or by a pull. In every case rents and copies together cost at most twice the best
 * possible (ski rental: Karlin, Manasse, Rudolph and Sleator, "Competitive snoopy caching", 1988). Nothing is predicted.
 * The caller keeps the sums: it passes them with each request and adds `Choice.creditMs`.
 */
export function createSecondCopyPicker(inner: Picker, { ownTerm, ownMs }: SecondCopyOptions): Picker {
  const offer: Offer = { index: -1, creditMs: 0, priceMs: 0 };

  /** What a prompt that goes to `chosen` would have saved at a candidate that held this many of its tokens. */
  const creditAt = (decision: Decision, index: number, chosen: number, heldTokens: number): number => {
    const { request, candidates, costs } = decision;
    const asItIsMs = ownMs(decision, index, Math.min(request.promptTokens, availableTokens(candidates, index)));
    const asHolderMs = ownMs(decision, index, heldTokens);
    // The term includes what that costs others.
    const savedMs =
      decision.scores[ownTerm]![index]! * (1 - asHolderMs / asItIsMs) +
      candidates.pullMs[index]! / countingWeight(candidates.weight[index]!);
    const slowedMs =
      answerMs * (1 - scarcityAt(candidates, index)) * (candidates.inFlight[chosen]! - candidates.inFlight[index]!);
    return Math.max(0, costs[chosen]! - (costs[index]! - savedMs) + slowedMs);
  };

  /** Looks for a candidate to put a copy on instead of sending the prompt to `chosen`. */
  const find = (decision: Decision, chosen: number): boolean => {
    const { request, candidates, eligible, eligibleCount, costs } = decision;
    const { promptTokens, sharedTokens = 0 } = request;
    if (sharedTokens === 0 || matchedInAll(candidates, chosen) < sharedTokens) return false;
    let best = 0;
    offer.index = -1;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      const matched = matchedInAll(candidates, index);
      best = Math.max(best, availableTokens(candidates, index));
      if (matched >= sharedTokens) continue;
      const least = offer.index === -1 ? Number.POSITIVE_INFINITY : costs[offer.index]!;
      const isBetter =
        costs[index] === least
          ? candidates.inFlight[index]! < candidates.inFlight[offer.index]!
          : costs[index]! < least;
      if (isBetter) offer.index = index;
    }
    const { index } = offer;
    if (index === -1) return false;
    const heldTokens = Math.min(promptTokens, best);
    let credits = 0;
    let others = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const other = eligible[place]!;
      if (matchedInAll(candidates, other) >= sharedTokens) continue;
      credits += creditAt(decision, other, chosen, heldTokens);
      others++;
    }
    const computedMs = ownMs(decision, index, Math.min(promptTokens, matchedInAll(candidates, index)));
    const displacedMs =
      displacementFactor * scarcityAt(candidates, index) * (computedMs - ownMs(decision, index, heldTokens));
    offer.creditMs = credits / others;
    offer.priceMs = Math.max(0, costs[index]! - costs[chosen]! + displacedMs);
    return offer.creditMs > 0;
  };
  const isPaid = ({ request: { creditPaidMs = 0 } }: Decision): boolean => creditPaidMs >= offer.priceMs;

  return {
    pick(decision, random, choice) {
      inner.pick(decision, random, choice);
      if (!find(decision, choice.index)) return;
      if (isPaid(decision)) {
        choice.index = offer.index;
        choice.reason = "second_copy";
        choice.creditMs = -offer.priceMs;
      } else choice.creditMs = offer.creditMs;
    },
    explain(decision, out) {
      const explained = inner.explain(decision, out);
      const { eligible, eligibleCount } = decision;
      let moved = 0;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        if (out[index] === 0 || !find(decision, index) || !isPaid(decision)) continue;
        moved += out[index]!;
        out[offer.index] = out[offer.index]! + out[index]!;
        out[index] = 0;
      }
      return moved > 0.5 ? { ...explained, reason: "second_copy" } : explained;
    },
  };
}

/** Share of the candidate's blocks that prompts and answers take; 1 for one that does not report it. */
function scarcityAt({ kvUse, kvCapacityTokens, pendingPrefillTokens }: CandidateSet, index: number): number {
  const use = kvUse[index]! + pendingPrefillTokens[index]! / kvCapacityTokens[index]!;
  return Number.isNaN(use) ? 1 : Math.min(1, use);
}

/**
 * What a request costs the other answers of its batch, at least: some 300 steps that take 0.03 ms longer each. Costs
 * are those of the first token and hardly include it. It does not justify a copy if blocks are scarce.
 */
const answerMs = 8;
/**
 * If blocks are scarce, a copy evicts others, which are computed again and evict more in turn. So they count as what
 * computing takes, also where the copy itself is pulled: they may have had no other.
 */
const displacementFactor = 2;
