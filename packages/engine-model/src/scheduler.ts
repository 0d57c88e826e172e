import { DecodePhase } from "./decode-phase.ts";
import type { Accounting } from "./engine-stats.ts";
import type { KvCache } from "./kv-cache.ts";
import type { OffloadTier } from "./offload-tier.ts";
import { isDecode, type RequestChain, type Sequence } from "./sequence.ts";
import type { EngineParameters } from "./types.ts";
import { createImportList, type ImportList, type WaitingQueue } from "./waiting-queue.ts";

interface SchedulerOptions<Seat, Chain extends RequestChain<unknown>> {
  readonly parameters: EngineParameters;
  readonly cache: KvCache<Seat, Chain>;
  readonly offload: OffloadTier | undefined;
  readonly waiting: WaitingQueue<Sequence<Seat, Chain>>;
  readonly accounting: Accounting;
  /** How many tokens of an output from a position on need not be told of. */
  readonly quietTokens: (knownTokens: number) => number;
}

/**
 * Decides which tokens each step computes, as the scheduler of vLLM V1 does (`v1/core/sched/scheduler.py`): running
 * sequences first, decodes and chunks of prompts alike, then waiting ones while the token budget, the places and the
 * blocks last. When a running sequence finds no block, the one with the highest priority value, admitted last, loses
 * its own and starts over at the head of the queue.
 *
 * SGLang differs: a step either extends prompts or decodes, prompts first (`get_next_batch_to_run`), and a request is
 * admitted only when room is left for what the running ones are expected to generate.
 */
export class Scheduler<Seat, Chain extends RequestChain<unknown>> {
  /** Sequences with a place in the batch, in order of admission. */
  readonly running: Sequence<Seat, Chain>[] = [];
  /** Sequences that have their blocks and wait for what is to be in them. */
  readonly importing: ImportList<Sequence<Seat, Chain>> = createImportList();
  /** Sequences for which the planned step is the first since what they wanted from outside is here. */
  readonly arrived: Sequence<Seat, Chain>[] = [];
  /** Of these sequences; while it is on, what is written in them may be old. */
  readonly decoding: DecodePhase<Seat, Chain>;
  readonly #options: SchedulerOptions<Seat, Chain>;
  readonly #promptsApart: boolean;
  readonly #adapters: AdapterSlots;
  /** Loads of adapters that no step has had to wait for yet. */
  #adapterLoads = 0;
  /** Requests of the queue's head that wait for the slot of an adapter, while others are admitted. */
  readonly #passedOver: Sequence<Seat, Chain>[] = [];
  readonly #reserve: OutputReserve = createOutputReserve();
  /** Tokens left in the step being planned. */
  #budget = 0;
  /** Whether the step being planned took blocks away from somebody. */
  #preempted = false;

  constructor(options: SchedulerOptions<Seat, Chain>) {
    this.#options = options;
    this.decoding = new DecodePhase({ ...options, running: this.running });
    this.#promptsApart = options.parameters.flavour === "sglang";
    this.#adapters = createAdapterSlots(options.parameters.adapterSlots ?? Number.POSITIVE_INFINITY);
  }

