import { DecodePhase } from "./decode-phase.ts";
import type { Counters } from "./engine-stats.ts";
import type { KvCache } from "./kv-cache.ts";
import type { PullReceiver, RemoteSource } from "./kv-pull.ts";
import type { OffloadTier } from "./offload-tier.ts";
import { isDecode, type RequestChain, type Sequence } from "./sequence.ts";
import type { EngineParameters } from "./types.ts";
import { createImportList, type ImportList, type WaitingQueue } from "./waiting-queue.ts";

interface SchedulerOptions<Allocation, Chain extends RequestChain<unknown>> {
  readonly parameters: EngineParameters;
  readonly cache: KvCache<Allocation, Chain>;
  readonly offload: OffloadTier | undefined;
  readonly waiting: WaitingQueue<Sequence<Allocation, Chain>>;
  readonly counters: Counters;
  /** How many output tokens from a position on need no report. */
  readonly quietTokens: (knownTokens: number) => number;
  /** What a remote source calls for a sequence that pulls. */
  readonly receiverOf: (sequence: Sequence<Allocation, Chain>) => PullReceiver;
}

/**
 * Decides which tokens each step computes, as the scheduler of vLLM V1 does (`v1/core/sched/scheduler.py`): running
 * sequences first, decodes and chunks of prompts alike, then waiting ones while the token budget, the batch and the
 * blocks last. When a running sequence finds no block, the sequence with the highest priority value, admitted last, is
 * preempted and starts over at the head of the queue.
 *
 * SGLang differs: a step either extends prompts or decodes, prompts first (`get_next_batch_to_run`), and a request is
 * admitted only when memory is left for the expected output of the running ones.
 */
export class Scheduler<Allocation, Chain extends RequestChain<unknown>> {
  /** The batch, in order of admission. */
  readonly running: Sequence<Allocation, Chain>[] = [];
  /** Sequences whose blocks are being filled by an import. */
  readonly importing: ImportList<Sequence<Allocation, Chain>> = createImportList();
  /** Sequences that pull blocks from another engine, or wait for the pull of another one. */
  readonly pulling = new Set<Sequence<Allocation, Chain>>();
  /** Sequences whose import has arrived, and whose first step is the planned one. */
  readonly arrived: Sequence<Allocation, Chain>[] = [];
  /** While it is active, the fields of the running sequences may lag behind. */
  readonly decoding: DecodePhase<Allocation, Chain>;
  readonly #options: SchedulerOptions<Allocation, Chain>;
  readonly #separatesPrefill: boolean;
  readonly #adapters: AdapterSlots;
  /** Adapter loads that the next step has to wait for. */
  #adapterLoads = 0;
  /** Requests that wait for an adapter slot, set aside while others are admitted. */
  readonly #deferred: Sequence<Allocation, Chain>[] = [];
  readonly #reserve: OutputReserve = createOutputReserve();
  /** Token budget left in the planned step. */
  #budget = 0;
  /** Whether the planned step preempted a sequence. */
  #preempted = false;

  constructor(options: SchedulerOptions<Allocation, Chain>) {
    this.#options = options;
    this.decoding = new DecodePhase({ ...options, running: this.running });
    this.#separatesPrefill = options.parameters.flavour === "sglang";
    this.#adapters = createAdapterSlots(options.parameters.adapterSlots ?? Number.POSITIVE_INFINITY);
  }

