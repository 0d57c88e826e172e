import type { Cancel, Clock, Scheduler } from "@espalier/common";
import {
  type BlockChanges,
  type BlockEngine,
  type BlockReport,
  type BlockRequest,
  blockChange,
  createBlockEngine,
  type EngineParameters,
  type EngineStats,
} from "@espalier/engine-model";
import { type Tier, tier } from "@espalier/prefix-index";
import type { BatchMark } from "@espalier/replication";
import type { AdapterReading } from "@espalier/workers";
import { blockTokens, type SimRequest } from "../clients/workload.ts";

/** One message of an engine's KV events. */
export interface EngineMessage extends BatchMark {
  readonly changes: BlockChanges;
}

/** What becomes of the blocks of a run. */
export interface BlockMove {
  readonly tier: Tier;
  /** Whether they come there, or go. */
  readonly isStored: boolean;
}

/** What a run of one of the kinds of `blockChange` says; undefined for the one that clears everything. */
export function blockMoveOf(kind: number): BlockMove | undefined {
  return moves.get(kind);
}

const moves = new Map<number, BlockMove>([
  [blockChange.stored, { tier: tier.gpu, isStored: true }],
  [blockChange.removed, { tier: tier.gpu, isStored: false }],
  [blockChange.offloaded, { tier: tier.cpu, isStored: true }],
  [blockChange.discarded, { tier: tier.cpu, isStored: false }],
]);

/** Who waits for an answer. */
export interface AnswerObserver {
  firstToken(timeMs: number): void;
  /** So many tokens more, the first one not counted. */
  progress(tokens: number): void;
  finished(report: BlockReport): void;
  /** What was wanted from another engine is here. */
  imported?(): void;
  /** The engine is gone. */
  lost(): void;
}

/** What a router tells an engine of a request besides what the client does: of its other leg, and where it stands. */
export type LegWishes = Pick<BlockRequest, "imported" | "pinned" | "priority">;

/** An engine of the simulated fleet: the model of one, driven by the virtual scheduler, with its KV events. */
export interface SimEngine {
  /** From 0. */
  readonly number: number;
  /** Of its only target. */
  readonly key: string;
  readonly isUp: boolean;
  /** Processes that it has been; 1 at first. */
  readonly lives: number;
  /** KV tokens that it holds. */
  readonly kvTokens: number;
  stats(): EngineStats;
  /** What its metrics say of LoRA adapters; undefined before its first request for one. */
  adapterReading(): AdapterReading | undefined;
  /** LoRA adapters that it has loaded, in all its lives; NaN before its first request for one. */
  readonly adapterLoads: number;
  /** @returns false when it is gone: the connection is refused */
  submit(request: SimRequest, observer: AnswerObserver, wishes?: LegWishes): boolean;
  /** Gives back the blocks of a request that was to be pinned. Nothing happens when it has none. */
  release(request: SimRequest): void;
  /** The connection of a request is closed; its observer hears nothing more. */
  abort(request: SimRequest): void;
  /** Messages of the present life in order of their sequence, from 0. Each life has a list of its own. */
  readonly messages: readonly EngineMessage[];
  /** Messages before this sequence are not told again: engines keep only the last ones for replay. */
  readonly firstReplayed: number;
  /** Told of each message when the engine publishes it; whoever reads over a wire adds the wire's delay. */
  onMessage(listener: (message: EngineMessage) => void): Cancel;
  /** Told when a new life has begun, or the old one has ended. */
  onLife(listener: () => void): Cancel;
  /** Its steps take so many times as long, in this life and in later ones; 1 is as at first. */
  slow(factor: number): void;
  kill(): void;
  start(): void;
}

interface ModelledEngineOptions {
  readonly number: number;
  readonly parameters: EngineParameters;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** False where nobody listens, which spares the work of making events. */
  readonly hasEvents: boolean;
  /** Whether messages are kept for those who come later. */
  readonly keepsMessages: boolean;
}

/** Messages that vLLM keeps for replay unless told otherwise (`buffer_steps`). */
const replayedMessages = 10_000;

/** Slots of an engine that never gives up an adapter. */
const maxAdapterSlots = 65_536;

/** In a millisecond. */
const microseconds = 1_000;

/** @throws RangeError when a parameter makes no sense */
export function createSimEngine(options: ModelledEngineOptions): SimEngine {
  return new ModelledEngine(options);
}

