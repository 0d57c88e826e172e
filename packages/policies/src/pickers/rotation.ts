import type { Picker } from "../decision.ts";
import { weightOf } from "../weights.ts";

/** Remembered candidates beyond this many (or beyond the present set, if larger) are forgotten, the absent ones first. */
export const maxRotationSlots = 16_384;

interface Slot {
  /** What the candidate is owed, in units of weight. Over all candidates it adds up to zero. */
  credit: number;
  /** The turns at which it was last taken and last seen; 0 is never. */
  takenAt: number;
  seenAt: number;
}

/**
 * Smooth weighted round robin, as in nginx: at each turn every candidate earns its weight, the richest is taken and
 * pays what all have earned together. Credit is kept by key, so a candidate that comes, goes or moves in the list
 * disturbs nobody else's turn. Equals go in the order in which they were last taken; among those never taken the order
 * is random, so that several routers do not start with the same engine.
 */
export function createRotationPicker(): Picker {
  const slots = new Map<string, Slot>();
  let turn = 0;

  const slotOf = (key: string): Slot => {
    let slot = slots.get(key);
    if (slot === undefined) {
      slot = { credit: 0, takenAt: 0, seenAt: 0 };
      slots.set(key, slot);
    }
    return slot;
  };
  const forgetAbsent = (): void => {
    for (const [key, slot] of slots) {
      if (slot.seenAt !== turn) slots.delete(key);
    }
  };

  return {
    pick({ candidates, eligible, eligibleCount }, random, choice) {
      turn += 1;
      let earned = 0;
      let richest: Slot | undefined;
      let equals = 1;
      for (let place = 0; place < eligibleCount; place++) {
        const index = eligible[place]!;
        const slot = slotOf(candidates.key[index]!);
        const weight = weightOf(candidates, index);
        slot.seenAt = turn;
        slot.credit += weight;
        earned += weight;
        const order = richest === undefined ? -1 : compareTurns(slot, richest);
        if (order < 0) equals = 1;
        else if (order > 0 || random.integer(++equals) !== 0) continue;
        richest = slot;
        choice.index = index;
      }
      richest!.credit -= earned;
      richest!.takenAt = turn;
      choice.reason = "rotation";
      if (slots.size > maxRotationSlots) forgetAbsent();
    },
    explain({ candidates, eligible, eligibleCount }, out) {
      const credit = new Float64Array(candidates.count).fill(Number.NaN);
      const next = Array.from(eligible.subarray(0, eligibleCount), (index) => {
        const slot = slots.get(candidates.key[index]!);
        credit[index] = (slot?.credit ?? 0) + weightOf(candidates, index);
        return { index, credit: credit[index], takenAt: slot?.takenAt ?? 0 };
      });
      const first = next.reduce((best, one) => (compareTurns(one, best) < 0 ? one : best));
      const equals = next.filter((one) => compareTurns(one, first) === 0);
      for (const { index } of equals) out[index] = 1 / equals.length;
      return { reason: "rotation", terms: { credit } };
    },
  };
}

/** Negative when `one` goes before `other`. */
function compareTurns(one: Pick<Slot, "credit" | "takenAt">, other: Pick<Slot, "credit" | "takenAt">): number {
  return other.credit - one.credit || one.takenAt - other.takenAt;
}
