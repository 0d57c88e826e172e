import type { PrefillSample, PromptPart, RatedTarget } from "./prefill-rates.ts";

/** Learns from first tokens. */
interface StepLearner {
  observe(target: RatedTarget, sample: PrefillSample): void;
}

interface Held {
  readonly target: RatedTarget;
  readonly sample: PrefillSample;
  readonly sameStep: PromptPart[];
}

/**
 * Engines compute several short prompts in one step. The first of their first tokens then seems to have taken all of
 * the time, and the others none, so they form one sample. Therefore a sample waits for the target's next one, unless
 * the target has no other prompt.
 */
export class SharedSteps {
  readonly #learner: StepLearner;
  readonly #held: (Held | undefined)[] = [];

  constructor(learner: StepLearner) {
    this.#learner = learner;
  }

  /**
   * A first token arrived.
   *
   * @param isLast whether the target has no other prompt
   */
  computed(target: RatedTarget, sample: PrefillSample, isLast: boolean): void {
    const held = this.#held[target.index];
    if (held?.target.key === target.key && sample.hasWaited && sample.elapsedMs < sameStepMs) {
      if (held.sameStep.length < maxPromptsPerStep) held.sameStep.push(sample);
    } else {
      this.#learn(target.index);
      this.#held[target.index] = { target, sample, sameStep: [] };
    }
    if (isLast) this.#learn(target.index);
  }

  #learn(index: number): void {
    const held = this.#held[index];
    if (!held) return;
    this.#held[index] = undefined;
    const { target, sample, sameStep } = held;
    this.#learner.observe(target, { ...sample, sameStep });
  }
}

/** First tokens of one step arrive within this time; steps take longer. */
const sameStepMs = 3;
/** Bound of further prompts of one step that count with the first. */
export const maxPromptsPerStep = 256;
