import type { EngineFrontend } from "./engine-loop.ts";
import type { Counters } from "./engine-stats.ts";
import type { KvCache } from "./kv-cache.ts";
import type { Scheduler } from "./scheduler.ts";
import { isDecode, type RequestChain, reportOf, type Sequence } from "./sequence.ts";
import type { StepWork } from "./step-timing.ts";
import type { FinishReason } from "./types.ts";

interface StepEndOptions<Id, Chain extends RequestChain<Id>, Allocation> {
  readonly frontend: Pick<EngineFrontend<Id, never, Chain>, "generated" | "finished">;
  readonly cache: KvCache<Allocation, Chain>;
  readonly scheduler: Scheduler<Allocation, Chain>;
  readonly counters: Counters;
  /** Work of the step that ends; in a decode phase, updated to that of the next one. */
  readonly work: StepWork;
}

/** Applies the results of a step: tokens, finished requests, freed blocks. */
export class StepEnd<Id, Chain extends RequestChain<Id>, Allocation> {
  /** Requests that wait or run. */
  readonly active = new Map<Id, Sequence<Allocation, Chain>>();
  /** Finished requests whose blocks stay pinned until they are released. */
  readonly pinned = new Map<Id, Sequence<Allocation, Chain>>();
  readonly #options: StepEndOptions<Id, Chain, Allocation>;

  constructor(options: StepEndOptions<Id, Chain, Allocation>) {
    this.#options = options;
  }

  /** Applies the results of the running step. */
  end(timeMs: number): void {
    if (this.#options.scheduler.decoding.isOn) this.#endDecodes(timeMs);
    else this.#endAny(timeMs);
  }

  /** Frees the blocks of a pinned request. Returns whether there was one. */
  release(id: Id): boolean {
    const sequence = this.pinned.get(id);
    if (!sequence) return false;
    this.pinned.delete(id);
    this.#options.cache.release(sequence.allocation, sequence.computedTokens, true);
    return true;
  }

  #endAny(timeMs: number): void {
    const { running } = this.#options.scheduler;
    let kept = 0;
    for (let at = 0; at < running.length; at++) {
      const sequence = running[at]!;
      const takesPart = sequence.stepTokens > 0 || sequence.abortWanted;
      if (!takesPart || this.#advance(sequence, timeMs)) running[kept++] = sequence;
    }
    running.length = kept;
  }

  /** Ends a step of a decode phase: updates the due sequences, and the work of the next such step. */
  #endDecodes(timeMs: number): void {
    const { running, decoding } = this.#options.scheduler;
    const work = this.#options.work;
    work.decodeContext += work.decodes;
    let kept = 0;
    for (let at = 0; at < running.length; at++) {
      const isDue = decoding.isDue(at);
      const sequence = isDue ? decoding.write(at) : running[at]!;
      if (!isDue) this.#options.counters.generatedTokens++;
      else if (!this.#advance(sequence, timeMs)) {
        work.decodeContext -= sequence.computedTokens + 1;
        continue;
      }
      if (isDue || kept < at) decoding.keep(at, isDue, kept);
      running[kept++] = sequence;
    }
    // Setting the length is slow, and rarely needed.
    if (kept < running.length) running.length = kept;
    work.decodes = kept;
    decoding.passed();
  }

  /** Applies the results of the step to one sequence. Returns whether it continues. */
  #advance(sequence: Sequence<Allocation, Chain>, timeMs: number): boolean {
    const { cache } = this.#options;
    const decoded = isDecode(sequence);
    sequence.computedTokens += sequence.stepTokens;
    sequence.stepTokens = 0;
    if (sequence.abortWanted) {
      cache.release(sequence.allocation, sequence.computedTokens, sequence.knownTokens > sequence.promptTokens);
      this.finish(sequence, timeMs, "aborted");
      return false;
    }
    const generates = sequence.computedTokens === sequence.knownTokens;
    const last = generates && sequence.knownTokens + 1 === sequence.totalTokens;
    const pins = last && sequence.chain.pinned;
    if (pins) this.pinned.set(sequence.chain.id, sequence);
    if (last && !pins) cache.release(sequence.allocation, sequence.computedTokens, true);
    else if (pins || !decoded) cache.computed(sequence.allocation, sequence.computedTokens);
    if (generates) this.#generate(sequence, timeMs);
    if (last) this.finish(sequence, timeMs, "length");
    return !last;
  }

  #generate(sequence: Sequence<Allocation, Chain>, timeMs: number): void {
    const index = sequence.knownTokens - sequence.promptTokens;
    sequence.knownTokens++;
    this.#options.counters.generatedTokens++;
    if (index === 0) {
      sequence.firstTokenMs = timeMs;
      this.#options.counters.promptTokens += sequence.promptTokens;
    }
    this.#options.frontend.generated(sequence.chain, index, timeMs);
  }

  /** Ends a request whose blocks are freed or pinned already. */
  finish(sequence: Sequence<Allocation, Chain>, timeMs: number, reason: FinishReason): void {
    if (sequence.state === "running") this.#options.scheduler.left(sequence);
    sequence.state = "done";
    this.active.delete(sequence.chain.id);
    this.#options.counters.finished++;
    this.#options.frontend.finished(sequence.chain, reportOf<Id>(sequence, timeMs, reason));
  }
}
