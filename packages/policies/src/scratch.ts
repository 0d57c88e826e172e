import type { Decision } from "./decision.ts";

/** Numbers by candidate index that a scorer or picker needs besides those it is given. */
export interface Scratch {
  /** An array with room for every candidate of the decision, the same one until there are more than ever before. */
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
