import { type Accounting, createAccounting } from "./accounting.ts";
import type { EngineForm } from "./engine-form.ts";
import type { KvCache } from "./kv-cache.ts";
import { Scheduler } from "./scheduler.ts";
import { createSequence, isDecode, type RequestChain, reportOf, type Sequence } from "./sequence.ts";
import { createStepWork, measureStep, stepDurationMs } from "./step-timing.ts";
import type { EngineParameters, EngineStats, FinishReason } from "./types.ts";
import { createWaitingQueue, type WaitingQueue } from "./waiting-queue.ts";

interface EngineLoopOptions<Id, Request extends { readonly id: Id }, Chain extends RequestChain<Id>, Seat> {
  readonly parameters: EngineParameters;
  readonly form: EngineForm<Id, Request, Chain>;
  readonly cache: KvCache<Seat, Chain>;
}

/** Requests that an engine holds at most, waiting and running. */
export const maxHeldRequests = 65_536;

/**
 * Drives one engine: time passes from step to step, requests come and go in between.
 *
 * Steps that are like the one before and that nobody is told of are passed over: they take constant time each, and what
 * they did is entered with the sequences when one comes that is different. They may run late, when time has come to the
 * end of the last of them, or when somebody asks or acts before.
 */
export class EngineLoop<Id, Request extends { readonly id: Id }, Chain extends RequestChain<Id>, Seat> {
  readonly parameters: EngineParameters;
  readonly #options: EngineLoopOptions<Id, Request, Chain, Seat>;
  /** SGLang publishes events between steps, too, and refuses to flush its cache while requests wait. */
  readonly #isSglang: boolean;
  readonly #accounting: Accounting = createAccounting();
  readonly #waiting: WaitingQueue<Sequence<Seat, Chain>> = createWaitingQueue();
  readonly #scheduler: Scheduler<Seat, Chain>;
  readonly #held = new Map<Id, Sequence<Seat, Chain>>();
  #reachedMs = Number.NEGATIVE_INFINITY;
  /** When the running step ends; undefined while the engine rests. */
  #stepEndMs: number | undefined;
  /** When a resting engine may start on what waits. */
  #startMs = 0;
  /** Whether observers are being told the results of a step. */
  #ending = false;
  /** What the running step computes. */
  readonly #work = createStepWork();
  /** Steps like the running one that may follow it. */
  #likeSteps = 0;
  /** Whether the running step, and maybe some after it, ends without anything being told. */
  #isUntold = false;
  /** When the first step ends of which something may be told; undefined when not known yet. */
  #toldMs: number | undefined;

