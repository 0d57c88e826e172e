import type { Cancel, Clock, Scheduler } from "@espalier/core";
import {
  type BlockChanges,
  type BlockEngine,
  type BlockReport,
  type BlockRequest,
  blockChange,
  type CancelPull,
  createBlockEngine,
  createPullSource,
  type EngineParameters,
  type EngineStats,
  type KvPool,
  type PullLimits,
  type PullReceiver,
  type PullSource,
  type PullStats,
  type RemoteSource,
} from "@espalier/engine-model";
import type { AdapterReading } from "@espalier/engines";
import { type Tier, tier } from "@espalier/prefix-index";
import type { BatchMark } from "@espalier/shared-tree";
import { blockTokens, type SimRequest } from "../clients/workload.ts";

/** One message of an engine's KV events. */
export interface EngineMessage extends BatchMark {
  readonly changes: BlockChanges;
}

/** What publishes KV events: an engine, or a pool outside the engines. */
export interface EventSource {
  /** From 0. */
  readonly number: number;
  /** The id of its only target. */
  readonly key: string;
  readonly isUp: boolean;
  /** Its epoch: 1 at first, one more with each restart. */
  readonly epochs: number;
  /** Messages of the current epoch in order of sequence number, from 0. Each epoch has its own list. */
  readonly messages: readonly EngineMessage[];
  /** The first message that can still be replayed. Engines keep only the latest ones. */
  readonly firstReplayed: number;
  /** Called when it publishes a message. The listener adds network delay itself. */
  onMessage(listener: (message: EngineMessage) => void): Cancel;
  /** Called when it was started or stopped. */
  onEpoch(listener: () => void): Cancel;
}

/** Receives the answer of one request. */
export interface AnswerObserver {
  firstToken(timeMs: number): void;
  /** `tokens` more tokens; the first one is not counted. */
  progress(tokens: number): void;
  finished(report: BlockReport): void;
  /** The KV import has arrived. */
  imported?(): void;
  /** The engine was killed. */
  lost(): void;
}

/** What a router adds to a request: the KV transfer of the other leg, the engine to pull from, and the priority. */
export interface LegOptions extends Pick<BlockRequest, "imported" | "pinned" | "priority"> {
  /** The request pulls what this engine has of its prompt in CPU memory. Ignored when that one serves no pulls. */
  readonly remote?: SimEngine | undefined;
}

/** An engine of the simulated fleet: the engine model driven by the virtual scheduler, with its KV events. */
export interface SimEngine extends EventSource {
  /** Capacity in KV tokens. */
  readonly kvTokens: number;
  stats(): EngineStats;
  /** The LoRA adapters in its metrics; undefined before its first request for one. */
  adapterReading(): AdapterReading | undefined;
  /** LoRA adapter loads over all its epochs; NaN before its first request for one. */
  readonly adapterLoads: number;
  /** Time spent computing in all epochs, in milliseconds. */
  readonly busyMs: number;
  /** @returns false when it is down: the connection is refused */
  submit(request: SimRequest, observer: AnswerObserver, leg?: LegOptions): boolean;
  /** Frees the blocks of a pinned request. Does nothing when there are none. */
  release(request: SimRequest): void;
  /** Aborts a request whose connection was closed. Its observer is not called again. */
  abort(request: SimRequest): void;
  /**
   * Its CPU memory, as a request of another engine sees it; undefined when it serves no pulls.
   *
   * @param to key of the other engine
   */
  sourceFor(request: SimRequest, to: string): RemoteSource | undefined;
  /** Whether it serves pulls, and can pull. */
  readonly lends: boolean;
  /** What it has sent to others in all epochs; undefined when it serves no pulls. */
  pullStats(): PullStats | undefined;
  /** Its steps take `factor` times as long, after restarts too; 1 is the initial speed. */
  slow(factor: number): void;
  kill(): void;
  start(): void;
}

