import type { Decision, Picker } from "../decision.ts";
import { matchedInAll } from "../match.ts";

export interface SecondCopyOptions {
  /** The policy's term that says what a candidate computes of the prompt, by its number. */
  readonly ownTerm: number;
  /** Milliseconds that a candidate would compute on the prompt if it had so many tokens of its beginning. */
  readonly ownMs: (decision: Decision, index: number, matchedTokens: number) => number;
}

/** A copy that could be made. */
interface Offer {
  /** The cheapest candidate that lacks what the prompt shares with others; -1 where every one has it. */
  index: number;
  /** What this prompt, and answers beside it, would pay less at that candidate if it had as much of it as the best one has. */
  rentMs: number;
  /** What it pays more there as it is, and what others lose to what is kept of it there. */
  priceMs: number;
}

/**
 * Copies what many prompts begin with to another engine once it has paid. Costs are of one request: the first one to go
 * elsewhere would pay all of a copy that those after it profit from, so none ever would. Each prompt that goes where its
 * beginning is therefore pays rent, which is what it would have saved at the best of the others had that the same of it. As
 * soon as the rents of all that begin alike come to the price of a copy, the prompt in hand goes elsewhere and makes one.
 * Copies cost no more than what went without them did, and whatever comes, all together at most twice the best that could
 * have been done (ski rental: Karlin, Manasse, Rudolph and Sleator, "Competitive snoopy caching", 1988). Nothing is foretold.
 * Who calls the policy keeps the sums: it gives them with each request, and takes `Choice.rentMs`.
 */
export function createSecondCopyPicker(inner: Picker, { ownTerm, ownMs }: SecondCopyOptions): Picker {
  const offer: Offer = { index: -1, rentMs: 0, priceMs: 0 };

  /** Looks for a candidate to put a copy on in place of sending the prompt to `chosen`. */
  const find = (decision: Decision, chosen: number): boolean => {
    const { request, candidates, eligible, eligibleCount, costs } = decision;
    const { promptTokens, sharedTokens = 0 } = request;
    if (sharedTokens === 0 || matchedInAll(candidates, chosen) < sharedTokens) return false;
    let best = 0;
    offer.index = -1;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      const matched = matchedInAll(candidates, index);
      best = Math.max(best, matched);
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
    const asItIsMs = ownMs(decision, index, Math.min(promptTokens, matchedInAll(candidates, index)));
    const asBestMs = ownMs(decision, index, Math.min(promptTokens, best));
    // The term counts in what that costs others.
    const savedMs = decision.scores[ownTerm]![index]! * (1 - asBestMs / asItIsMs);
    const use =
      candidates.kvUse[index]! + candidates.pendingPrefillTokens[index]! / candidates.kvCapacityTokens[index]!;
    const scarcity = Number.isNaN(use) ? 1 : Math.min(1, use);
    const displacedMs = displacedTwice * scarcity * (asItIsMs - asBestMs);
    const slowedMs = answerMs * (1 - scarcity) * (candidates.inFlight[chosen]! - candidates.inFlight[index]!);
    offer.rentMs = Math.max(0, costs[chosen]! - (costs[index]! - savedMs) + slowedMs);
    offer.priceMs = Math.max(0, costs[index]! - costs[chosen]! + displacedMs);
    return offer.rentMs > 0;
  };
  const isPaid = ({ request: { rentPaidMs = 0 } }: Decision): boolean => rentPaidMs >= offer.priceMs;

  return {
    pick(decision, random, choice) {
      inner.pick(decision, random, choice);
      if (!find(decision, choice.index)) return;
      if (isPaid(decision)) {
        choice.index = offer.index;
        choice.reason = "second_copy";
        choice.rentMs = -offer.priceMs;
      } else choice.rentMs = offer.rentMs;
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

/**
 * What a request in a batch costs the answers beside it: some 300 steps that take 0.03 ms longer each, the least there is. Costs
 * are of the first token and have next to nothing of that. It is no reason for a copy where blocks are scarce.
 */
const answerMs = 8;
/** Where blocks are scarce, a copy takes the place of others, which are computed again, and so are those that that displaces. */
const displacedTwice = 2;