  /**
   * Plans one step: sets `stepTokens` of every running sequence.
   *
   * @returns false when nothing runs, and nothing was taken away from anybody: no step can begin
   */
  plan(nowMs: number): boolean {
    const { cache, parameters } = this.#options;
    this.#budget = parameters.maxBatchedTokens;
    this.#preempted = false;
    this.#continueRunning(true, !this.#promptsApart);
    if (!this.#preempted) {
      this.#resumeImported(nowMs);
      this.#admitWaiting(nowMs);
    }
    const decodesApart = this.#promptsApart && this.#budget === parameters.maxBatchedTokens;
    if (decodesApart) {
      this.#continueRunning(false, true);
      if (this.#preempted) this.#reserve.preempted(this.running);
      else this.#reserve.decoded();
    }
    cache.planned(decodesApart ? this.#plannedDecodes() : 0);
    return this.running.length > 0 || this.#preempted;
  }

  /**
   * Begins a phase of decoding, where the planned step can be the first of one.
   *
   * @returns whether it is
   */
  beginDecoding(): boolean {
    return this.#options.waiting.size() === 0 && this.importing.size() === 0 && this.decoding.begin();
  }

  /**
   * Plans a step in which every sequence decodes as in the one before.
   *
   * @returns false when that cannot be: the phase is over then, and the step is still to be planned
   */
  planDecodes(): boolean {
    const { running, decoding } = this;
    const { cache, waiting } = this.#options;
    if (running.length === 0 || waiting.size() > 0) return this.#endDecoding();
    for (let at = 0; at < running.length; at++) {
      if (!decoding.isUnplanned(at)) continue;
      const { seat, computedTokens, abortWanted } = running[at]!;
      if (abortWanted || !cache.grow(seat, computedTokens + 1)) return this.#endDecoding();
      decoding.planned(at);
    }
    this.planAgain();
    cache.planned(this.#promptsApart ? running.length : 0);
    return true;
  }

  /** How many of the steps after the planned one, in a phase of decoding, will be like it. `planAgain` plans them. */
  likeSteps(): number {
    return this.#options.cache.isSettled(this.running.length) ? this.decoding.likeSteps() : 0;
  }

  /** How many steps end, the planned one first, before one that anything can be told of or that changes the batch. */
  untoldSteps(): number {
    return this.#options.cache.isSettled(this.running.length) ? this.decoding.untoldSteps() : 0;
  }

  /** How many adapters the planned step has to wait for. They are counted with this. */
  takeAdapterLoads(): number {
    const loads = this.#adapterLoads;
    this.#adapterLoads = 0;
    this.#options.accounting.adapterLoads += loads;
    return loads;
  }

  /** A sequence that was admitted runs no more. */
  left({ chain }: Sequence<Seat, Chain>): void {
    this.#adapters.leave(chain.adapter);
  }

  /** Plans a step that is like the one before, which leaves the sequences as they are. */
  planAgain(): void {
    if (this.#promptsApart) this.#reserve.decoded();
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
      while (!cache.grow(sequence.seat, sequence.computedTokens + tokens)) {
        const victimAt = victimOf(running);
        if (this.#preempt(victimAt) === sequence) return;
        if (victimAt < at) at--;
      }
      sequence.stepTokens = tokens;
      this.#budget -= tokens;
    }
  }

  #preempt(at: number): Sequence<Seat, Chain> {
    const { cache, waiting, accounting } = this.#options;
    const victim = this.running[at]!;
    this.running.splice(at, 1);
    this.left(victim);
    cache.release(victim.seat, victim.computedTokens, false);
    this.#budget += victim.stepTokens;
    victim.stepTokens = 0;
    victim.computedTokens = 0;
    victim.preemptions++;
    victim.place = "waiting";
    waiting.prepend(victim);
    accounting.preemptions++;
    this.#preempted = true;
    return victim;
  }

  #admitWaiting(nowMs: number): void {
    this.#admitWhilePossible(nowMs);
    const { waiting } = this.#options;
    for (let passed = this.#passedOver.pop(); passed; passed = this.#passedOver.pop()) waiting.prepend(passed);
  }

  #admitWhilePossible(nowMs: number): void {
    const { running } = this;
    const { cache, waiting, parameters } = this.#options;
    if (running.length === 0) this.#reserve.rested();
    let expected = this.#promptsApart && waiting.size() > 0 ? this.#reserve.expected(running) : 0;
    while (this.#budget > 0 && running.length < parameters.maxRunning) {
      const sequence = waiting.peek();
      if (!sequence) return;
      const { adapter } = sequence.chain;
      if (!this.#adapters.admits(adapter)) {
        waiting.takeFirst();
        this.#passedOver.push(sequence);
        continue;
      }
      const known = sequence.knownTokens;
      const matched = cache.match(sequence.seat, known - 1);
      const arriving = this.#arrivingTokens(sequence, matched);
      const isImport = arriving > matched;
      const tokens = isImport ? known - matched : Math.min(known - matched, this.#budget);
      const own = this.#promptsApart ? remainingOutput(sequence) + parameters.blockSize : 0;
      // Alone it may have everything.
      const spare = running.length === 0 ? 0 : expected + own;
      const readyTokens = isImport ? matched : matched + tokens;
      if (!cache.admit(sequence.seat, matched + tokens, known + spare, readyTokens)) return;
      expected += own;
      waiting.takeFirst();
      if (this.#adapters.enter(adapter)) this.#adapterLoads++;
      if (isImport) this.#import(sequence, { from: matched, to: arriving, nowMs });
      else this.#place(sequence, matched, tokens, nowMs);
    }
  }

  /** Up to where what a sequence lacks comes from outside or from CPU memory; `matched` where nothing does. */
  #arrivingTokens({ chain, wantedTokens, knownTokens }: Sequence<Seat, Chain>, matched: number): number {
    if (wantedTokens > matched) return wantedTokens;
    return this.#options.offload?.reach(chain, matched, knownTokens - 1) ?? matched;
  }

  /** Sends for what a sequence lacks. It has blocks for everything, so that it can always go on. */
  #import(sequence: Sequence<Seat, Chain>, { from, to, nowMs }: { from: number; to: number; nowMs: number }): void {
    const { wantedTokens, chain } = sequence;
    sequence.place = "importing";
    sequence.computedTokens = from;
    sequence.arrivingTokens = to;
    if (wantedTokens > from) {
      const { setupMs, msPerToken } = chain.imported!;
      sequence.readyMs = nowMs + setupMs + msPerToken * (to - from);
    } else {
      sequence.readyMs = this.#options.offload!.sendBack(to - from, nowMs);
    }
    this.importing.add(sequence);
  }

  /** Takes those into the batch whose blocks are filled. */
  #resumeImported(nowMs: number): void {
    const { cache, parameters, accounting } = this.#options;
    while (this.#budget > 0 && this.running.length < parameters.maxRunning) {
      const sequence = this.importing.takeReady(nowMs);
      if (!sequence) return;
      const { seat, wantedTokens, arrivingTokens, computedTokens, knownTokens } = sequence;
      const tokens = Math.min(knownTokens - arrivingTokens, this.#budget);
      if (wantedTokens > computedTokens) {
        sequence.importedTokens = arrivingTokens - computedTokens;
        accounting.importedTokens += sequence.importedTokens;
      } else {
        accounting.loadedTokens += arrivingTokens - computedTokens;
      }
      cache.computed(seat, arrivingTokens);
      cache.grow(seat, arrivingTokens + tokens);
      this.#place(sequence, arrivingTokens, tokens, nowMs);
    }
  }

  #place(sequence: Sequence<Seat, Chain>, matched: number, tokens: number, nowMs: number): void {
    const { accounting } = this.#options;
    const found = sequence.place === "importing" ? sequence.computedTokens : matched;
    if (sequence.wantedTokens > 0) this.arrived.push(sequence);
    sequence.wantedTokens = 0;
    sequence.place = "running";
    sequence.computedTokens = matched;
    sequence.stepTokens = tokens;
    this.#budget -= tokens;
    this.running.push(sequence);
    // Later admissions repeat work: only the first one tells what the cache was worth.
    if (sequence.preemptions > 0) return;
    sequence.scheduledMs = nowMs;
    sequence.cachedTokens = matched;
    accounting.prefixQueries += sequence.knownTokens;
    accounting.prefixHits += found;
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

/** What holds a place among the running requests, by the LoRA adapter that it is for. */
interface AdapterSlots {
  /** Whether a request for an adapter may run now. One without an adapter always may. */
  admits(adapter: string | undefined): boolean;
  /**
   * A request begins to run. `admits` must hold.
   *
   * @returns whether its adapter has to be loaded for that
   */
  enter(adapter: string | undefined): boolean;
  /** A request runs no more; its adapter stays loaded. */
  leave(adapter: string | undefined): void;
}

/**
 * The adapters that an engine holds in its GPU. Requests for at most `slots` of them run at once (vLLM's `max_loras` in
 * `v1/core/sched/scheduler.py`, SGLang's `max_loras_per_batch`). An adapter that no running request is for stays where it
 * is until its slot is needed; then the one that was used longest ago gives way (`LRUCacheLoRAModelManager`).
 *
 * @param slots at least 1; Infinity for an engine that never gives one up
 */
function createAdapterSlots(slots: number): AdapterSlots {
  /** Running requests by adapter. */
  const running = new Map<string, number>();
  /** Loaded adapters that nobody runs for, the one used longest ago first. */
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

/** How much room SGLang leaves for the output of what runs before it admits more. */
interface OutputReserve {
  /** Tokens that the running sequences are expected to generate yet. */
  expected(running: readonly Sequence<unknown>[]): number;
  /** A step decoded without trouble: expect less. */
  decoded(): void;
  /** Sequences lost their place for want of room: expect what the others show. */
  preempted(running: readonly Sequence<unknown>[]): void;
  /** Nothing runs: start over. */
  rested(): void;
}

/** `SGLANG_INIT_NEW_TOKEN_RATIO`, `SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR`, `SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS`. */
const FIRST_SHARE = 0.7;

const LEAST_SHARE = FIRST_SHARE * 0.14;

const SHARE_STEP = (FIRST_SHARE - LEAST_SHARE) / 600;

/** `SGLANG_RETRACT_DECODE_STEPS`. */
const STEPS_AHEAD = 20;

/** `SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION`. */
const MOST_TOKENS = 4_096;

/** Output tokens that a sequence has yet to generate, as far as admission counts them. */
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
    rested() {
      share = FIRST_SHARE;
    },
  };
}
