import { BlockCache } from "./block-cache.ts";
import { adapterUse, type Counters, createCounters, engineStats } from "./engine-stats.ts";
import { HybridCache, partialGroupsOf } from "./hybrid-cache.ts";
import type { CacheLog, KvCache } from "./kv-cache.ts";
import type { KvHold, PullReceiver, TokenRange } from "./kv-pull.ts";
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
import type { AdapterUse, Engine, EngineParameters, EngineStats, HostWrites, RequestReport } from "./types.ts";
import { cpuWritesOf } from "./validation.ts";
import { createWaitingQueue, type WaitingQueue } from "./waiting-queue.ts";

interface EngineLoopOptions<Id, Request extends { readonly id: Id }, Chain extends RequestChain<Id>, Allocation> {
  readonly parameters: EngineParameters;
  readonly frontend: EngineFrontend<Id, Request, Chain>;
  readonly cache: KvCache<Allocation, Chain>;
  /** CPU memory behind vLLM's cache, which also pulls from other engines. */
  readonly offload: OffloadTier | undefined;
}

/** Maximum requests in one engine: waiting, running and pinned. */
export const maxEngineRequests = 65_536;

/**
 * Drives one engine: time passes from step to step, and requests arrive and finish in between.
 *
 * Steps that equal the previous one and report nothing are skipped. A skipped step takes constant time, and the
 * sequences are updated when a different step follows. Skipped steps may run late: when time reaches the end of the
 * last one, or before a caller reads or changes the engine.
 */
class EngineLoop<Id, Request extends { readonly id: Id }, Chain extends RequestChain<Id>, Allocation> {
  readonly parameters: EngineParameters;
  readonly #options: EngineLoopOptions<Id, Request, Chain, Allocation>;
  /** SGLang publishes events between steps, too, and refuses to flush its cache while requests wait. */
  readonly #isSglang: boolean;
  readonly #counters: Counters = createCounters();
  readonly #waiting: WaitingQueue<Sequence<Allocation, Chain>> = createWaitingQueue();
  readonly #scheduler: Scheduler<Allocation, Chain>;
  /** Applies the results of steps, and owns the requests in the engine. */
  readonly #stepEnd: StepEnd<Id, Chain, Allocation>;
  /** Step times from the next step on. */
  #times: StepTimes;
  #reachedMs = Number.NEGATIVE_INFINITY;
  /** When the running step ends; undefined while the engine is idle. */
  #stepEndMs: number | undefined;
  /** When an idle engine may start its next step. */
  #startMs = 0;
  /** Whether the results of a step are being reported. */
  #ending = false;
  /** Whether the last planning found no memory for the waiting requests while nothing ran, and nothing has changed since. */
  #isStuck = false;
  #isPaused = false;
  /** Work of the running step. */
  readonly #work = createStepWork();
  /** Number of steps equal to the running one that may follow it. */
  #likeSteps = 0;
  /** Whether the running step, and possibly more after it, ends without a report. */
  #isUnreported = false;
  /** When the first step with a report ends; undefined until computed. */
  #nextReportMs: number | undefined;

  constructor(options: EngineLoopOptions<Id, Request, Chain, Allocation>) {
    const { parameters, cache, frontend, offload } = options;
    this.parameters = parameters;
    this.#times = parameters;
    this.#options = options;
    const [counters, work] = [this.#counters, this.#work];
    this.#isSglang = parameters.flavour === "sglang";
    this.#scheduler = new Scheduler({
      ...{ parameters, cache, offload, waiting: this.#waiting, counters: this.#counters },
      quietTokens: frontend.quietTokens,
      receiverOf: (sequence) => this.#receiverOf(sequence),
    });
    this.#stepEnd = new StepEnd({ frontend, cache, counters, work, scheduler: this.#scheduler });
  }