  /**
   * Plans one step: sets `stepTokens` of every running sequence.
   *
   * @returns false when nothing runs and nothing was preempted: no step can begin
   */
  plan(nowMs: number): boolean {
    const { cache, parameters } = this.#options;
    this.#budget = parameters.maxBatchedTokens;
    this.#preempted = false;
    this.#continueRunning(true, !this.#separatesPrefill);
    if (!this.#preempted) {
      this.#resumeImported(nowMs);
      this.#admitWaiting(nowMs);
    }
    const decodesOnly = this.#separatesPrefill && this.#budget === parameters.maxBatchedTokens;
    if (decodesOnly) {
      this.#continueRunning(false, true);
      if (this.#preempted) this.#reserve.preempted(this.running);
      else this.#reserve.decoded();
    }
    cache.planned(decodesOnly ? this.#plannedDecodes() : 0);
    return this.running.length > 0 || this.#preempted;
  }

  /**
   * Begins a decode phase, if the planned step can be its first.
   *
   * @returns whether it began
   */
  beginDecoding(): boolean {
    return this.#options.waiting.size() === 0 && this.importing.size() === 0 && this.decoding.begin();
  }

  /**
   * Plans a step in which every sequence decodes as in the one before.
   *
   * @returns false when that is impossible: the phase has ended, and the step is not planned
   */
  planDecodes(): boolean {
    const { running, decoding } = this;
    const { cache, waiting } = this.#options;
    if (running.length === 0 || waiting.size() > 0) return this.#endDecoding();
    for (let at = 0; at < running.length; at++) {
      if (!decoding.isUnplanned(at)) continue;
      const { allocation, computedTokens, abortWanted } = running[at]!;
      if (abortWanted || !cache.grow(allocation, computedTokens + 1)) return this.#endDecoding();
      decoding.planned(at);
    }
    this.planAgain();
    cache.planned(this.#separatesPrefill ? running.length : 0);
    return true;
  }

  /** How many steps after the planned one, in a decode phase, will equal it. `planAgain` plans them. */
  likeSteps(): number {
    return this.#options.cache.isSettled(this.running.length) ? this.decoding.likeSteps() : 0;
  }

  /** How many steps end, the planned one first, before one that reports something or changes the batch. */
  unreportedSteps(): number {
    return this.#options.cache.isSettled(this.running.length) ? this.decoding.unreportedSteps() : 0;
  }

  /** How many adapters the planned step has to load, and counts them. */
  takeAdapterLoads(): number {
    const loads = this.#adapterLoads;
    this.#adapterLoads = 0;
    this.#options.counters.adapterLoads += loads;
    return loads;
  }

  /** The pull of a sequence is over: `toTokens` is where the blocks end that have arrived. */
  pulled(sequence: Sequence<Allocation, Chain>, toTokens: number): void {
    const { counters, parameters } = this.#options;
    const { reservation, pullFromTokens } = sequence;
    const { blockSize } = parameters;
    const end = reservation?.fill(sequence.chain, pullFromTokens / blockSize, toTokens / blockSize) ?? 0;
    sequence.pulledTokens = Math.max(0, end * blockSize - pullFromTokens);
    if (sequence.pulledTokens > 0) counters.pulls++;
    else counters.emptyPulls++;
    counters.pulledTokens += sequence.pulledTokens;
    this.#leavePull(sequence);
    this.#requeue(sequence);
  }

  /** A sequence that pulls is aborted. */
  abortPull(sequence: Sequence<Allocation, Chain>, timeMs: number): void {
    sequence.cancelPull?.(timeMs);
    sequence.reservation?.cancel();
    this.#leavePull(sequence);
  }

  #leavePull(sequence: Sequence<Allocation, Chain>): void {
    sequence.reservation = undefined;
    sequence.cancelPull = undefined;
    this.pulling.delete(sequence);
    for (let one = sequence.followers.pop(); one; one = sequence.followers.pop()) {
      if (this.pulling.delete(one)) this.#requeue(one);
    }
  }

  #requeue(sequence: Sequence<Allocation, Chain>): void {
    sequence.state = "waiting";
    this.#options.waiting.restore(sequence);
  }

  /** An admitted sequence has ended. */
  left({ chain }: Sequence<Allocation, Chain>): void {
    this.#adapters.leave(chain.adapter);
  }

  /** Plans a step that equals the one before. */
  planAgain(): void {
    if (this.#separatesPrefill) this.#reserve.decoded();
  }

  #endDecoding(): false {
    this.decoding.end(false);
    return false;
  }

  /** Plans the running sequences that extend their prompts, those that decode, or both. */
  #continueRunning(prompts: boolean, decodes: boolean): void {
    const { running } = this;
    const { cache } = this.#options;
    for (let at = 0; at < running.length && this.#budget > 0; at++) {
      const sequence = running[at]!;
      if (!(isDecode(sequence) ? decodes : prompts)) continue;
      const tokens = Math.min(sequence.knownTokens - sequence.computedTokens, this.#budget);
      while (!cache.grow(sequence.allocation, sequence.computedTokens + tokens)) {
        const victimAt = victimOf(running);
        if (this.#preempt(victimAt) === sequence) return;
        if (victimAt < at) at--;
      }
      sequence.stepTokens = tokens;
      this.#budget -= tokens;
    }
  }

  #preempt(at: number): Sequence<Allocation, Chain> {
    const { cache, waiting, counters } = this.#options;
    const victim = this.running[at]!;
    this.running.splice(at, 1);
    this.left(victim);
    cache.release(victim.allocation, victim.computedTokens, false);
    this.#budget += victim.stepTokens;
    victim.stepTokens = 0;
    victim.computedTokens = 0;
    victim.preemptions++;
    victim.state = "waiting";
    waiting.prepend(victim);
    counters.preemptions++;
    this.#preempted = true;
    return victim;
  }

  #admitWaiting(nowMs: number): void {
    this.#admitWhilePossible(nowMs);
    const { waiting } = this.#options;
    for (let passed = this.#deferred.pop(); passed; passed = this.#deferred.pop()) waiting.prepend(passed);
  }

  #admitWhilePossible(nowMs: number): void {
    const { running } = this;
    const { cache, waiting, parameters } = this.#options;
    if (running.length === 0) this.#reserve.reset();
    let expected = this.#separatesPrefill && waiting.size() > 0 ? this.#reserve.expected(running) : 0;
    while (this.#budget > 0 && running.length < parameters.maxRunning) {
      const sequence = waiting.peek();
      if (!sequence) return;
      const { adapter } = sequence.chain;
      if (!this.#adapters.admits(adapter)) {
        waiting.takeFirst();
        this.#deferred.push(sequence);
        continue;
      }
      if (this.pulling.size > 0 && this.#follow(sequence)) continue;
      if (sequence.remote && this.#pull(sequence, sequence.remote, nowMs)) continue;
      const known = sequence.knownTokens;
      const matched = cache.match(sequence.allocation, known - 1);
      const arriving = this.#arrivingTokens(sequence, matched);
      const isImport = arriving > matched;
      if (isImport && sequence.wantedTokens <= matched && cache.isLoading(sequence.allocation, matched, arriving)) {
        waiting.takeFirst();
        this.#deferred.push(sequence);
        continue;
      }
      const tokens = isImport ? known - matched : Math.min(known - matched, this.#budget);
      const own = this.#separatesPrefill ? remainingOutput(sequence) + parameters.blockSize : 0;
      // A lone request may use all memory.
      const spare = running.length === 0 ? 0 : expected + own;
      const readyTokens = isImport ? matched : matched + tokens;
      if (!cache.admit(sequence.allocation, matched + tokens, known + spare, readyTokens)) return;
      expected += own;
      waiting.takeFirst();
      if (this.#adapters.enter(adapter)) this.#adapterLoads++;
      if (isImport) this.#import(sequence, { from: matched, to: arriving, nowMs });
      else this.#run(sequence, { cached: matched, from: matched, tokens, nowMs });
    }
  }

  /**
   * Takes the sequence at the head of the queue out if another one pulls the blocks that it lacks: once the source has found
   * them, or at once if it was to pull them itself. vLLM's `TieringOffloadingManager.lookup` has such a request try again later.
   */
  #follow(sequence: Sequence<Allocation, Chain>): boolean {
    const { offload, waiting, parameters } = this.#options;
    if (!offload) return false;
    const fromTokens = this.#foundTokens(sequence);
    const { blockSize } = parameters;
    if (fromTokens + blockSize > sequence.knownTokens) return false;
    const block = fromTokens / blockSize;
    const { hashes } = sequence.chain;
    for (const one of this.pulling) {
      const isComing = one.cancelPull && (one.reservation || sequence.remote) && one.pullFromTokens <= fromTokens;
      if (!isComing || one.pullToTokens <= fromTokens) continue;
      const other = one.chain.hashes;
      if (other[2 * block] !== hashes[2 * block] || other[2 * block + 1] !== hashes[2 * block + 1]) continue;
      waiting.takeFirst();
      sequence.state = "pulling";
      one.followers.push(sequence);
      this.pulling.add(sequence);
      return true;
    }
    return false;
  }

  /**
   * Begins the pull of the sequence at the head of the queue, and takes it out.
   *
   * @returns false when both memories have everything, or CPU memory has no room
   */
  #pull(sequence: Sequence<Allocation, Chain>, remote: RemoteSource, nowMs: number): boolean {
    const { offload, waiting, parameters } = this.#options;
    const { blockSize } = parameters;
    sequence.remote = undefined;
    if (!offload) return false;
    const known = sequence.knownTokens;
    const fromTokens = this.#foundTokens(sequence);
    const room = offload.reservable() * blockSize;
    const toTokens = Math.min(known - (known % blockSize), fromTokens + room);
    if (toTokens === fromTokens) return false;
    waiting.takeFirst();
    sequence.state = "pulling";
    sequence.pullFromTokens = fromTokens;
    sequence.pullToTokens = toTokens;
    this.pulling.add(sequence);
    sequence.cancelPull = remote.pull({ fromTokens, toTokens }, this.#options.receiverOf(sequence), nowMs);
    return true;
  }

  /** The token up to which a sequence is filled by an import or from CPU memory; `matched` for neither. */
  #arrivingTokens({ allocation, wantedTokens, knownTokens }: Sequence<Allocation, Chain>, matched: number): number {
    return wantedTokens > matched ? wantedTokens : this.#options.cache.reach(allocation, matched, knownTokens);
  }

  /** How much of a sequence both memories have. */
  #foundTokens({ allocation, knownTokens }: Sequence<Allocation, Chain>): number {
    const { cache } = this.#options;
    return cache.reach(allocation, cache.match(allocation, knownTokens - 1), knownTokens);
  }

  /** Starts the import. The sequence has blocks for all its tokens, so it can always continue. */
  #import(
    sequence: Sequence<Allocation, Chain>,
    { from, to, nowMs }: { from: number; to: number; nowMs: number },
  ): void {
    const { wantedTokens, chain, allocation } = sequence;
    sequence.state = "importing";
    sequence.computedTokens = from;
    sequence.arrivingTokens = to;
    if (wantedTokens > from) {
      const { setupMs, msPerToken } = chain.imported!;
      sequence.readyMs = nowMs + setupMs + msPerToken * (to - from);
    } else {
      sequence.readyMs = this.#options.cache.load(allocation, { fromTokens: from, toTokens: to }, nowMs);
    }
    this.importing.add(sequence);
  }

