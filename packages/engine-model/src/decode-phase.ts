import type { KvCache } from "./kv-cache.ts";
import { isDecode, type Sequence } from "./sequence.ts";

interface DecodePhaseOptions<Allocation, Chain> {
  /** The batch, in order of admission. */
  readonly running: readonly Sequence<Allocation, Chain>[];
  readonly cache: Pick<KvCache<Allocation, never>, "idleUpTo" | "entersNext">;
  /** How many tokens from a position on need no report. */
  readonly quietTokens: (knownTokens: number) => number;
}

const initialCapacity = 16;

/**
 * Steps in which every running sequence decodes and the queue is empty. Their effect on a sequence is known ahead: each
 * sequence has a due step, at which its output ends or is reported, or after which it needs another block. Until its due
 * step a sequence is not updated, so its fields lag behind by the steps since.
 *
 * Sequences are identified by their index in the batch.
 */
export class DecodePhase<Allocation, Chain> {
  readonly #options: DecodePhaseOptions<Allocation, Chain>;
  #isOn = false;
  /** Steps that have ended since the phase began. */
  #step = 0;
  /** By sequence: the step up to which its fields are current. */
  #writtenSteps = new Float64Array(initialCapacity);
  /** By sequence: its due step. Once that is over, the sequence needs planning. */
  #dueSteps = new Float64Array(initialCapacity);
  /** By sequence: the step whose end may be reported. */
  #reportSteps = new Float64Array(initialCapacity);

  constructor(options: DecodePhaseOptions<Allocation, Chain>) {
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
      this.#reportSteps = new Float64Array(2 * running.length);
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

  /** How many steps end, the planned one first, before one that may be reported. All of them decode every sequence. */
  unreportedSteps(): number {
    return firstOf(this.#reportSteps, this.#options.running.length) - this.#step;
  }

  /** A step has ended, and its due sequences were updated. */
  passed(): void {
    this.#step++;
  }

  /** Whether a sequence is due at the end of the running step. */
  isDue(at: number): boolean {
    return this.#dueSteps[at]! <= this.#step;
  }

  /** Whether a sequence needs planning for the next step. */
  isUnplanned(at: number): boolean {
    return this.#dueSteps[at]! < this.#step;
  }

  /** Makes a sequence due at the end of the running step. */
  wake(at: number): void {
    this.#dueSteps[at] = this.#step;
  }

  /** Brings the fields of a sequence up to date, to the start of the running step. */
  write(at: number): Sequence<Allocation, Chain> {
    const sequence = this.#options.running[at]!;
    const steps = this.#step - this.#writtenSteps[at]!;
    sequence.knownTokens += steps;
    sequence.computedTokens += steps;
    this.#writtenSteps[at] = this.#step;
    return sequence;
  }

  /** A sequence continues after the running step, at an index at or before its own. */
  keep(at: number, isWritten: boolean, to: number): void {
    this.#writtenSteps[to] = isWritten ? this.#step + 1 : this.#writtenSteps[at]!;
    this.#dueSteps[to] = this.#dueSteps[at]!;
    this.#reportSteps[to] = this.#reportSteps[at]!;
  }

  /** A sequence that is up to date was planned. */
  planned(at: number): void {
    const { running, cache, quietTokens } = this.#options;
    const sequence = running[at]!;
    const { allocation, computedTokens, knownTokens, totalTokens } = sequence;
    const untilBlock = cache.idleUpTo(allocation) - computedTokens - 1;
    const untilReport = Math.min(totalTokens - knownTokens - 1, quietTokens(knownTokens));
    sequence.stepTokens = 1;
    this.#writtenSteps[at] = this.#step;
    this.#dueSteps[at] = this.#step + Math.min(untilReport, untilBlock);
    // A block that is indexed in the planning of a step is reported at its end.
    this.#reportSteps[at] =
      this.#step + Math.min(untilReport, cache.entersNext(allocation) ? untilBlock + 1 : untilBlock);
  }

  /**
   * Brings all sequences up to date and ends the phase.
   *
   * @param inStep whether a step is running, for which all of them are planned
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
