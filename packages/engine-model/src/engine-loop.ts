import { type Accounting, createAccounting } from "./accounting.ts";
import { checkRequest } from "./check-request.ts";
import type { EventLog } from "./event-log.ts";
import type { KvCache } from "./kv-cache.ts";
import { Scheduler } from "./scheduler.ts";
import { createSequence, isDecode, reportOf, type Sequence } from "./sequence.ts";
import { stepDurationMs } from "./step-timing.ts";
import { createTokenChain } from "./token-chain.ts";
import type { Engine, EngineObserver, EngineParameters, EngineRequest, EngineStats, FinishReason } from "./types.ts";
import { createWaitingQueue, type WaitingQueue } from "./waiting-queue.ts";

interface EngineLoopOptions<Seat> {
  readonly parameters: EngineParameters;
  readonly hashSeed: number;
  readonly observer: EngineObserver;
  readonly cache: KvCache<Seat>;
  readonly events: EventLog;
}

/** Requests that an engine holds at most, waiting and running. */
export const maxHeldRequests = 65_536;

/** Drives one engine: time passes from step to step, requests come and go in between. */
export class EngineLoop<Seat> implements Engine {
  readonly parameters: EngineParameters;
  readonly #options: EngineLoopOptions<Seat>;
  /** SGLang publishes events between steps, too, and refuses to flush its cache while requests wait. */
  readonly #isSglang: boolean;
  readonly #accounting: Accounting = createAccounting();
  readonly #waiting: WaitingQueue<Seat> = createWaitingQueue();
  readonly #scheduler: Scheduler<Seat>;
  readonly #held = new Map<string, Sequence<Seat>>();
  #reachedMs = Number.NEGATIVE_INFINITY;
  /** When the running step ends; undefined while the engine rests. */
  #stepEndMs: number | undefined;
  /** When a resting engine may start on what waits. */
  #startMs = 0;
  /** Whether observers are being told the results of a step. */
  #ending = false;

  constructor(options: EngineLoopOptions<Seat>) {
    const { parameters, cache } = options;
    this.parameters = parameters;
    this.#options = options;
    this.#isSglang = parameters.flavour === "sglang";
    this.#scheduler = new Scheduler({ parameters, cache, waiting: this.#waiting, accounting: this.#accounting });
  }

  submit(request: EngineRequest, timeMs: number): void {
    const { id, promptTokens, outputTokens, adapter, cacheSalt } = request;
    const { hashSeed, cache } = this.#options;
    const { blockSize } = this.parameters;
    checkRequest(request, this.parameters);
    this.#runBefore(timeMs);
    if (this.#held.has(id)) throw new RangeError(`request ${id} is in the engine already`);
    if (this.#held.size >= maxHeldRequests)
      throw new RangeError(`the engine holds ${maxHeldRequests} requests already`);
    const chain = createTokenChain({ hashSeed, blockSize, promptTokens, outputTokens, adapter, cacheSalt });
    if (this.nextEventMs() === undefined) this.#startMs = timeMs;
    const sequence = createSequence(request, timeMs, chain, cache.open(chain));
    this.#held.set(id, sequence);
    this.#waiting.append(sequence);
  }

  abort(requestId: string, timeMs: number): void {
    this.#runBefore(timeMs);
    const sequence = this.#held.get(requestId);
    if (!sequence) return;
    if (sequence.place === "running") {
      sequence.abortWanted = true;
      return;
    }
    this.#waiting.drop(sequence);
    this.#finish(sequence, timeMs, "aborted");
  }

  advanceTo(timeMs: number): void {
    this.#runBefore(timeMs);
    if (this.#ending) return;
    for (let at = this.nextEventMs(); at !== undefined && at <= timeMs; at = this.nextEventMs()) this.#handleNext();
  }

  nextEventMs(): number | undefined {
    if (this.#stepEndMs !== undefined) return this.#stepEndMs;
    return this.#scheduler.running.length + this.#waiting.size() > 0 ? this.#startMs : undefined;
  }

  resetPrefixCache(timeMs: number): boolean {
    this.#runBefore(timeMs);
    if (this.#isSglang && this.#held.size > 0) return false;
    if (!this.#options.cache.reset()) return false;
    if (this.#isSglang) this.#publish(timeMs);
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
    if (this.#isSglang && this.#reachedMs === Number.NEGATIVE_INFINITY) this.#publish(timeMs);
    for (let at = this.nextEventMs(); at !== undefined && at < timeMs; at = this.nextEventMs()) this.#handleNext();
    this.#reachedMs = timeMs;
  }

  #handleNext(): void {
    if (this.#stepEndMs === undefined) this.#startStep(this.#startMs);
    else this.#endStep(this.#stepEndMs);
  }

  #startStep(nowMs: number): void {
    this.#scheduler.plan(nowMs);
    const durationMs = stepDurationMs(this.#scheduler.running, this.parameters);
    this.#stepEndMs = nowMs + durationMs;
    this.#accounting.steps++;
    this.#accounting.busyMs += durationMs;
  }

  #endStep(timeMs: number): void {
    const { running } = this.#scheduler;
    this.#reachedMs = timeMs;
    this.#ending = true;
    let kept = 0;
    for (let at = 0; at < running.length; at++) {
      const sequence = running[at]!;
      const takesPart = sequence.stepTokens > 0 || sequence.abortWanted;
      if (!takesPart || this.#advance(sequence, timeMs)) running[kept++] = sequence;
    }
    running.length = kept;
    this.#publish(timeMs);
    this.#ending = false;
    this.#stepEndMs = undefined;
    this.#startMs = timeMs;
  }

  /** Takes the results of the step for one sequence. Returns whether it goes on. */
  #advance(sequence: Sequence<Seat>, timeMs: number): boolean {
    const { cache } = this.#options;
    const decoded = isDecode(sequence);
    sequence.computedTokens += sequence.stepTokens;
    sequence.stepTokens = 0;
    if (sequence.abortWanted) {
      cache.release(sequence.seat, sequence.computedTokens, sequence.knownTokens > sequence.chain.promptTokens);
      this.#finish(sequence, timeMs, "aborted");
      return false;
    }
    const generates = sequence.computedTokens === sequence.knownTokens;
    const last = generates && sequence.knownTokens + 1 === sequence.chain.tokens.length;
    if (last) cache.release(sequence.seat, sequence.computedTokens, true);
    else if (!decoded) cache.computed(sequence.seat, sequence.computedTokens);
    if (generates) this.#generate(sequence, timeMs);
    if (last) this.#finish(sequence, timeMs, "length");
    return !last;
  }

  #generate(sequence: Sequence<Seat>, timeMs: number): void {
    const { request, chain } = sequence;
    const index = sequence.knownTokens - chain.promptTokens;
    const token = request.outputToken(index);
    chain.tokens[sequence.knownTokens++] = token;
    this.#accounting.generatedTokens++;
    if (index === 0) {
      sequence.firstTokenMs = timeMs;
      this.#accounting.promptTokens += chain.promptTokens;
    }
    this.#options.observer.token?.(request.id, index, token, timeMs);
  }

  #finish(sequence: Sequence<Seat>, timeMs: number, reason: FinishReason): void {
    sequence.place = "gone";
    this.#held.delete(sequence.request.id);
    this.#accounting.finished++;
    this.#options.observer.finished?.(reportOf(sequence, timeMs, reason));
  }

  #publish(timeMs: number): void {
    const { events, observer } = this.#options;
    const taken = events.take();
    if (taken) observer.events?.(taken, timeMs);
  }
}