  /** Adds sequences whose import has arrived to the batch. */
  #resumeImported(nowMs: number): void {
    const { cache, parameters, counters } = this.#options;
    while (this.#budget > 0 && this.running.length < parameters.maxRunning) {
      const sequence = this.importing.takeReady(nowMs);
      if (!sequence) return;
      const { allocation, wantedTokens, arrivingTokens, computedTokens, knownTokens } = sequence;
      if (wantedTokens > computedTokens) {
        sequence.importedTokens = arrivingTokens - computedTokens;
        counters.importedTokens += sequence.importedTokens;
        cache.computed(allocation, arrivingTokens);
      } else {
        counters.loadedTokens += arrivingTokens - computedTokens;
        cache.loaded(allocation);
      }
      // The engine computes the last token of a prompt again that was loaded whole.
      const from = Math.min(arrivingTokens, knownTokens - 1);
      const tokens = Math.min(knownTokens - from, this.#budget);
      cache.grow(allocation, from + tokens);
      this.#run(sequence, { cached: arrivingTokens, from, tokens, nowMs });
    }
  }

  /** Adds a sequence to the batch, to compute `tokens` tokens of it from token `from` on. */
  #run(
    sequence: Sequence<Allocation, Chain>,
    { cached, from, tokens, nowMs }: { cached: number; from: number; tokens: number; nowMs: number },
  ): void {
    const { counters } = this.#options;
    const found = sequence.state === "importing" ? sequence.computedTokens : cached;
    if (sequence.wantedTokens > 0) this.arrived.push(sequence);
    sequence.wantedTokens = 0;
    sequence.state = "running";
    sequence.computedTokens = from;
    sequence.stepTokens = tokens;
    this.#budget -= tokens;
    this.running.push(sequence);
    // Later admissions repeat work: only the first one counts as a cache lookup.
    if (sequence.preemptions > 0) return;
    sequence.scheduledMs = nowMs;
    sequence.cachedTokens = cached;
    counters.prefixQueries += sequence.knownTokens;
    counters.prefixHits += found;
  }

  #plannedDecodes(): number {
    let decodes = 0;
    for (const sequence of this.running) if (sequence.stepTokens > 0) decodes++;
    return decodes;
  }
}

