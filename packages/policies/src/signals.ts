import type { Decision } from "./decision.ts";
import { countingWeight } from "./weights.ts";

/** Engine signals older than this, or of unknown age, say nothing about now. */
export const freshSignalMs = 2_000;

/**
 * Replaces NaN among the eligible candidates' amounts by what the known ones have on average for the weight: unknown is
 * not zero. Where nobody is known it writes 0, which is then the same for all.
 *
 * @returns whether anybody is known
 */
export function fillUnknown({ candidates, eligible, eligibleCount }: Decision, amounts: Float64Array): boolean {
  const { weight } = candidates;
  let knownAmount = 0;
  let knownWeight = 0;
  let unknownCount = 0;
  for (let place = 0; place < eligibleCount; place++) {
    const index = eligible[place]!;
    const amount = amounts[index]!;
    if (Number.isNaN(amount)) {
      unknownCount += 1;
      continue;
    }
    knownAmount += amount;
    knownWeight += countingWeight(weight[index]!);
  }
  const amountPerWeight = knownWeight > 0 ? knownAmount / knownWeight : 0;
  for (let place = 0; place < eligibleCount && unknownCount > 0; place++) {
    const index = eligible[place]!;
    if (!Number.isNaN(amounts[index]!)) continue;
    amounts[index] = amountPerWeight * countingWeight(weight[index]!);
    unknownCount -= 1;
  }
  return knownWeight > 0;
}
