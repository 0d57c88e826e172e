import type { Random } from "@espalier/common";
import type { CandidateSet } from "./candidates.ts";
import type { ChoiceReason, RequestFeatures } from "./policy.ts";

/** One decision on its way through filters, scorers and picker. Its arrays are reused between decisions. */
export interface Decision {
  readonly request: RequestFeatures;
  readonly candidates: CandidateSet;
  /** Indices of the candidates that passed the filters, in its first `eligibleCount` entries. */
  readonly eligible: Int32Array;
  readonly eligibleCount: number;
  /** Cost by candidate index, lower is better; only the eligible ones mean anything. */
  readonly costs: Float64Array;
  /** What the scorer of each term wrote, without its weight, by the number of the term and the candidate's index. */
  readonly scores: readonly Float64Array[];
}

/** Narrows the candidates. A filter that would leave nobody is passed over. */
export interface Filter {
  readonly name: string;
  /**
   * Moves the indices it keeps to the front of `decision.eligible`, in order. It must not write an index it does not
   * keep, so that keeping none leaves the list as it was.
   *
   * @returns how many it keeps
   */
  keep(decision: Decision): number;
}

/**
 * Judges candidates: a pure function of the decision. It writes one number, by candidate index, for every eligible
 * candidate, in whatever unit it likes; the weight of its term brings it to the unit of the cost.
 */
export interface Scorer {
  readonly name: string;
  /** What its numbers are made of, where that is not plain from them; an explanation shows these as well. */
  readonly parts?: readonly Scorer[];
  score(decision: Decision, out: Float64Array): void;
}

/** A scorer's part in the cost. A negative weight makes it a merit. */
export interface Term {
  readonly scorer: Scorer;
  readonly weight: number;
}

export interface MutableChoice {
  index: number;
  target: number;
  reason: ChoiceReason;
  /** 0 unless the picker says otherwise. */
  rentMs: number;
}

export interface PickerExplanation {
  readonly reason: ChoiceReason;
  /** Numbers by candidate index that the picker looks at besides the cost. */
  readonly terms?: Readonly<Record<string, Float64Array>>;
}

/** Takes one of the eligible candidates. There are always at least two. It may keep state of its own. */
export interface Picker {
  /** Sets `index` and `reason` of the choice. */
  pick(decision: Decision, random: Random, choice: MutableChoice): void;
  /** Writes, by candidate index, the probability with which `pick` would take each now; `out` comes zeroed. */
  explain(decision: Decision, out: Float64Array): PickerExplanation;
}

/** Working memory of a scorer or picker: numbers by candidate index. */
interface Scratch {
  /** An array for every candidate of the decision; the same one until there are more candidates than ever before. */
  of(decision: Decision): Float64Array;
}

/** Each owner of one has it for itself, so that a decision allocates nothing in steady state. */
export function createScratch(): Scratch {
  let numbers = new Float64Array(0);
  return {
    of({ costs }) {
      if (numbers.length < costs.length) numbers = new Float64Array(costs.length);
      return numbers;
    },
  };
}