  constructor(options: EngineLoopOptions<Id, Request, Chain, Seat>) {
    const { parameters, cache, form } = options;
    this.parameters = parameters;
    this.#options = options;
    this.#isSglang = parameters.flavour === "sglang";
    this.#scheduler = new Scheduler({
      ...{ parameters, cache, waiting: this.#waiting, accounting: this.#accounting },
      quietTokens: form.quietTokens,
    });
  }

  submit(request: Request, timeMs: number): void {
    const { id } = request;
    const { form, cache } = this.#options;
    form.check(request);
    this.#runBefore(timeMs);
    if (this.#held.has(id)) throw new RangeError(`request ${id} is in the engine already`);
    if (this.#held.size >= maxHeldRequests)
      throw new RangeError(`the engine holds ${maxHeldRequests} requests already`);
    const chain = form.open(request);
    if (this.#nextMs() === undefined) this.#startMs = timeMs;
    if (!this.#ending) this.#stopPassing();
    const sequence = createSequence(chain, cache.open(chain), timeMs);
    this.#held.set(id, sequence);
    this.#waiting.append(sequence);
  }

  abort(requestId: Id, timeMs: number): void {
    this.#runBefore(timeMs);
    const sequence = this.#held.get(requestId);
    if (!sequence) return;
    if (sequence.place === "running") {
      const { decoding, running } = this.#scheduler;
      sequence.abortWanted = true;
      if (this.#ending && decoding.isOn) decoding.wake(running.indexOf(sequence));
      else this.#stopPassing();
      return;
    }
    sequence.place = "gone";
    this.#waiting.drop(sequence);
    this.#finish(sequence, timeMs, "aborted");
  }

  advanceTo(timeMs: number): void {
    this.#runBefore(timeMs);
    if (this.#ending) return;
    for (let at = this.#nextMs(); at !== undefined && at <= timeMs; at = this.#nextMs()) this.#handleNext();
  }

  nextEventMs(): number | undefined {
    if (!this.#isUntold) return this.#nextMs();
    this.#toldMs ??= this.#endOfUntoldSteps();
    return this.#toldMs;
  }

  resetPrefixCache(timeMs: number): boolean {
    this.#runBefore(timeMs);
    if (this.#isSglang && this.#held.size > 0) return false;
    if (!this.#options.cache.reset()) return false;
    if (this.#isSglang) this.#options.form.publish(timeMs);
    return true;
  }

  stats(): EngineStats {
    const { cache, parameters } = this.#options;
    const freeBlocks = cache.freeBlocks();
    return {
      running: this.#scheduler.running.length,
      waiting: this.#waiting.size(),
      kvUse: (parameters.blockCount - freeBlocks) / parameters.blockCount,
      cachedBlocks: cache.cachedBlocks(),
      freeBlocks,
      ...this.#accounting,
    };
  }

  /** Handles what happens before `timeMs`, and lets time reach it. */
  #runBefore(timeMs: number): void {
    if (!(timeMs >= this.#reachedMs)) throw new RangeError(`time ${timeMs} ms lies before ${this.#reachedMs} ms`);
    if (this.#ending) {
      if (timeMs > this.#reachedMs) throw new RangeError("an observer cannot act in the future");
      return;
    }
    // What SGLang says when it starts.
    if (this.#isSglang && this.#reachedMs === Number.NEGATIVE_INFINITY) this.#options.form.publish(timeMs);
    for (let at = this.#nextMs(); at !== undefined && at < timeMs; at = this.#nextMs()) this.#handleNext();
    this.#reachedMs = timeMs;
  }

  /** When the next step ends or begins. */
  #nextMs(): number | undefined {
    if (this.#stepEndMs !== undefined) return this.#stepEndMs;
    return this.#scheduler.running.length + this.#waiting.size() > 0 ? this.#startMs : undefined;
  }

  #handleNext(): void {
    if (this.#stepEndMs === undefined) this.#startStep(this.#startMs);
    else if (this.#likeSteps > 0) this.#passStep(this.#stepEndMs);
    else this.#endStep(this.#stepEndMs);
  }

  #startStep(nowMs: number): void {
    const { form } = this.#options;
    const scheduler = this.#scheduler;
    const { decoding } = scheduler;
    if (!decoding.isOn || !scheduler.planDecodes()) {
      scheduler.plan(nowMs);
      measureStep(scheduler.running, this.#work);
      if (this.#work.prefillTokens === 0 && form.nothingToPublish()) scheduler.beginDecoding();
    }
    this.#begin(nowMs);
    this.#isUntold = decoding.isOn && form.nothingToPublish();
    if (!this.#isUntold) return;
    this.#likeSteps = scheduler.likeSteps();
    this.#toldMs = undefined;
  }

  #begin(nowMs: number): void {
    const durationMs = stepDurationMs(this.#work, this.parameters);
    this.#stepEndMs = nowMs + durationMs;
    this.#accounting.steps++;
    this.#accounting.busyMs += durationMs;
  }

  /** Ends a step and begins the next one, which is like it. */
  #passStep(timeMs: number): void {
    const { decodes } = this.#work;
    this.#reachedMs = timeMs;
    this.#likeSteps--;
    this.#scheduler.decoding.passed();
    this.#accounting.generatedTokens += decodes;
    this.#work.decodeContext += decodes;
    this.#scheduler.planAgain();
    this.#begin(timeMs);
  }

  /** The sum is taken step by step: any other way of adding would round differently. */
  #endOfUntoldSteps(): number {
    const steps = this.#scheduler.untoldSteps();
    const work = { ...this.#work };
    let endMs = this.#stepEndMs!;
    for (let step = 0; step < steps; step++) {
      work.decodeContext += work.decodes;
      endMs += stepDurationMs(work, this.parameters);
    }
    return endMs;
  }

  /** Lets the running step end as any other. */
  #stopPassing(): void {
    this.#likeSteps = 0;
    this.#isUntold = false;
    this.#scheduler.decoding.end(this.#stepEndMs !== undefined);
  }

  #endStep(timeMs: number): void {
    this.#reachedMs = timeMs;
    this.#ending = true;
    if (this.#scheduler.decoding.isOn) this.#endDecodes(timeMs);
    else this.#endAny(timeMs);
    this.#options.form.publish(timeMs);
    this.#ending = false;
    this.#stepEndMs = undefined;
    this.#isUntold = false;
    this.#startMs = timeMs;
  }

  #endAny(timeMs: number): void {
    const { running } = this.#scheduler;
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
    const { running, decoding } = this.#scheduler;
    const work = this.#work;
    work.decodeContext += work.decodes;
    let kept = 0;
    for (let at = 0; at < running.length; at++) {
      const isDue = decoding.isDue(at);
      const sequence = isDue ? decoding.write(at) : running[at]!;
      if (!isDue) this.#accounting.generatedTokens++;
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
      this.#finish(sequence, timeMs, "aborted");
      return false;
    }
    const generates = sequence.computedTokens === sequence.knownTokens;
    const last = generates && sequence.knownTokens + 1 === sequence.totalTokens;
    if (last) cache.release(sequence.seat, sequence.computedTokens, true);
    else if (!decoded) cache.computed(sequence.seat, sequence.computedTokens);
    if (generates) this.#generate(sequence, timeMs);
    if (last) this.#finish(sequence, timeMs, "length");
    return !last;
  }

  #generate(sequence: Sequence<Seat, Chain>, timeMs: number): void {
    const index = sequence.knownTokens - sequence.promptTokens;
    sequence.knownTokens++;
    this.#accounting.generatedTokens++;
    if (index === 0) {
      sequence.firstTokenMs = timeMs;
      this.#accounting.promptTokens += sequence.promptTokens;
    }
    this.#options.form.generated(sequence.chain, index, timeMs);
  }

  #finish(sequence: Sequence<Seat, Chain>, timeMs: number, reason: FinishReason): void {
    sequence.place = "gone";
    this.#held.delete(sequence.chain.id);
    this.#accounting.finished++;
    this.#options.form.finished(sequence.chain, reportOf<Id>(sequence, timeMs, reason));
  }
}
