import { BlockCache } from "./block-cache.ts";
import { type Accounting, adapterUse, createAccounting, engineStats } from "./engine-stats.ts";
import type { CacheLog, KvCache } from "./kv-cache.ts";
import { createOffloadTier, type OffloadTier } from "./offload-tier.ts";
import { RadixCache } from "./radix-cache.ts";
import { Scheduler } from "./scheduler.ts";
import { createSequence, type RequestChain, type Sequence } from "./sequence.ts";
import { StepEnd } from "./step-end.ts";
import {
  createStepWork,
  endOfDecodesMs,
  measureStep,
  type StepTimes,
  slowedSteps,
  stepDurationMs,
} from "./step-timing.ts";
import type { AdapterUse, Engine, EngineParameters, EngineStats, RequestReport } from "./types.ts";
import { createWaitingQueue, type WaitingQueue } from "./waiting-queue.ts";

interface EngineLoopOptions<Id, Request extends { readonly id: Id }, Chain extends RequestChain<Id>, Seat> {
  readonly parameters: EngineParameters;
  readonly form: EngineForm<Id, Request, Chain>;
  readonly cache: KvCache<Seat, Chain>;
  /** CPU memory behind it. */
  readonly offload: OffloadTier | undefined;
}

/** Requests that an engine holds at most, waiting, running and pinned. */
export const maxHeldRequests = 65_536;

/**
 * Drives one engine: time passes from step to step, requests come and go in between.
 *
 * Steps that are like the one before and that nobody is told of are passed over: they take constant time each, and what
 * they did is entered with the sequences when one comes that is different. They may run late, when time has come to the
 * end of the last of them, or when somebody asks or acts before.
 */
class EngineLoop<Id, Request extends { readonly id: Id }, Chain extends RequestChain<Id>, Seat> {
  readonly parameters: EngineParameters;
  readonly #options: EngineLoopOptions<Id, Request, Chain, Seat>;
  /** SGLang publishes events between steps, too, and refuses to flush its cache while requests wait. */
  readonly #isSglang: boolean;
  readonly #accounting: Accounting = createAccounting();
  readonly #waiting: WaitingQueue<Sequence<Seat, Chain>> = createWaitingQueue();
  readonly #scheduler: Scheduler<Seat, Chain>;
  /** What steps come to, and the requests that are in the engine. */
  readonly #stepEnd: StepEnd<Id, Chain, Seat>;
  /** Of the steps that are to begin. */
  #times: StepTimes;
  #reachedMs = Number.NEGATIVE_INFINITY;
  /** When the running step ends; undefined while the engine rests. */
  #stepEndMs: number | undefined;
  /** When a resting engine may start on what waits. */
  #startMs = 0;
  /** Whether observers are being told the results of a step. */
  #ending = false;
  /** Whether those that wait find no room, nothing runs, and nothing has changed since that was found out. */
  #isStuck = false;
  /** What the running step computes. */
  readonly #work = createStepWork();
  /** Steps like the running one that may follow it. */
  #likeSteps = 0;
  /** Whether the running step, and maybe some after it, ends without anything being told. */
  #isUntold = false;
  /** When the first step ends of which something may be told; undefined when not known yet. */
  #toldMs: number | undefined;

  constructor(options: EngineLoopOptions<Id, Request, Chain, Seat>) {
    const { parameters, cache, form, offload } = options;
    this.parameters = parameters;
    this.#times = parameters;
    this.#options = options;
    const [accounting, work] = [this.#accounting, this.#work];
    this.#isSglang = parameters.flavour === "sglang";
    this.#scheduler = new Scheduler({
      ...{ parameters, cache, offload, waiting: this.#waiting, accounting: this.#accounting },
      quietTokens: form.quietTokens,
    });
    this.#stepEnd = new StepEnd({ form, cache, accounting, work, scheduler: this.#scheduler });
  }

  submit(request: Request, timeMs: number): void {
    const { id } = request;
    const { form, cache } = this.#options;
    form.check(request);
    this.#runBefore(timeMs);
    const { held, pinned } = this.#stepEnd;
    if (held.has(id) || pinned.has(id)) throw new RangeError(`request ${id} is in the engine already`);
    if (held.size + pinned.size >= maxHeldRequests)
      throw new RangeError(`the engine holds ${maxHeldRequests} requests already`);
    const chain = form.open(request);
    this.#wake(timeMs);
    const sequence = createSequence(chain, cache.open(chain), timeMs);
    held.set(id, sequence);
    this.#waiting.append(sequence);
  }