/** The last one of the highest priority value. */
function victimOf(running: readonly Sequence<unknown>[]): number {
  let victimAt = running.length - 1;
  for (let at = running.length - 2; at >= 0; at--) {
    if (running[at]!.priority > running[victimAt]!.priority) victimAt = at;
  }
  return victimAt;
}

/** Running requests by their LoRA adapter. */
interface AdapterSlots {
  /** Whether a request for an adapter may run now. Always true without an adapter. */
  admits(adapter: string | undefined): boolean;
  /**
   * Records that a request begins to run. `admits` must be true.
   *
   * @returns whether its adapter has to be loaded
   */
  enter(adapter: string | undefined): boolean;
  /** A request has ended; its adapter stays loaded. */
  leave(adapter: string | undefined): void;
}

/**
 * The adapters in an engine's GPU memory. Requests for at most `slots` of them run at once (vLLM's `max_loras` in
 * `v1/core/sched/scheduler.py`, SGLang's `max_loras_per_batch`). An idle adapter stays loaded until its slot is needed.
 * Then the least recently used one is evicted (`LRUCacheLoRAModelManager`).
 *
 * @param slots at least 1; Infinity for no bound
 */
function createAdapterSlots(slots: number): AdapterSlots {
  /** Running requests by adapter. */
  const running = new Map<string, number>();
  /** Loaded adapters without a running request, least recently used first. */
  const idle = new Set<string>();
  return {
    admits: (adapter) => adapter === undefined || running.has(adapter) || running.size < slots,
    enter(adapter) {
      if (adapter === undefined) return false;
      const users = running.get(adapter) ?? 0;
      running.set(adapter, users + 1);
      if (users > 0 || idle.delete(adapter)) return false;
      if (running.size + idle.size > slots) {
        for (const oldest of idle) {
          idle.delete(oldest);
          break;
        }
      }
      return true;
    },
    leave(adapter) {
      if (adapter === undefined) return;
      const users = running.get(adapter) ?? 0;
      if (users > 1) {
        running.set(adapter, users - 1);
        return;
      }
      running.delete(adapter);
      idle.add(adapter);
    },
  };
}

