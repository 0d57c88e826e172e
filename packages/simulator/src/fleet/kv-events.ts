import type { Cancel, Scheduler } from "@espalier/core";
import { type LedgerSink, type Tier, tier } from "@espalier/prefix-index";
import type { EventReading, FeedOutput, FeedQuality, FeedStatus } from "@espalier/shared-tree";
import { type BlockMove, blockMoveOf, type EngineMessage, type EventSource } from "./sim-engine.ts";

interface EventSubscriptionOptions {
  readonly engine: EventSource;
  readonly output: FeedOutput;
  /** The router that reads. */
  readonly scheduler: Scheduler;
  /** Delay from the end of a step until the subscriber receives its message. */
  readonly delayMs: number;
  /** Whether a message is lost. */
  readonly isLost: (message: EngineMessage) => boolean;
  /** Whether the engine replays missed messages. */
  readonly canReplay: () => boolean;
}

/** A router's subscription to the KV events of one engine or pool. */
export class EventSubscription implements EventReading {
  readonly #options: EventSubscriptionOptions;
  readonly #ends: Cancel[] = [];
  #epoch = 0;
  /** Messages of that epoch, which may have ended without this subscriber knowing. */
  #published: readonly EngineMessage[] = [];
  /** The next sequence number to read. */
  #next = 0;
  #isComplete = true;
  /** Known blocks; undefined while the subscriber has received every message. */
  #blocks: BlockSet | undefined;
  #quality: FeedQuality = "void";
  #isStopped = false;

  constructor(options: EventSubscriptionOptions) {
    this.#options = options;
  }

  get quality(): FeedQuality {
    return this.#quality;
  }

