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
  /** What this prompt and the answers of its batch would save at that candidate if it held as much of it as the best does. */
  rentMs: number;
  /** What the prompt costs more there now, and what others lose to the blocks it takes there. */
  priceMs: number;
}

/**
 * Copies a shared prefix to another engine once that has paid. Costs are of one request: the first one to go elsewhere would
 * pay all of a copy from which later ones profit, so none ever would. Each prompt that goes where its prefix is cached
 * therefore pays rent: what it would have saved at the best other candidate, had that held the same. As soon as the rents of
 * all prompts with the prefix reach the price of a copy, the next one goes elsewhere and makes it. Whatever comes, rents and
 * copies together cost at most twice the best that could have been done (ski rental: Karlin, Manasse, Rudolph and Sleator,
 * "Competitive snoopy caching", 1988). Nothing is predicted. The caller keeps the sums: it passes them with each request and
 * adds `Choice.rentMs`.
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
    const displacedMs = displacementFactor * scarcity * (asItIsMs - asBestMs);
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
 * What a request costs the other answers of its batch: some 300 steps that take 0.03 ms longer each, the least there is. Costs
 * are of the first token and hardly count it. It does not justify a copy where blocks are scarce.
 */
const answerMs = 8;
/** Where blocks are scarce, a copy evicts others, which are computed again and evict more in turn. */
const displacementFactor = 2;