/** Memory that SGLang reserves for the output of running requests before it admits more. */
interface OutputReserve {
  /** Tokens that the running sequences are still expected to generate. */
  expected(running: readonly Sequence<unknown>[]): number;
  /** A step decoded without preemption: expect less. */
  decoded(): void;
  /** Sequences were preempted: expect what the others show. */
  preempted(running: readonly Sequence<unknown>[]): void;
  /** The batch is empty: start over. */
  reset(): void;
}

/** `SGLANG_INIT_NEW_TOKEN_RATIO`, `SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR`, `SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS`. */
const FIRST_SHARE = 0.7;

const LEAST_SHARE = FIRST_SHARE * 0.14;

const SHARE_STEP = (FIRST_SHARE - LEAST_SHARE) / 600;

/** `SGLANG_RETRACT_DECODE_STEPS`. */
const STEPS_AHEAD = 20;

/** `SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION`. */
const MOST_TOKENS = 4_096;

/** Output tokens that a sequence still has to generate, as admission counts them. */
function remainingOutput(sequence: Sequence<unknown>): number {
  return Math.min(sequence.totalTokens - sequence.knownTokens, MOST_TOKENS);
}

/** `NewTokenRatioTracker` and the offsets of `PrefillAdder`, SGLang 0.5.23. */
function createOutputReserve(): OutputReserve {
  let share = FIRST_SHARE;
  return {
    expected(running) {
      let tokens = 0;
      for (const sequence of running) tokens += remainingOutput(sequence);
      return tokens * share;
    },
    decoded() {
      share = Math.max(share - SHARE_STEP, LEAST_SHARE);
    },
    preempted(running) {
      let generated = 0;
      let wanted = 0;
      for (const { knownTokens, promptTokens, totalTokens } of running) {
        generated += knownTokens - promptTokens;
        wanted += totalTokens - promptTokens;
      }
      share = Math.min(1, (generated + STEPS_AHEAD * running.length) / (wanted + 1));
    },
    reset() {
      share = FIRST_SHARE;
    },
  };
}
