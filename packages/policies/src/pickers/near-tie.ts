import type { Decision, Picker, Scorer } from "../decision.ts";
import type { ChoiceReason } from "../policy.ts";
import { drawLowest, explainLowest, type Order } from "./ordered-draw.ts";

export interface NearTiePickerOptions {
  readonly reason: ChoiceReason;
  /** Costs this close to the lowest count as equal to it. */
  readonly tolerance: number;
  /** The lowest of its scores decides between equals; without it, or where it leaves equals, chance does by weight. */
  readonly tieBreaker?: Scorer;
}

/** Takes the lowest cost, or of several that are as good as lowest the one that the tie-breaker prefers. */
export function createNearTiePicker({ reason, tolerance, tieBreaker }: NearTiePickerOptions): Picker {
  const order: Order = { first: new Float64Array(0), tolerance, second: new Float64Array(0) };

  const judge = (decision: Decision): Order => {
    order.first = decision.costs;
    if (order.second.length < decision.costs.length) order.second = new Float64Array(decision.costs.length);
    tieBreaker?.score(decision, order.second);
    return order;
  };

  return {
    pick(decision, random, choice) {
      choice.index = drawLowest(decision, judge(decision), random);
      choice.reason = reason;
    },
    explain(decision, out) {
      explainLowest(decision, judge(decision), out);
      return tieBreaker === undefined ? { reason } : { reason, terms: { [tieBreaker.name]: order.second.slice() } };
    },
  };
}
