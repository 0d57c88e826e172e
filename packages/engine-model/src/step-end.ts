import type { EngineForm } from "./engine-loop.ts";
import type { Accounting } from "./engine-stats.ts";
import type { KvCache } from "./kv-cache.ts";
import type { Scheduler } from "./scheduler.ts";
import { isDecode, type RequestChain, reportOf, type Sequence } from "./sequence.ts";
import type { StepWork } from "./step-timing.ts";
import type { FinishReason } from "./types.ts";

interface StepEndOptions<Id, Chain extends RequestChain<Id>, Seat> {
  readonly form: Pick<EngineForm<Id, never, Chain>, "generated" | "finished">;
  readonly cache: KvCache<Seat, Chain>;
  readonly scheduler: Scheduler<Seat, Chain>;
  readonly accounting: Accounting;
  /** What the step that ends computes, and in a phase of decoding the next one. */
  readonly work: StepWork;
}

/** What the end of a step brings: tokens, ends of requests, blocks that are given back. */
export class StepEnd<Id, Chain extends RequestChain<Id>, Seat> {
  /** Requests that wait or run. */
  readonly held = new Map<Id, Sequence<Seat, Chain>>();
  /** Requests that are over, and whose blocks are held until they are released. */
  readonly pinned = new Map<Id, Sequence<Seat, Chain>>();
  readonly #options: StepEndOptions<Id, Chain, Seat>;

  constructor(options: StepEndOptions<Id, Chain, Seat>) {
    this.#options = options;
  }

  /** Enters the results of the running step. */
  end(timeMs: number): void {
    if (this.#options.scheduler.decoding.isOn) this.#endDecodes(timeMs);
    else this.#endAny(timeMs);
  }

  /** Gives back the blocks of a pinned request. Returns whether there was one. */
  release(id: Id): boolean {
    const sequence = this.pinned.get(id);
    if (!sequence) return false;
    this.pinned.delete(id);
    this.#options.cache.release(sequence.seat, sequence.computedTokens, true);
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

  /** Ends a step in which all decode, for those that need attention, and tells what the next such step computes. */
  #endDecodes(timeMs: number): void {
    const { running, decoding } = this.#options.scheduler;
    const work = this.#options.work;
    work.decodeContext += work.decodes;
    let kept = 0;
    for (let at = 0; at < running.length; at++) {
      const isDue = decoding.isDue(at);
      const sequence = isDue ? decoding.write(at) : running[at]!;
      if (!isDue) this.#options.accounting.generatedTokens++;
      else if (!this.#advance(sequence, timeMs)) {
        work.decodeContext -= sequence.computedTokens + 1;
        continue;
      }
      if (isDue || kept < at) decoding.keep(at, isDue, kept);
      running[kept++] = sequence;
    }
    // Setting it is slow, and hardly ever needed.
    if (kept < running.length) running.length = kept;
    work.decodes = kept;
    decoding.passed();
  }

  /** Takes the results of the step for one sequence. Returns whether it goes on. */
  #advance(sequence: Sequence<Seat, Chain>, timeMs: number): boolean {
    const { cache } = this.#options;
    const decoded = isDecode(sequence);
    sequence.computedTokens += sequence.stepTokens;
    sequence.stepTokens = 0;
    if (sequence.abortWanted) {
      cache.release(sequence.seat, sequence.computedTokens, sequence.knownTokens > sequence.promptTokens);
      this.finish(sequence, timeMs, "aborted");
      return false;
    }
    const generates = sequence.computedTokens === sequence.knownTokens;
    const last = generates && sequence.knownTokens + 1 === sequence.totalTokens;
    const pins = last && sequence.chain.pinned;
    if (pins) this.pinned.set(sequence.chain.id, sequence);
    if (last && !pins) cache.release(sequence.seat, sequence.computedTokens, true);
    else if (pins || !decoded) cache.computed(sequence.seat, sequence.computedTokens);
    if (generates) this.#generate(sequence, timeMs);
    if (last) this.finish(sequence, timeMs, "length");
    return !last;
  }

  #generate(sequence: Sequence<Seat, Chain>, timeMs: number): void {
    const index = sequence.knownTokens - sequence.promptTokens;
    sequence.knownTokens++;
    this.#options.accounting.generatedTokens++;
    if (index === 0) {
      sequence.firstTokenMs = timeMs;
      this.#options.accounting.promptTokens += sequence.promptTokens;
    }
    this.#options.form.generated(sequence.chain, index, timeMs);
  }

  /** A request is over. What it held is given back or pinned already. */
  finish(sequence: Sequence<Seat, Chain>, timeMs: number, reason: FinishReason): void {
    if (sequence.place === "running") this.#options.scheduler.left(sequence);
    sequence.place = "gone";
    this.held.delete(sequence.chain.id);
    this.#options.accounting.finished++;
    this.#options.form.finished(sequence.chain, reportOf<Id>(sequence, timeMs, reason));
  }
}