  async start(): Promise<void> {
    const { engine, scheduler, delayMs } = this.#options;
    this.#ends.push(
      engine.onMessage((message) => {
        if (this.#options.isLost(message)) return;
        const epoch = engine.epochs;
        scheduler.after(delayMs, () => this.#arrived(epoch, message));
      }),
      engine.onEpoch(() => scheduler.after(delayMs, () => this.#connect())),
    );
    // Delay of a connection plus a request for earlier messages.
    scheduler.after(3 * delayMs, () => this.#connect());
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const end of this.#ends) end();
  }

  attach(): void {}

  tellAll(sink: LedgerSink): void {
    const blocks = this.#blocks ?? this.#blocksFromLog();
    blocks.forEachTier((inTier, words) => sink.stored(inTier, words, 0, words.length / 2));
  }

  describe(): FeedStatus {
    const { key } = this.#options.engine;
    const count = (inTier: Tier): number => this.#blocks?.size(inTier) ?? 0;
    const blocks = { gpu: count(tier.gpu), cpu: count(tier.cpu), disk: 0, external: 0 };
    const state = this.#quality === "complete" ? "live" : "partial";
    const unread = { role: null, owner: null, floatingBlocks: 0, unusable: null };
    return { target: key, state, reason: state, blocks, ...unread };
  }

  /** The engine became reachable or unreachable. */
  #connect(): void {
    if (this.#isStopped) return;
    const { engine, canReplay, output } = this.#options;
    if (!engine.isUp) {
      this.#report("void", "stale", "socket-lost");
      return;
    }
    if (engine.epochs !== this.#epoch) {
      const isFirst = this.#epoch === 0;
      this.#epoch = engine.epochs;
      this.#published = engine.messages;
      this.#blocks = undefined;
      const known = isFirst ? engine.messages.length : 0;
      const from = canReplay() ? engine.firstReplayed : known;
      this.#next = from;
      this.#isComplete = from === 0;
      if (!this.#isComplete) this.#blocks = new BlockSet();
      if (!isFirst) output.newEpoch();
    }
    this.#replay();
    this.#reportConfidence();
  }

  #arrived(epoch: number, message: EngineMessage): void {
    if (this.#isStopped || this.#epoch === 0) return;
    const { engine, output } = this.#options;
    if (epoch !== this.#epoch || !engine.isUp) return;
    if (message.sequence < this.#next) return;
    this.#replay(message.sequence);
    if (message.sequence > this.#next) {
      this.#blocks ??= this.#blocksFromLog();
      this.#isComplete = false;
      output.gap(this.#next, message.sequence - 1);
      this.#next = message.sequence;
      this.#reportConfidence();
    }
    this.#read(message);
  }

  /** Reads missed messages that the engine still has, up to a sequence number. A restart loses them. */
  #replay(until = Number.POSITIVE_INFINITY): void {
    const { engine, canReplay } = this.#options;
    if (!canReplay() || engine.epochs !== this.#epoch || this.#next < engine.firstReplayed) return;
    const end = Math.min(until, this.#published.length);
    while (this.#next < end) this.#read(this.#published[this.#next]!);
  }

  #read(message: EngineMessage): void {
    const { output } = this.#options;
    const unknownRemovals = this.#blocks ? this.#applyPartial(message, this.#blocks) : applyAll(message, output);
    const { sequence, timestampUs, checksum } = message;
    this.#next = sequence + 1;
    output.batch({ sequence, timestampUs, checksum }, { isComplete: this.#isComplete, unknownRemovals });
  }

  /** Applies a message to an incomplete subscription. @returns removals of unknown blocks */
  #applyPartial({ changes }: EngineMessage, blocks: BlockSet): number {
    const { sink } = this.#options.output;
    let unknown = 0;
    forEachRun(changes, (kind, from, to) => {
      const move = blockMoveOf(kind);
      if (!move) {
        blocks.clear();
        sink.cleared();
        this.#options.output.emptied();
        return;
      }
      for (let block = from; block < to; block++) {
        const isChange = blocks.apply(move, changes.words, block);
        if (!isChange) unknown += move.isStored ? 0 : 1;
        else if (move.isStored) sink.stored(move.tier, changes.words, block, block + 1);
        else sink.removed(move.tier, changes.words, block, block + 1);
      }
    });
    return unknown;
  }

  /** The blocks after all messages up to the next sequence number. */
  #blocksFromLog(): BlockSet {
    const blocks = new BlockSet();
    for (const { changes } of this.#published.slice(0, this.#next)) {
      forEachRun(changes, (kind, from, to) => {
        const move = blockMoveOf(kind);
        if (!move) blocks.clear();
        else for (let block = from; block < to; block++) blocks.apply(move, changes.words, block);
      });
    }
    return blocks;
  }

  #reportConfidence(): void {
    if (this.#isComplete) this.#report("complete", "live", "complete");
    else this.#report("partial", "partial", "incomplete");
  }

  #report(quality: FeedQuality, state: string, reason: string): void {
    this.#quality = quality;
    this.#options.output.condition({ quality, state, reason, unusable: undefined });
  }
}

/** Applies a message to a complete subscription. @returns 0: it has no unknown removals */
function applyAll({ changes }: EngineMessage, output: FeedOutput): number {
  const { sink } = output;
  forEachRun(changes, (kind, from, to) => {
    const move = blockMoveOf(kind);
    if (move?.isStored) sink.stored(move.tier, changes.words, from, to);
    else if (move) sink.removed(move.tier, changes.words, from, to);
    else {
      sink.cleared();
      output.emptied();
    }
  });
  return 0;
}

function forEachRun(
  { runs, kinds, ends }: EngineMessage["changes"],
  visit: (kind: number, from: number, to: number) => void,
): void {
  for (let run = 0; run < runs; run++) visit(kinds[run]!, run === 0 ? 0 : ends[run - 1]!, ends[run]!);
}

/** Blocks by their chain hashes, per tier. Kept simple, because incomplete subscriptions are rare. */
class BlockSet {
  readonly #tiers = new Map<Tier, Set<bigint>>();

  size(inTier: Tier): number {
    return this.#tiers.get(inTier)?.size ?? 0;
  }

  /** @returns whether that changed anything */
  apply({ tier, isStored }: BlockMove, words: Uint32Array, block: number): boolean {
    const hashes = this.#tiers.get(tier) ?? new Set();
    this.#tiers.set(tier, hashes);
    const before = hashes.size;
    if (isStored) hashes.add(hashAt(words, block));
    else hashes.delete(hashAt(words, block));
    return hashes.size !== before;
  }

  clear(): void {
    this.#tiers.clear();
  }

  /** Visits the blocks of each non-empty tier, two words a block, low word first. */
  forEachTier(visit: (tier: Tier, words: Uint32Array) => void): void {
    for (const [tier, hashes] of this.#tiers) {
      if (hashes.size > 0) visit(tier, new Uint32Array(BigUint64Array.from(hashes).buffer));
    }
  }
}

function hashAt(words: Uint32Array, block: number): bigint {
  return (BigInt(words[2 * block + 1]!) << 32n) | BigInt(words[2 * block]!);
}

/** Injected faults of KV event delivery. */
export interface EventFaults {
  isLost(engine: number, sequence: number): boolean;
  canReplay(engine: number): boolean;
  /** Loses the next messages. */
  lose(engine: number, messages: number): void;
  setReplay(engine: number, isOn: boolean): void;
  /** Stops losing messages. Lost ones stay lost. */
  heal(): void;
}

/** Must be created before any subscription, so that it sees each message first. */
export function createEventFaults(engines: readonly EventSource[]): EventFaults {
  const states = engines.map((engine) => {
    const state = { left: 0, lost: new Set<number>(), canReplay: true };
    engine.onMessage(({ sequence }) => {
      if (state.left === 0) return;
      state.left--;
      state.lost.add(sequence);
    });
    engine.onEpoch(() => state.lost.clear());
    return state;
  });
  return {
    isLost: (engine, sequence) => states[engine]!.lost.has(sequence),
    canReplay: (engine) => states[engine]!.canReplay,
    lose: (engine, messages) => {
      states[engine]!.left += messages;
    },
    setReplay: (engine, isOn) => {
      states[engine]!.canReplay = isOn;
    },
    heal() {
      for (const state of states) state.left = 0;
    },
  };
}