class ModelledEngine implements SimEngine {
  readonly number: number;
  readonly key: string;
  readonly kvTokens: number;
  lives = 1;
  isUp = true;
  messages: EngineMessage[] = [];
  #published = 0;
  readonly #options: ModelledEngineOptions;
  readonly #answers = new Map<number, AnswerObserver>();
  readonly #messageListeners = new ListenerSet<EngineMessage>();
  readonly #lifeListeners = new ListenerSet<void>();
  #model: BlockEngine;
  #cancel: Cancel | undefined;
  #dueMs = Number.NaN;
  /** Whether a request for an adapter came: in this life, and ever. */
  #usesAdapters = false;
  #hasUsedAdapters = false;
  /** Of its machine, so that it outlives the process. */
  #slowdown = 1;
  /** In lives that are over. */
  #earlierLoads = 0;
  readonly #advance = (): void => {
    const dueMs = this.#dueMs;
    this.#cancel = undefined;
    this.#dueMs = Number.NaN;
    // The sum of now and a delay may fall short of the moment by a rounding error.
    this.#model.advanceTo(Math.max(dueMs, this.#options.clock.nowMs()));
    if (this.isUp) this.#reschedule();
  };

  constructor(options: ModelledEngineOptions) {
    this.#options = options;
    this.number = options.number;
    this.key = `engine-${options.number}`;
    this.kvTokens = options.parameters.blockCount * options.parameters.blockSize;
    if (options.parameters.blockSize !== blockTokens) throw new RangeError(`blocks must have ${blockTokens} tokens`);
    this.#model = this.#createModel();
  }

  get firstReplayed(): number {
    return Math.max(0, this.#published - replayedMessages);
  }

  stats(): EngineStats {
    return this.#model.stats();
  }

  adapterReading(): AdapterReading | undefined {
    if (!this.#usesAdapters) return undefined;
    const { adapterSlots = maxAdapterSlots } = this.#options.parameters;
    return { slots: adapterSlots, ...this.#model.adapterUse() };
  }

  get adapterLoads(): number {
    return this.#hasUsedAdapters ? this.#earlierLoads + this.#model.stats().adapterLoads : Number.NaN;
  }

  submit(request: SimRequest, observer: AnswerObserver, wishes: LegWishes = {}): boolean {
    if (!this.isUp) return false;
    const { index, promptTokens, outputTokens, chain, adapter } = request;
    const named = adapter === undefined ? undefined : { adapter };
    if (named) this.#hasUsedAdapters = this.#usesAdapters = true;
    this.#model.submit(
      { id: index, promptTokens, outputTokens, chain, ...named, ...wishes },
      this.#options.clock.nowMs(),
    );
    this.#answers.set(index, observer);
    this.#reschedule();
    return true;
  }

  release({ index }: SimRequest): void {
    if (!this.isUp || !this.#model.release(index, this.#options.clock.nowMs())) return;
    this.#reschedule();
  }

  abort({ index }: SimRequest): void {
    if (!this.#answers.delete(index)) return;
    this.#model.abort(index, this.#options.clock.nowMs());
    this.#reschedule();
  }

  onMessage(listener: (message: EngineMessage) => void): Cancel {
    return this.#messageListeners.add(listener);
  }

  onLife(listener: () => void): Cancel {
    return this.#lifeListeners.add(listener);
  }

  slow(factor: number): void {
    this.#model.setSlowdown(factor, this.#options.clock.nowMs());
    this.#slowdown = factor;
    if (this.isUp) this.#reschedule();
  }

  kill(): void {
    if (!this.isUp) return;
    this.isUp = false;
    this.#cancel?.();
    this.#cancel = undefined;
    this.#dueMs = Number.NaN;
    const lost = [...this.#answers.values()];
    this.#answers.clear();
    this.#earlierLoads += this.#model.stats().adapterLoads;
    this.#usesAdapters = false;
    // What is gone runs nothing and holds nothing.
    this.#model = this.#createModel();
    this.#lifeListeners.tell();
    for (const observer of lost) observer.lost();
  }

  start(): void {
    if (this.isUp) return;
    this.isUp = true;
    this.lives++;
    this.messages = [];
    this.#published = 0;
    this.#model = this.#createModel();
    this.#lifeListeners.tell();
  }

  #createModel(): BlockEngine {
    const life = this.lives;
    const { parameters, hasEvents } = this.#options;
    const model = createBlockEngine({
      parameters,
      observer: {
        firstToken: (id, timeMs) => this.#answers.get(id)?.firstToken(timeMs),
        progress: (id, tokens) => this.#answers.get(id)?.progress(tokens),
        finished: (report) => this.#finished(report),
        imported: (id) => this.#answers.get(id)?.imported?.(),
        ...(hasEvents ? { blocks: (changes, timeMs) => this.#publish(life, changes, timeMs) } : {}),
      },
    });
    if (this.#slowdown !== 1) model.setSlowdown(this.#slowdown, this.#options.clock.nowMs());
    return model;
  }

  #finished(report: BlockReport): void {
    const observer = this.#answers.get(report.id);
    this.#answers.delete(report.id);
    observer?.finished(report);
  }

  #publish(life: number, changes: BlockChanges, timeMs: number): void {
    const sequence = this.#published++;
    const message: EngineMessage = {
      sequence,
      timestampUs: Math.round(this.#options.clock.wallMs() * microseconds),
      checksum: checksumOf(life, sequence, timeMs, changes),
      changes,
    };
    if (this.#options.keepsMessages) this.messages.push(message);
    this.#messageListeners.tell(message);
  }

  #reschedule(): void {
    const { clock, scheduler } = this.#options;
    const dueMs = this.#model.nextEventMs() ?? Number.NaN;
    if (Object.is(dueMs, this.#dueMs)) return;
    this.#cancel?.();
    this.#dueMs = dueMs;
    this.#cancel = Number.isNaN(dueMs) ? undefined : scheduler.after(dueMs - clock.nowMs(), this.#advance);
  }
}

/** Tells messages of one engine apart as a checksum over the bytes would; 32 bits. */
function checksumOf(life: number, sequence: number, timeMs: number, { words, runs }: BlockChanges): number {
  let sum = Math.imul(life, 0x9e37_79b1) ^ Math.imul(sequence + 1, 0x85eb_ca6b) ^ Math.imul(runs, 0xc2b2_ae35);
  sum = Math.imul(sum ^ Math.floor(timeMs * microseconds), 0x2c1b_3c6d);
  for (let at = 0; at < words.length; at += 2) sum = Math.imul(sum ^ words[at]!, 0x01000193);
  return (sum ^ (sum >>> 15)) >>> 0;
}

/** Listeners of one kind of news, told in the order in which they came. One that is removed while others are told is not told. */
export class ListenerSet<News> {
  readonly #listeners = new Set<(news: News) => void>();

  add(listener: (news: News) => void): Cancel {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  tell(news: News): void {
    for (const listener of this.#listeners) listener(news);
  }
}
