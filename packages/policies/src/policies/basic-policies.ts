import { composePolicy } from "../compose-policy.ts";
import type { Decision, Picker } from "../decision.ts";
import { foreignRequestTokens, type PolicyDefinition } from "../definition.ts";
import { createTokenLoad, requestLoad } from "../load.ts";
import { createLeastCostPicker } from "../pickers/least-cost.ts";
import { weightedOnly, weightOf } from "../weights.ts";

export const roundRobin: PolicyDefinition = {
  summary: "Engines in rotation, smoothly by weight; each router has its own rotation.",
  source: "baseline; smooth weighted rotation as in nginx",
  readsPrefixes: false,
  options: [],
  create: () =>
    composePolicy({ name: "round_robin", filters: [weightedOnly], terms: [], picker: createRotationPicker() }),
};

export const random: PolicyDefinition = {
  summary: "A random engine, in proportion to weights.",
  source: "baseline",
  readsPrefixes: false,
  options: [],
  create: () => composePolicy({ name: "random", filters: [weightedOnly], terms: [], picker: weightedDraw }),
};

export const powerOfTwo: PolicyDefinition = {
  summary: "The engine with fewer requests in flight per weight of two random ones.",
  source: "Mitzenmacher 2001; SGLang and vLLM routers",
  readsPrefixes: false,
  options: [],
  create: () =>
    composePolicy({
      name: "power_of_two",
      filters: [weightedOnly],
      terms: [{ scorer: requestLoad, weight: 1 }],
      picker: betterOfTwo,
    }),
};

export const leastConnections: PolicyDefinition = {
  summary: "Fewest requests in flight per weight; ties are random.",
  source: "baseline",
  readsPrefixes: false,
  options: [],
  create: () =>
    composePolicy({
      name: "least_connections",
      filters: [weightedOnly],
      terms: [{ scorer: requestLoad, weight: 1 }],
      picker: createLeastCostPicker(),
    }),
};

export const leastTokens: PolicyDefinition = {
  summary: "Fewest tokens in prefill and decode per weight; ties are random.",
  source: "token-aware routing",
  readsPrefixes: false,
  options: [foreignRequestTokens],
  create: (option) =>
    composePolicy({
      name: "least_tokens",
      filters: [weightedOnly],
      terms: [{ scorer: createTokenLoad(option(foreignRequestTokens.name)), weight: 1 }],
      picker: createLeastCostPicker(),
    }),
};

/** Bound of remembered candidates (or the size of the present set, if larger). Absent ones are forgotten first. */
export const maxRotationSlots = 16_384;

interface Slot {
  /** What the candidate is owed, in units of weight. The sum over all candidates is zero. */
  credit: number;
  /** The turns at which it was last taken and last seen; 0 means never. */
  takenAt: number;
  seenAt: number;
}

/**
 * Smooth weighted round robin, as in nginx: at each turn every candidate earns its weight, and the one with the most
 * credit is taken and pays what all have earned together. Credit is kept by key, so a candidate that joins, leaves or
 * moves in the list does not disturb the turns of others. Equals go in the order in which they were last taken. Among
 * those never taken the order is random, so that several routers do not start with the same engine.
 */
function createRotationPicker(): Picker {
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

/** Negative if `one` goes before `other`. */
function compareTurns(one: Pick<Slot, "credit" | "takenAt">, other: Pick<Slot, "credit" | "takenAt">): number {
  return other.credit - one.credit || one.takenAt - other.takenAt;
}

/**
 * Draws two distinct candidates and takes the one of lower cost (Mitzenmacher, "The power of two choices in randomized
 * load balancing", 2001). The order of drawing is random, so ties need no further draw.
 */
export const betterOfTwo: Picker = {
  pick({ eligible, eligibleCount, costs }, random, choice) {
    const first = random.integer(eligibleCount);
    const other = random.integer(eligibleCount - 1);
    const second = other < first ? other : other + 1;
    const one = eligible[first]!;
    const two = eligible[second]!;
    choice.index = costs[two]! < costs[one]! ? two : one;
    choice.reason = "better_of_two";
  },
  explain({ eligible, eligibleCount, costs }, out) {
    const pairs = (eligibleCount * (eligibleCount - 1)) / 2;
    for (let first = 0; first < eligibleCount; first++) {
      const one = eligible[first]!;
      for (let second = 0; second < eligibleCount; second++) {
        const two = eligible[second]!;
        if (one === two) continue;
        // The loop sees each pair from both sides: the costlier one adds nothing, equals add half each.
        if (costs[one]! < costs[two]!) out[one] = out[one]! + 1 / pairs;
        else if (costs[one] === costs[two]) out[one] = out[one]! + 0.5 / pairs;
      }
    }
    return { reason: "better_of_two" };
  },
};

/** Takes each candidate with a probability in proportion to its weight; ignores costs. */
const weightedDraw: Picker = {
  pick(decision, random, choice) {
    const { candidates, eligible, eligibleCount } = decision;
    let left = random.float() * totalWeight(decision);
    // Rounding may leave a remainder after the last subtraction: then take the last candidate.
    choice.index = eligible[eligibleCount - 1]!;
    for (let place = 0; place < eligibleCount; place++) {
      left -= weightOf(candidates, eligible[place]!);
      if (left < 0) {
        choice.index = eligible[place]!;
        break;
      }
    }
    choice.reason = "random";
  },
  explain(decision, out) {
    const total = totalWeight(decision);
    for (const index of decision.eligible.subarray(0, decision.eligibleCount)) {
      out[index] = weightOf(decision.candidates, index) / total;
    }
    return { reason: "random" };
  },
};

function totalWeight({ candidates, eligible, eligibleCount }: Decision): number {
  let total = 0;
  for (let place = 0; place < eligibleCount; place++) total += weightOf(candidates, eligible[place]!);
  return total;
}