interface ModelledEngineOptions {
  readonly number: number;
  readonly parameters: EngineParameters;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** False without listeners, so that no events are created. */
  readonly hasEvents: boolean;
  /** Whether messages are kept for later subscribers. */
  readonly keepsMessages: boolean;
  /** How others pull from its CPU memory; they cannot when absent. */
  readonly pull?: PullLimits | undefined;
  /** A pool that requests read from when they pull from no engine; none when absent. */
  readonly pool?: Pick<KvPool, "sourceFor"> | undefined;
}

/** Messages that vLLM keeps for replay by default (`buffer_steps`). */
const replayedMessages = 10_000;

/** Slots of an engine that never evicts an adapter. */
const maxAdapterSlots = 65_536;

/** Microseconds in a millisecond. */
const microseconds = 1_000;

/** A `BlockEngine` and its `PullSource`, driven by the virtual scheduler. The constructor throws a RangeError when a parameter is invalid. */
export class ModelledEngine implements SimEngine {
  readonly number: number;
  readonly key: string;
  readonly kvTokens: number;
  epochs = 1;
  isUp = true;
  readonly #options: ModelledEngineOptions;
  readonly #answers = new Map<number, AnswerObserver>();
  readonly #log: EventLog;
  readonly #epochListeners = new ListenerSet<void>();
  #model: BlockEngine;
  readonly #source: PullSource<BlockRequest> | undefined;
  /** Its own pulls from other engines. */
  readonly #pulls = new Set<CancelPull>();
  readonly #timer: ModelTimer;
  /** Whether there was a request for an adapter: in this epoch, and ever. */
  #usesAdapters = false;
  #hasUsedAdapters = false;
  /** Slowdown of its machine, which outlives the process. */
  #slowdown = 1;
  /** Adapter loads of earlier epochs. */
  #earlierLoads = 0;
  /** Of the epochs before. */
  #earlierBusyMs = 0;

