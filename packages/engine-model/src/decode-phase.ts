import type { KvCache } from "./kv-cache.ts";
import { isDecode, type Sequence } from "./sequence.ts";

interface DecodePhaseOptions<Seat, Chain> {
  /** With a place in the batch, in order of admission. */
  readonly running: readonly Sequence<Seat, Chain>[];
  readonly cache: Pick<KvCache<Seat, never>, "idleUpTo" | "entersNext">;
  /** How many tokens from a position on need not be told of. */
  readonly quietTokens: (knownTokens: number) => number;
}

const firstRoom = 16;

/**
 * Steps in which every running sequence decodes and nobody waits. What one of them does to a sequence is known ahead:
 * each has a step at which it needs attention, because its output ends or is told of then, or because it changes blocks
 * in the step after. Until then it is left as it is, and so is behind by the steps since.
 *
 * Sequences are named by their place in the batch.
 */
export class DecodePhase<Seat, Chain> {
  readonly #options: DecodePhaseOptions<Seat, Chain>;
  #isOn = false;
  /** Steps that have ended since the phase began. */
  #step = 0;
  /** The step up to which what is written in a sequence is true. */
  #writtenSteps = new Float64Array(firstRoom);
  /** The step whose end needs attention for a sequence; once it is over, the sequence needs it in planning. */
  #dueSteps = new Float64Array(firstRoom);
  /** The step whose end may be told of. */
  #toldSteps = new Float64Array(firstRoom);

  constructor(options: DecodePhaseOptions<Seat, Chain>) {
    this.#options = options;
  }

  get isOn(): boolean {
    return this.#isOn;
  }

  /**
   * Begins with the planned step, when every running sequence decodes in it.
   *
   * @returns whether they do
   */
  begin(): boolean {
    const { running } = this.#options;
    for (let at = 0; at < running.length; at++) {
      const sequence = running[at]!;
      if (sequence.stepTokens === 0 || sequence.abortWanted || !isDecode(sequence)) return false;
    }
    if (running.length > this.#dueSteps.length) {
      this.#writtenSteps = new Float64Array(2 * running.length);
      this.#dueSteps = new Float64Array(2 * running.length);
      this.#toldSteps = new Float64Array(2 * running.length);
    }
    this.#isOn = running.length > 0;
    this.#step = 0;
    for (let at = 0; at < running.length; at++) this.planned(at);
    return this.#isOn;
  }

  /** How many of the steps after the planned one are like it. */
  likeSteps(): number {
    return firstOf(this.#dueSteps, this.#options.running.length) - this.#step;
  }

  /** How many steps end, the planned one first, before one of which anything may be told. They all take all sequences. */
  untoldSteps(): number {
    return firstOf(this.#toldSteps, this.#options.running.length) - this.#step;
  }

  /** A step has ended that needed no attention, or has had it. */
  passed(): void {
    this.#step++;
  }

  /** Whether the end of the running step needs attention for a sequence. */
  isDue(at: number): boolean {
    return this.#dueSteps[at]! <= this.#step;
  }

  /** Whether a sequence needs attention in the planning of the next step. */
  isUnplanned(at: number): boolean {
    return this.#dueSteps[at]! < this.#step;
  }

  /** Lets the end of the running step need attention for a sequence. */
  wake(at: number): void {
    this.#dueSteps[at] = this.#step;
  }

  /** Writes into a sequence what it is before the running step ends. */
  write(at: number): Sequence<Seat, Chain> {
    const sequence = this.#options.running[at]!;
    const steps = this.#step - this.#writtenSteps[at]!;
    sequence.knownTokens += steps;
    sequence.computedTokens += steps;
    this.#writtenSteps[at] = this.#step;
    return sequence;
  }

  /** A sequence goes on after the running step, of which it knows, at a place at or before its own. */
  keep(at: number, isWritten: boolean, place: number): void {
    this.#writtenSteps[place] = isWritten ? this.#step + 1 : this.#writtenSteps[at]!;
    this.#dueSteps[place] = this.#dueSteps[at]!;
    this.#toldSteps[place] = this.#toldSteps[at]!;
  }

  /** A sequence of which everything is written has been planned. */
  planned(at: number): void {
    const { running, cache, quietTokens } = this.#options;
    const sequence = running[at]!;
    const { seat, computedTokens, knownTokens, totalTokens } = sequence;
    const untilBlock = cache.idleUpTo(seat) - computedTokens - 1;
    const untilTold = Math.min(totalTokens - knownTokens - 1, quietTokens(knownTokens));
    sequence.stepTokens = 1;
    this.#writtenSteps[at] = this.#step;
    this.#dueSteps[at] = this.#step + Math.min(untilTold, untilBlock);
    // What is entered in the planning of a step is told of at its end.
    this.#toldSteps[at] = this.#step + Math.min(untilTold, cache.entersNext(seat) ? untilBlock + 1 : untilBlock);
  }

  /**
   * Writes everything into the sequences.
   *
   * @param inStep whether a step runs, for which all of them are planned
   */
  end(inStep: boolean): void {
    if (!this.#isOn) return;
    const { length } = this.#options.running;
    for (let at = 0; at < length; at++) this.write(at).stepTokens = inStep ? 1 : 0;
    this.#isOn = false;
  }
}

function firstOf(steps: Float64Array, count: number): number {
  let first = Number.POSITIVE_INFINITY;
  for (let at = 0; at < count; at++) if (steps[at]! < first) first = steps[at]!;
  return first;
}