  submit(request: Request, timeMs: number): void {
    const { id } = request;
    const { frontend, cache } = this.#options;
    frontend.check(request);
    this.#runBefore(timeMs);
    const { active, pinned } = this.#stepEnd;
    if (active.has(id) || pinned.has(id)) throw new RangeError(`request ${id} is already in the engine`);
    if (active.size + pinned.size >= maxEngineRequests)
      throw new RangeError(`the engine is at its limit of ${maxEngineRequests} requests`);
    const chain = frontend.open(request);
    this.#wake(timeMs);
    const sequence = createSequence(chain, cache.open(chain), timeMs);
    active.set(id, sequence);
    this.#waiting.append(sequence);
  }

  abort(requestId: Id, timeMs: number): void {
    this.#runBefore(timeMs);
    const sequence = this.#stepEnd.active.get(requestId);
    if (!sequence) return;
    const { decoding, running, importing } = this.#scheduler;
    if (sequence.state === "running") {
      sequence.abortWanted = true;
      if (this.#ending && decoding.isOn) decoding.wake(running.indexOf(sequence));
      else this.#stopSkipping();
      return;
    }
    const { state } = sequence;
    sequence.state = "done";
    if (state === "pulling") {
      this.#scheduler.abortPull(sequence, timeMs);
    } else if (state === "importing") {
      importing.drop(sequence);
      this.#scheduler.left(sequence);
      this.#options.cache.release(sequence.allocation, sequence.computedTokens, false);
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
    const { frontend, cache } = this.#options;
    frontend.check(request);
    this.#runBefore(timeMs);
    const chain = frontend.open(request);
    const allocation = cache.open(chain);
    return cache.reach(allocation, cache.match(allocation, chain.promptTokens - 1), chain.promptTokens);
  }

  hold(request: Request, { fromTokens, toTokens }: TokenRange, timeMs: number): KvHold | undefined {
    const { frontend, offload } = this.#options;
    this.#runBefore(timeMs);
    return offload?.hold(frontend.open(request), fromTokens, toTokens);
  }

  advanceTo(timeMs: number): void {
    this.#runBefore(timeMs);
    if (this.#ending) return;
    for (let at = this.#nextMs(); at !== undefined && at <= timeMs; at = this.#nextMs()) this.#handleNext();
  }

  nextEventMs(): number | undefined {
    if (!this.#isUnreported) return this.#nextMs();
    this.#nextReportMs ??= endOfDecodesMs(this.#stepEndMs!, this.#scheduler.unreportedSteps(), this.#work, this.#times);
    return this.#nextReportMs;
  }

  resetPrefixCache(timeMs: number): boolean {
    this.#runBefore(timeMs);
    if (this.#isSglang && this.#stepEnd.active.size > 0) return false;
    if (!this.#options.cache.reset()) return false;
    if (this.#isSglang) this.#options.frontend.publish(timeMs);
    return true;
  }

  pause(isPaused: boolean, timeMs: number): void {
    this.#runBefore(timeMs);
    this.#isPaused = isPaused;
    this.#wake(timeMs);
  }

  setSlowdown(factor: number, timeMs: number): void {
    const times = slowedSteps(this.parameters, factor);
    this.#runBefore(timeMs);
    this.#times = times;
    // Skipped steps were planned to take as long as the running one.
    if (!this.#ending) this.#stopSkipping();
  }

  stats(): EngineStats {
    const { cache, parameters } = this.#options;
    const running = this.#scheduler.running.length;
    const requests = {
      running,
      waiting: this.#stepEnd.active.size - running,
      importing: this.#scheduler.importing.size(),
      pulling: this.#scheduler.pulling.size,
      pinned: this.#stepEnd.pinned.size,
    };
    return engineStats(requests, cache, parameters, this.#counters);
  }

  adapterUse(): AdapterUse {
    return adapterUse(this.#stepEnd.active.values());
  }

  /** Its calls are late when this engine was advanced beyond them. */
  #receiverOf(sequence: Sequence<Allocation, Chain>): PullReceiver {
    const { blockSize } = this.parameters;
    return {
      found: (toTokens, timeMs) => {
        this.#runBefore(Math.max(timeMs, this.#reachedMs));
        const blocks = (toTokens - sequence.pullFromTokens) / blockSize;
        if (sequence.state !== "pulling") return;
        sequence.reservation = this.#options.offload?.reserve(blocks);
        sequence.pullToTokens = toTokens;
      },
      done: (toTokens, timeMs) => {
        const nowMs = Math.max(timeMs, this.#reachedMs);
        this.#runBefore(nowMs);
        if (sequence.state !== "pulling") return;
        this.#scheduler.pulled(sequence, toTokens);
        this.#wake(nowMs);
      },
    };
  }

  /** Handles all events before `timeMs`, and advances time to it. */
  #runBefore(timeMs: number): void {
    if (!(timeMs >= this.#reachedMs)) throw new RangeError(`time ${timeMs} ms is before ${this.#reachedMs} ms`);
    if (this.#ending) {
      if (timeMs > this.#reachedMs) throw new RangeError("an observer cannot act in the future");
      return;
    }
    // SGLang publishes a reset when it starts.
    if (this.#isSglang && this.#reachedMs === Number.NEGATIVE_INFINITY) this.#options.frontend.publish(timeMs);
    for (let at = this.#nextMs(); at !== undefined && at < timeMs; at = this.#nextMs()) this.#handleNext();
    this.#reachedMs = timeMs;
  }

  /** When the next step ends or begins. */
  #nextMs(): number | undefined {
    if (this.#stepEndMs !== undefined) return this.#stepEndMs;
    if (this.#isPaused) return undefined;
    const { running, importing } = this.#scheduler;
    if (running.length > 0 || (this.#waiting.size() > 0 && !this.#isStuck)) return this.#startMs;
    const readyMs = importing.nextMs();
    return readyMs === undefined ? undefined : Math.max(readyMs, this.#startMs);
  }

  /** The requests changed: an idle engine plans again, from `timeMs` on. */
  #wake(timeMs: number): void {
    if (this.#stepEndMs === undefined) this.#startMs = Math.max(this.#startMs, timeMs);
    this.#isStuck = false;
    if (!this.#ending) this.#stopSkipping();
  }

  #handleNext(): void {
    if (this.#stepEndMs === undefined) this.#startStep(this.#nextMs()!);
    else if (this.#likeSteps > 0) this.#skipStep(this.#stepEndMs);
    else this.#endStep(this.#stepEndMs);
  }

  #startStep(nowMs: number): void {
    const { frontend } = this.#options;
    const scheduler = this.#scheduler;
    const { decoding } = scheduler;
    if (!decoding.isOn || !scheduler.planDecodes()) {
      this.#startMs = nowMs;
      this.#isStuck = !scheduler.plan(nowMs);
      if (this.#isStuck) {
        // Blocks may have been evicted for imports.
        this.#reachedMs = nowMs;
        frontend.publish(nowMs);
        return;
      }
      this.#reportImports(nowMs);
      measureStep(scheduler.running, this.#work);
      this.#work.adapterLoads = scheduler.takeAdapterLoads();
      if (this.#work.prefillTokens === 0 && frontend.nothingToPublish()) scheduler.beginDecoding();
    }
    this.#begin(nowMs);
    this.#isUnreported = decoding.isOn && frontend.nothingToPublish();
    if (!this.#isUnreported) return;
    this.#likeSteps = scheduler.likeSteps();
    this.#nextReportMs = undefined;
  }

  /** Reports the imports that have arrived. Requests submitted during the reports wait for the next step. */
  #reportImports(nowMs: number): void {
    const { arrived } = this.#scheduler;
    if (arrived.length === 0) return;
    this.#reachedMs = nowMs;
    this.#ending = true;
    for (const { chain, importedTokens } of arrived) this.#options.frontend.imported(chain, importedTokens, nowMs);
    arrived.length = 0;
    this.#ending = false;
  }

  #begin(nowMs: number): void {
    const durationMs = stepDurationMs(this.#work, this.#times);
    this.#stepEndMs = nowMs + durationMs;
    this.#counters.steps++;
    this.#counters.busyMs += durationMs;
  }

  /** Ends a step and begins the next one, which equals it. */
  #skipStep(timeMs: number): void {
    const { decodes } = this.#work;
    this.#reachedMs = timeMs;
    this.#likeSteps--;
    this.#scheduler.decoding.passed();
    this.#counters.generatedTokens += decodes;
    this.#work.decodeContext += decodes;
    this.#scheduler.planAgain();
    this.#begin(timeMs);
  }

  /** Ends the skipping: the running step ends like any other. */
  #stopSkipping(): void {
    this.#likeSteps = 0;
    this.#isUnreported = false;
    this.#scheduler.decoding.end(this.#stepEndMs !== undefined);
  }

  #endStep(timeMs: number): void {
    this.#reachedMs = timeMs;
    this.#ending = true;
    this.#stepEnd.end(timeMs);
    this.#options.frontend.publish(timeMs);
    this.#ending = false;
    this.#stepEndMs = undefined;
    this.#isUnreported = false;
    this.#startMs = timeMs;
  }
}

/** An engine for one kind of requests. */
export interface LoopEngine<Id, Request>
  extends Omit<Engine, "submit" | "abort" | "release" | "cachedTokens" | "hold"> {
  submit(request: Request, timeMs: number): void;
  abort(requestId: Id, timeMs: number): void;
  release(requestId: Id, timeMs: number): boolean;
  cachedTokens(request: Request, timeMs: number): number;
  hold(request: Request, range: TokenRange, timeMs: number): KvHold | undefined;
}

/** The loop of an engine with the cache of its flavour, which logs its blocks to `log`. */
export function createLoop<Id, Request extends { readonly id: Id }, Chain extends RequestChain<Id>>(
  parameters: EngineParameters,
  frontend: EngineFrontend<Id, Request, Chain>,
  log: CacheLog<NoInfer<Chain>>,
): LoopEngine<Id, Request> {
  const { flavour, blockCount, blockSize, prefixCaching, freeOrder = "uncached-first" } = parameters;
  const { cpuLoadMsPerBlock: loadMsPerBlock = 0, cpuChunkBlocks: chunkBlocks = 1 } = parameters;
  const { cpuWrites = cpuWritesOf[flavour][0]! } = parameters;
  const cpuBlocks = prefixCaching ? (parameters.cpuBlocks ?? 0) : 0;
  const common = { blockCount, blockSize, prefixCaching, log };
  if (flavour === "sglang") {
    const host = { hostPages: cpuBlocks, hostWrites: cpuWrites as HostWrites, loadMsPerPage: loadMsPerBlock };
    return new EngineLoop({ parameters, frontend, cache: new RadixCache({ ...common, ...host }), offload: undefined });
  }
  const { retention = "replay" } = parameters;
  const partialGroups = partialGroupsOf(parameters);
  if (partialGroups.length > 0) {
    const cache = new HybridCache({ ...common, freeOrder, partialGroups, retention });
    return new EngineLoop({ parameters, frontend, cache, offload: undefined });
  }
  const offload =
    cpuBlocks >= chunkBlocks
      ? createOffloadTier({ capacity: cpuBlocks, blockSize, chunkBlocks, loadMsPerBlock, log })
      : undefined;
  const offloadsOutputs = cpuWrites === "all";
  const cache = new BlockCache({ ...common, freeOrder, offload, chunkBlocks, offloadsOutputs });
  return new EngineLoop({ parameters, frontend, cache, offload });
}

/**
 * How requests enter an engine, with tokens or with hashes, and what its observer receives. The loop depends on neither.
 */
export interface EngineFrontend<Id, Request extends { readonly id: Id }, Chain extends RequestChain<Id>> {
  /** @throws RangeError when the engine could never serve the request */
  check(request: Request): void;
  open(request: Request): Chain;
  /** `tokens` imported tokens of a request have arrived. */
  imported(chain: Chain, tokens: number, timeMs: number): void;
  /** A step produced the output token at `index`. */
  generated(chain: Chain, index: number, timeMs: number): void;
  /** How many tokens from position `knownTokens` on, none of them the first of an output, need no report. */
  quietTokens(knownTokens: number): number;
  finished(chain: Chain, report: Omit<RequestReport, "id"> & { readonly id: Id }): void;
  /** Whether `publish` would publish nothing. */
  nothingToPublish(): boolean;
  /** Publishes the stored and removed blocks. */
  publish(timeMs: number): void;
}
