import type { Random } from "@espalier/common";
import type { Decision, Picker, Scorer } from "../decision.ts";
import type { ChoiceReason } from "../policy.ts";
import { drawLowest, explainLowest, type Order } from "./ordered-draw.ts";
import type { UnseenWork } from "./unseen-work.ts";

export interface NearTiePickerOptions {
  readonly reason: ChoiceReason;
  /** Costs this close to the lowest count as equal to it. */
  readonly tolerance: number;
  /** The lowest of its scores decides between equals; without it, or where it leaves equals, chance does by weight. */
  readonly tieBreaker?: Scorer;
  /** What is done about other routers that decide at the same time; nothing when absent. */
  readonly unseen?: UnseenWork;
}

/** Takes the lowest cost, or of several that are as good as lowest the one that the tie-breaker prefers. */
export function createNearTiePicker({ reason, tolerance, tieBreaker, unseen }: NearTiePickerOptions): Picker {
  const order: Order = { first: new Float64Array(0), tolerance, second: new Float64Array(0) };

  const judge = (decision: Decision): Order => {
    order.first = decision.costs;
    if (order.second.length < decision.costs.length) order.second = new Float64Array(decision.costs.length);
    tieBreaker?.score(decision, order.second);
    if (unseen?.level(decision)) order.first = unseen.costs;
    return order;
  };
  const draw = (decision: Decision, random: Random): number => {
    judge(decision);
    return order.first === decision.costs ? drawLowest(decision, order, random) : unseen!.draw(decision, order, random);
  };

  return {
    pick(decision, random, choice) {
      choice.index = draw(decision, random);
      choice.reason = reason;
    },
    explain(decision, out) {
      judge(decision);
      if (order.first === decision.costs) explainLowest(decision, order, out);
      else unseen?.explain(decision, order, out);
      return tieBreaker === undefined ? { reason } : { reason, terms: { [tieBreaker.name]: order.second.slice() } };
    },
  };
}
