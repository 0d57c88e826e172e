import type { Random } from "@espalier/core";
import type { CandidateSet } from "./candidates.ts";
import type { ChoiceReason, Judgement, RequestFeatures } from "./policy.ts";

/** One decision on its way through filters, scorers and picker. Its arrays are reused between decisions. */
export interface Decision extends Judgement {
  /** By candidate index, the number of the filter that left it out, from 1; 0 for one that passed. */
  readonly filteredBy: Uint8Array;
  readonly request: RequestFeatures;
  readonly candidates: CandidateSet;
  /** The output of each term's scorer before its weight, by term number and candidate index. */
  readonly scores: readonly Float64Array[];
}

/** Narrows the candidates. A filter that would leave none is ignored. */
export interface Filter {
  readonly name: string;
  /**
   * Moves the indices it keeps to the front of `decision.eligible`, in order. It must not write an index that it does
   * not keep, so that keeping none leaves the list unchanged.
   *
   * @returns how many it keeps
   */
  keep(decision: Decision): number;
}

/**
 * Scores candidates: a pure function of the decision. It writes one number, by candidate index, for every eligible
 * candidate, in any unit; the weight of its term converts it to the unit of the cost.
 */
export interface Scorer {
  readonly name: string;
  /** The parts of its numbers if they are not obvious; an explanation shows them too. */
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
  /** 0 unless the picker sets it. */
  creditMs: number;
  judged: Judgement | undefined;
  filteredBy: ((index: number) => string | undefined) | undefined;
}

export interface PickerExplanation {
  readonly reason: ChoiceReason;
  /** Further numbers by candidate index that the picker reads. */
  readonly terms?: Readonly<Record<string, Float64Array>>;
}

/** Takes one of at least two eligible candidates. It may keep state of its own. */
export interface Picker {
  /** Sets `index` and `reason` of the choice. */
  pick(decision: Decision, random: Random, choice: MutableChoice): void;
  /** Writes, by candidate index, the probability that `pick` would take it now; `out` must be zeroed. */
  explain(decision: Decision, out: Float64Array): PickerExplanation;
}

/** Working memory of a scorer or picker: numbers by candidate index. */
interface Scratch {
  /** An array with an entry for every candidate; the same array until there are more candidates than ever before. */
  of(decision: Decision): Float64Array;
}

/** Each owner has its own, so that a decision allocates nothing in steady state. */
export function createScratch(): Scratch {
  let numbers = new Float64Array(0);
  return {
    of({ costs }) {
      if (numbers.length < costs.length) numbers = new Float64Array(costs.length);
      return numbers;
    },
  };
}
