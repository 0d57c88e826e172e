import type { PrefillSample, PromptPart, RatedTarget } from "./prefill-rates.ts";

/** Who learns from first tokens. */
interface StepLearner {
  observe(target: RatedTarget, sample: PrefillSample): void;
}

interface Held {
  readonly target: RatedTarget;
  readonly sample: PrefillSample;
  readonly beside: PromptPart[];
}

/**
 * Engines compute several short prompts in one step. The first of their first tokens seems to have taken all of the time, and
 * the others none: they are learned from as one. So a sample waits for the next one of its target, unless nothing is left there.
 */
export class SharedSteps {
  readonly #learner: StepLearner;
  readonly #held: (Held | undefined)[] = [];

  constructor(learner: StepLearner) {
    this.#learner = learner;
  }

  /**
   * A first token came.
   *
   * @param isLast no other prompt is at the target
   */
  computed(target: RatedTarget, sample: PrefillSample, isLast: boolean): void {
    const held = this.#held[target.index];
    if (held?.target.key === target.key && sample.hasWaited && sample.elapsedMs < sameStepMs) {
      if (held.beside.length < maxBeside) held.beside.push(sample);
    } else {
      this.#learn(target.index);
      this.#held[target.index] = { target, sample, beside: [] };
    }
    if (isLast) this.#learn(target.index);
  }

  #learn(index: number): void {
    const held = this.#held[index];
    if (!held) return;
    this.#held[index] = undefined;
    const { target, sample, beside } = held;
    this.#learner.observe(target, { ...sample, beside });
  }
}

/** First tokens of one step arrive so close to each other; steps take longer. */
const sameStepMs = 3;
/** Prompts of one step that are counted beside the first one. */
export const maxBeside = 256;