  abort(requestId: Id, timeMs: number): void {
    this.#runBefore(timeMs);
    const sequence = this.#stepEnd.held.get(requestId);
    if (!sequence) return;
    const { decoding, running, importing } = this.#scheduler;
    if (sequence.place === "running") {
      sequence.abortWanted = true;
      if (this.#ending && decoding.isOn) decoding.wake(running.indexOf(sequence));
      else this.#stopPassing();
      return;
    }
    const isImporting = sequence.place === "importing";
    sequence.place = "gone";
    if (isImporting) {
      importing.drop(sequence);
      this.#scheduler.left(sequence);
      this.#options.cache.release(sequence.seat, sequence.computedTokens, false);
    } else {
      this.#waiting.drop(sequence);
    }
    this.#wake(timeMs);
    this.#stepEnd.finish(sequence, timeMs, "aborted");
  }

  release(requestId: Id, timeMs: number): boolean {
    this.#runBefore(timeMs);
    if (!this.#stepEnd.release(requestId)) return false;
    this.#wake(timeMs);
    return true;
  }

  cachedTokens(request: Request, timeMs: number): number {
    const { form, cache, offload } = this.#options;
    form.check(request);
    this.#runBefore(timeMs);
    const chain = form.open(request);
    const limit = chain.promptTokens - 1;
    const matched = cache.match(cache.open(chain), limit);
    return offload?.reach(chain, matched, limit) ?? matched;
  }

  advanceTo(timeMs: number): void {
    this.#runBefore(timeMs);
    if (this.#ending) return;
    for (let at = this.#nextMs(); at !== undefined && at <= timeMs; at = this.#nextMs()) this.#handleNext();
  }

  nextEventMs(): number | undefined {
    if (!this.#isUntold) return this.#nextMs();
    this.#toldMs ??= endOfDecodesMs(this.#stepEndMs!, this.#scheduler.untoldSteps(), this.#work, this.#times);
    return this.#toldMs;
  }

  resetPrefixCache(timeMs: number): boolean {
    this.#runBefore(timeMs);
    if (this.#isSglang && this.#stepEnd.held.size > 0) return false;
    if (!this.#options.cache.reset()) return false;
    if (this.#isSglang) this.#options.form.publish(timeMs);
    return true;
  }

  setSlowdown(factor: number, timeMs: number): void {
    const times = slowedSteps(this.parameters, factor);
    this.#runBefore(timeMs);
    this.#times = times;
    // Steps that are passed over were to take as long as the running one.
    if (!this.#ending) this.#stopPassing();
  }

  stats(): EngineStats {
    const { cache, offload, parameters } = this.#options;
    const running = this.#scheduler.running.length;
    const requests = {
      running,
      waiting: this.#stepEnd.held.size - running,
      importing: this.#scheduler.importing.size(),
      pinned: this.#stepEnd.pinned.size,
    };
    const cpuBlocks = offload?.blocks() ?? 0;
    return engineStats({ ...requests, cpuBlocks }, cache, parameters, this.#accounting);
  }

  adapterUse(): AdapterUse {
    return adapterUse(this.#stepEnd.held.values());
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
    const { running, importing } = this.#scheduler;
    if (running.length > 0 || (this.#waiting.size() > 0 && !this.#isStuck)) return this.#startMs;
    const readyMs = importing.nextMs();
    return readyMs === undefined ? undefined : Math.max(readyMs, this.#startMs);
  }

  /** Something came or went: an engine at rest looks again for what it can do, from `timeMs` on. */
  #wake(timeMs: number): void {
    if (this.#stepEndMs === undefined) this.#startMs = Math.max(this.#startMs, timeMs);
    this.#isStuck = false;
    if (!this.#ending) this.#stopPassing();
  }

  #handleNext(): void {
    if (this.#stepEndMs === undefined) this.#startStep(this.#nextMs()!);
    else if (this.#likeSteps > 0) this.#passStep(this.#stepEndMs);
    else this.#endStep(this.#stepEndMs);
  }

  #startStep(nowMs: number): void {
    const { form } = this.#options;
    const scheduler = this.#scheduler;
    const { decoding } = scheduler;
    if (!decoding.isOn || !scheduler.planDecodes()) {
      this.#startMs = nowMs;
      this.#isStuck = !scheduler.plan(nowMs);
      if (this.#isStuck) {
        // Room may have been made for those whose blocks are on their way.
        this.#reachedMs = nowMs;
        form.publish(nowMs);
        return;
      }
      this.#tellArrivals(nowMs);
      measureStep(scheduler.running, this.#work);
      this.#work.adapterLoads = scheduler.takeAdapterLoads();
      if (this.#work.prefillTokens === 0 && form.nothingToPublish()) scheduler.beginDecoding();
    }
    this.#begin(nowMs);
    this.#isUntold = decoding.isOn && form.nothingToPublish();
    if (!this.#isUntold) return;
    this.#likeSteps = scheduler.likeSteps();
    this.#toldMs = undefined;
  }

  /** Tells whose tokens from outside are here. Whatever is handed in meanwhile waits for the next step. */
  #tellArrivals(nowMs: number): void {
    const { arrived } = this.#scheduler;
    if (arrived.length === 0) return;
    this.#reachedMs = nowMs;
    this.#ending = true;
    for (const { chain, importedTokens } of arrived) this.#options.form.imported(chain, importedTokens, nowMs);
    arrived.length = 0;
    this.#ending = false;
  }

  #begin(nowMs: number): void {
    const durationMs = stepDurationMs(this.#work, this.#times);
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

  /** Lets the running step end as any other. */
  #stopPassing(): void {
    this.#likeSteps = 0;
    this.#isUntold = false;
    this.#scheduler.decoding.end(this.#stepEndMs !== undefined);
  }

  #endStep(timeMs: number): void {
    this.#reachedMs = timeMs;
    this.#ending = true;
    this.#stepEnd.end(timeMs);
    this.#options.form.publish(timeMs);
    this.#ending = false;
    this.#stepEndMs = undefined;
    this.#isUntold = false;
    this.#startMs = timeMs;
  }
}

/** An engine for one form of requests. */
export interface LoopEngine<Id, Request> extends Omit<Engine, "submit" | "abort" | "release" | "cachedTokens"> {
  submit(request: Request, timeMs: number): void;
  abort(requestId: Id, timeMs: number): void;
  release(requestId: Id, timeMs: number): boolean;
  cachedTokens(request: Request, timeMs: number): number;
}

/** The loop of an engine with the cache of its flavour, which tells `log` of its blocks. */
export function createLoop<Id, Request extends { readonly id: Id }, Chain extends RequestChain<Id>>(
  parameters: EngineParameters,
  form: EngineForm<Id, Request, Chain>,
  log: CacheLog<NoInfer<Chain>>,
): LoopEngine<Id, Request> {
  const { flavour, blockCount, blockSize, prefixCaching, freeOrder = "uncached-first" } = parameters;
  const { cpuBlocks = 0, cpuLoadMsPerBlock = 0 } = parameters;
  const offload =
    cpuBlocks > 0 && prefixCaching
      ? createOffloadTier({ capacity: cpuBlocks, blockSize, loadMsPerBlock: cpuLoadMsPerBlock, log })
      : undefined;
  if (flavour === "sglang") {
    const cache = new RadixCache({ blockCount, blockSize, prefixCaching, log, offload });
    return new EngineLoop({ parameters, form, cache, offload });
  }
  const cache = new BlockCache({ blockCount, blockSize, prefixCaching, freeOrder, log, offload });
  return new EngineLoop({ parameters, form, cache, offload });
}

/**
 * In what form requests come to an engine, with tokens or with hashes, and what its observer hears of them. The loop
 * knows nothing else of either.
 */
export interface EngineForm<Id, Request extends { readonly id: Id }, Chain extends RequestChain<Id>> {
  /** @throws RangeError when the engine could never serve the request */
  check(request: Request): void;
  open(request: Request): Chain;
  /** So many tokens that a request wanted from outside are here. */
  imported(chain: Chain, tokens: number, timeMs: number): void;
  /** A step gave the token at `index` of the output. */
  generated(chain: Chain, index: number, timeMs: number): void;
  /** How many tokens from position `knownTokens` on, none of them the first of an output, need not be told of. */
  quietTokens(knownTokens: number): number;
  finished(chain: Chain, report: Omit<RequestReport, "id"> & { readonly id: Id }): void;
  /** Whether `publish` would tell nothing. */
  nothingToPublish(): boolean;
  /** Tells of the blocks that came and went. */
  publish(timeMs: number): void;
}