  constructor(options: ModelledEngineOptions) {
    this.#options = options;
    this.number = options.number;
    this.key = `engine-${options.number}`;
    this.kvTokens = options.parameters.blockCount * options.parameters.blockSize;
    if (options.parameters.blockSize !== blockTokens) throw new RangeError(`blocks must have ${blockTokens} tokens`);
    this.#log = new EventLog(options);
    this.#model = this.#createModel();
    const { pull: limits } = options;
    this.#timer = new ModelTimer(options, {
      nextEventMs: () => earlier(this.#model.nextEventMs(), this.#source?.nextEventMs()),
      advanceTo: (nowMs) => {
        this.#source?.advanceTo(nowMs);
        this.#model.advanceTo(nowMs);
      },
    });
    const changed = (): void => this.#timer.reschedule();
    this.#source = limits && createPullSource({ engine: () => this.#model, limits, changed });
  }

  get messages(): readonly EngineMessage[] {
    return this.#log.messages;
  }

  get firstReplayed(): number {
    return this.#log.firstReplayed;
  }

  stats(): EngineStats {
    return this.#model.stats();
  }

  adapterReading(): AdapterReading | undefined {
    if (!this.#usesAdapters) return undefined;
    const { adapterSlots = maxAdapterSlots } = this.#options.parameters;
    return { slots: adapterSlots, ...this.#model.adapterUse() };
  }

  get busyMs(): number {
    return this.#earlierBusyMs + this.#model.stats().busyMs;
  }

  get adapterLoads(): number {
    return this.#hasUsedAdapters ? this.#earlierLoads + this.#model.stats().adapterLoads : Number.NaN;
  }

  submit(request: SimRequest, observer: AnswerObserver, leg: LegOptions = {}): boolean {
    if (!this.isUp) return false;
    const { index, promptTokens, outputTokens, chain, adapter } = request;
    const named = adapter === undefined ? undefined : { adapter };
    if (named) this.#hasUsedAdapters = this.#usesAdapters = true;
    const { remote: from, ...own } = leg;
    const asked = { id: index, promptTokens, outputTokens, chain, ...named, ...own };
    const peer = from && this.#source && from !== this ? from.sourceFor(request, this.key) : undefined;
    const pooled = own.imported ? undefined : this.#options.pool?.sourceFor(asked, this.key);
    const source = peer ?? pooled;
    const remote = source && { remote: this.#tracked(source) };
    this.#model.submit({ ...asked, ...remote }, this.#options.clock.nowMs());
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

  sourceFor({ index, promptTokens, outputTokens, chain }: SimRequest, to: string): RemoteSource | undefined {
    return this.#source?.sourceFor({ id: index, promptTokens, outputTokens, chain }, to);
  }

  get lends(): boolean {
    return this.#source !== undefined;
  }

  pullStats(): PullStats | undefined {
    return this.#source?.stats();
  }

  onMessage(listener: (message: EngineMessage) => void): Cancel {
    return this.#log.onMessage(listener);
  }

  onEpoch(listener: () => void): Cancel {
    return this.#epochListeners.add(listener);
  }

  slow(factor: number): void {
    this.#model.setSlowdown(factor, this.#options.clock.nowMs());
    this.#slowdown = factor;
    this.#reschedule();
  }

  kill(): void {
    if (!this.isUp) return;
    const nowMs = this.#options.clock.nowMs();
    this.isUp = false;
    for (const cancel of this.#pulls) cancel(nowMs);
    const lost = [...this.#answers.values()];
    this.#answers.clear();
    this.#earlierLoads += this.#model.stats().adapterLoads;
    this.#earlierBusyMs += this.#model.stats().busyMs;
    this.#usesAdapters = false;
    // A stopped engine runs nothing and caches nothing.
    this.#model = this.#createModel();
    this.#source?.drop(nowMs);
    this.#reschedule();
    this.#epochListeners.notify();
    for (const observer of lost) observer.lost();
  }

  start(): void {
    if (this.isUp) return;
    this.isUp = true;
    this.epochs++;
    this.#log.clear();
    this.#model = this.#createModel();
    this.#epochListeners.notify();
  }

  #createModel(): BlockEngine {
    const epoch = this.epochs;
    const { parameters, hasEvents } = this.#options;
    const model = createBlockEngine({
      parameters,
      observer: {
        firstToken: (id, timeMs) => this.#answers.get(id)?.firstToken(timeMs),
        progress: (id, tokens) => this.#answers.get(id)?.progress(tokens),
        finished: (report) => this.#finished(report),
        imported: (id) => this.#answers.get(id)?.imported?.(),
        ...(hasEvents ? { blocks: (changes, timeMs) => this.#log.publish(epoch, changes, timeMs) } : {}),
      },
    });
    if (this.#slowdown !== 1) model.setSlowdown(this.#slowdown, this.#options.clock.nowMs());
    return model;
  }

  /** This engine's next event changes when it hears from the source, and its pulls end with it. */
  #tracked(source: RemoteSource): RemoteSource {
    return {
      pull: (range, receiver, timeMs) => {
        const heard: PullReceiver = {
          found: (toTokens, atMs) => {
            receiver.found(toTokens, atMs);
            this.#reschedule();
          },
          done: (toTokens, atMs) => {
            this.#pulls.delete(cancel);
            receiver.done(toTokens, atMs);
            this.#reschedule();
          },
        };
        const end = source.pull(range, heard, timeMs);
        const cancel: CancelPull = (atMs) => {
          this.#pulls.delete(cancel);
          end(atMs);
        };
        this.#pulls.add(cancel);
        return cancel;
      },
    };
  }

  #finished(report: BlockReport): void {
    const observer = this.#answers.get(report.id);
    this.#answers.delete(report.id);
    observer?.finished(report);
  }

  #reschedule(): void {
    this.#timer.reschedule();
  }
}

interface EventLogOptions {
  readonly clock: Clock;
  /** Whether messages are kept for later subscribers. */
  readonly keepsMessages: boolean;
}

/** The messages that one source has published in its epoch. */
export class EventLog {
  messages: EngineMessage[] = [];
  readonly #options: EventLogOptions;
  readonly #listeners = new ListenerSet<EngineMessage>();
  #published = 0;

  constructor(options: EventLogOptions) {
    this.#options = options;
  }

  get firstReplayed(): number {
    return Math.max(0, this.#published - replayedMessages);
  }

  onMessage(listener: (message: EngineMessage) => void): Cancel {
    return this.#listeners.add(listener);
  }

  publish(epoch: number, changes: BlockChanges, timeMs: number): void {
    const { clock, keepsMessages } = this.#options;
    const sequence = this.#published++;
    const message: EngineMessage = {
      sequence,
      timestampUs: Math.round(clock.wallMs() * microseconds),
      checksum: checksumOf(epoch, sequence, timeMs, changes),
      changes,
    };
    if (keepsMessages) this.messages.push(message);
    this.#listeners.notify(message);
  }

  /** A new epoch begins. */
  clear(): void {
    this.messages = [];
    this.#published = 0;
  }
}

/** A model in virtual time. */
interface TimedModel {
  /** NaN or undefined for none. */
  nextEventMs(): number | undefined;
  advanceTo(timeMs: number): void;
}

/** Advances a model whenever its next event is due. */
export class ModelTimer {
  readonly #ports: { readonly clock: Clock; readonly scheduler: Scheduler };
  readonly #model: TimedModel;
  #cancel: Cancel | undefined;
  #dueMs = Number.NaN;
  readonly #advance = (): void => {
    const dueMs = this.#dueMs;
    this.#cancel = undefined;
    this.#dueMs = Number.NaN;
    // Rounding can make now plus a delay fall short of the moment.
    this.#model.advanceTo(Math.max(dueMs, this.#ports.clock.nowMs()));
    this.reschedule();
  };

  constructor(ports: { readonly clock: Clock; readonly scheduler: Scheduler }, model: TimedModel) {
    this.#ports = ports;
    this.#model = model;
  }

  /** Must be called when the model's next event may have changed. */
  reschedule(): void {
    const { clock, scheduler } = this.#ports;
    const dueMs = this.#model.nextEventMs() ?? Number.NaN;
    if (Object.is(dueMs, this.#dueMs)) return;
    this.#cancel?.();
    this.#dueMs = dueMs;
    this.#cancel = Number.isNaN(dueMs) ? undefined : scheduler.after(dueMs - clock.nowMs(), this.#advance);
  }
}

/** NaN without either. */
function earlier(one: number | undefined, other: number | undefined): number {
  return Math.min(one ?? other ?? Number.NaN, other ?? one ?? Number.NaN);
}

/** Distinguishes one engine's messages as a checksum over their bytes would; 32 bits. */
function checksumOf(epoch: number, sequence: number, timeMs: number, { words, runs }: BlockChanges): number {
  let sum = Math.imul(epoch, 0x9e37_79b1) ^ Math.imul(sequence + 1, 0x85eb_ca6b) ^ Math.imul(runs, 0xc2b2_ae35);
  sum = Math.imul(sum ^ Math.floor(timeMs * microseconds), 0x2c1b_3c6d);
  for (let at = 0; at < words.length; at += 2) sum = Math.imul(sum ^ words[at]!, 0x01000193);
  return (sum ^ (sum >>> 15)) >>> 0;
}

/** Listeners of one kind of event, called in order of registration. One that is removed during a call is skipped. */
export class ListenerSet<Event> {
  readonly #listeners = new Set<(event: Event) => void>();

  add(listener: (event: Event) => void): Cancel {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  notify(event: Event): void {
    for (const listener of this.#listeners) listener(event);
  }
}

/** Where the blocks of a run are stored or removed. */
export interface BlockMove {
  readonly tier: Tier;
  /** Stored there, or removed from there. */
  readonly isStored: boolean;
}

/** The move of a kind of `blockChange`; undefined for the kind that clears everything. */
export function blockMoveOf(kind: number): BlockMove | undefined {
  return moves.get(kind);
}

const moves = new Map<number, BlockMove>([
  [blockChange.stored, { tier: tier.gpu, isStored: true }],
  [blockChange.removed, { tier: tier.gpu, isStored: false }],
  [blockChange.offloaded, { tier: tier.cpu, isStored: true }],
  [blockChange.discarded, { tier: tier.cpu, isStored: false }],
  [blockChange.pooled, { tier: tier.external, isStored: true }],
  [blockChange.dropped, { tier: tier.external, isStored: false }],
]);
