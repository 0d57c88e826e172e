import type { Cancel, Scheduler } from "@espalier/common";
import { type LedgerSink, type Tier, tier } from "@espalier/prefix-index";
import type { EventReading, FeedOutput, FeedStanding, FeedStatus } from "@espalier/routing";
import { type BlockMove, blockMoveOf, type EngineMessage, type SimEngine } from "./sim-engine.ts";

interface EngineReadingOptions {
  readonly engine: SimEngine;
  readonly output: FeedOutput;
  /** Of the router that reads. */
  readonly scheduler: Scheduler;
  /** From the end of a step until the reader has its message. */
  readonly delayMs: number;
  /** Whether the next message is lost on its way to this reader. */
  readonly isLost: (message: EngineMessage) => boolean;
  /** Whether the engine tells what a reader missed. */
  readonly canReplay: () => boolean;
}

/** A router's subscription to the KV events of one engine. */
export function createEngineReading(options: EngineReadingOptions): EventReading {
  return new EngineReading(options);
}

class EngineReading implements EventReading {
  readonly #options: EngineReadingOptions;
  readonly #ends: Cancel[] = [];
  #life = 0;
  /** What the engine has published in that life, which may be over before this reader hears of it. */
  #published: readonly EngineMessage[] = [];
  /** The sequence that is read next. */
  #next = 0;
  #isComplete = true;
  /** What the reader has heard of and not seen go; undefined while that is all that the engine has told. */
  #held: BlockSet | undefined;
  #standing: FeedStanding = "void";
  #isStopped = false;

  constructor(options: EngineReadingOptions) {
    this.#options = options;
  }

  get standing(): FeedStanding {
    return this.#standing;
  }

  async start(): Promise<void> {
    const { engine, scheduler, delayMs } = this.#options;
    this.#ends.push(
      engine.onMessage((message) => {
        if (this.#options.isLost(message)) return;
        const { lives } = engine;
        scheduler.after(delayMs, () => this.#arrived(lives, message));
      }),
      engine.onLife(() => scheduler.after(delayMs, () => this.#connect())),
    );
    // A connection, and a question for what was said before it.
    scheduler.after(3 * delayMs, () => this.#connect());
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const end of this.#ends) end();
  }

  attach(): void {}

  tellAll(sink: LedgerSink): void {
    const held = this.#held ?? this.#heldByLog();
    held.forEachTier((inTier, words) => sink.stored(inTier, words, 0, words.length / 2));
  }

  describe(): FeedStatus {
    const { key } = this.#options.engine;
    const count = (inTier: Tier): number => this.#held?.size(inTier) ?? 0;
    const blocks = { gpu: count(tier.gpu), cpu: count(tier.cpu), disk: 0, external: 0 };
    const state = this.#standing === "complete" ? "live" : "partial";
    const unread = { role: null, owner: null, floatingBlocks: 0, unusable: null };
    return { target: key, state, reason: state, blocks, ...unread };
  }

  /** The engine can be heard, or cannot any more. */
  #connect(): void {
    if (this.#isStopped) return;
    const { engine, canReplay, output } = this.#options;
    if (!engine.isUp) {
      this.#tell("void", "stale", "socket-lost");
      return;
    }
    if (engine.lives !== this.#life) {
      const isFirst = this.#life === 0;
      this.#life = engine.lives;
      this.#published = engine.messages;
      this.#held = undefined;
      const known = isFirst ? engine.messages.length : 0;
      const from = canReplay() ? engine.firstReplayed : known;
      this.#next = from;
      this.#isComplete = from === 0;
      if (!this.#isComplete) this.#held = new BlockSet();
      if (!isFirst) output.newLife();
    }
    this.#replay();
    this.#tellStanding();
  }

  #arrived(life: number, message: EngineMessage): void {
    if (this.#isStopped || this.#life === 0) return;
    const { engine, output } = this.#options;
    if (life !== this.#life || !engine.isUp) return;
    if (message.sequence < this.#next) return;
    this.#replay(message.sequence);
    if (message.sequence > this.#next) {
      this.#held ??= this.#heldByLog();
      this.#isComplete = false;
      output.gap(this.#next, message.sequence - 1);
      this.#next = message.sequence;
      this.#tellStanding();
    }
    this.#read(message);
  }

  /** Reads what the engine still has of what was missed, up to a sequence. What a process had sent is gone with it. */
  #replay(until = Number.POSITIVE_INFINITY): void {
    const { engine, canReplay } = this.#options;
    if (!canReplay() || engine.lives !== this.#life || this.#next < engine.firstReplayed) return;
    const end = Math.min(until, this.#published.length);
    while (this.#next < end) this.#read(this.#published[this.#next]!);
  }

  #read(message: EngineMessage): void {
    const { output } = this.#options;
    const unknownRemovals = this.#held ? this.#tellKnown(message, this.#held) : tellChanges(message, output);
    const { sequence, timestampUs, checksum } = message;
    this.#next = sequence + 1;
    output.batch({ sequence, timestampUs, checksum }, { isComplete: this.#isComplete, unknownRemovals });
  }

  /** Tells what changes for a reader that has not heard everything. @returns removals of blocks it did not know of */
  #tellKnown({ changes }: EngineMessage, held: BlockSet): number {
    const { sink } = this.#options.output;
    let unknown = 0;
    forEachRun(changes, (kind, from, to) => {
      const move = blockMoveOf(kind);
      if (!move) {
        held.clear();
        sink.cleared();
        this.#options.output.emptied();
        return;
      }
      for (let block = from; block < to; block++) {
        const isNews = held.apply(move, changes.words, block);
        if (!isNews) unknown += move.isStored ? 0 : 1;
        else if (move.isStored) sink.stored(move.tier, changes.words, block, block + 1);
        else sink.removed(move.tier, changes.words, block, block + 1);
      }
    });
    return unknown;
  }

  /** What a reader that has heard everything up to its sequence holds. */
  #heldByLog(): BlockSet {
    const held = new BlockSet();
    for (const { changes } of this.#published.slice(0, this.#next)) {
      forEachRun(changes, (kind, from, to) => {
        const move = blockMoveOf(kind);
        if (!move) held.clear();
        else for (let block = from; block < to; block++) held.apply(move, changes.words, block);
      });
    }
    return held;
  }

  #tellStanding(): void {
    if (this.#isComplete) this.#tell("complete", "live", "complete");
    else this.#tell("partial", "partial", "incomplete");
  }

  #tell(standing: FeedStanding, state: string, reason: string): void {
    this.#standing = standing;
    this.#options.output.condition({ standing, state, reason, unusable: undefined });
  }
}

/** Tells a sink everything that a message says. @returns 0, for nothing in it is unknown to who has heard everything */
function tellChanges({ changes }: EngineMessage, output: FeedOutput): number {
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

/** Blocks by their chain hashes, tier by tier: for readers that have missed something, which is rare, so plain. */
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

  /** Gives the blocks of each tier that has any, two words a block, low word first. */
  forEachTier(visit: (tier: Tier, words: Uint32Array) => void): void {
    for (const [tier, hashes] of this.#tiers) {
      if (hashes.size > 0) visit(tier, new Uint32Array(BigUint64Array.from(hashes).buffer));
    }
  }
}

function hashAt(words: Uint32Array, block: number): bigint {
  return (BigInt(words[2 * block + 1]!) << 32n) | BigInt(words[2 * block]!);
}

/** What becomes of engines' messages on their way to readers. */
export interface EventFaults {
  isLost(engine: number, sequence: number): boolean;
  canReplay(engine: number): boolean;
  /** The next messages are lost. */
  lose(engine: number, messages: number): void;
  setReplay(engine: number, isOn: boolean): void;
  /** Nothing more is lost. What was, stays so. */
  heal(): void;
}

/** Must be made before any reader listens, so that it hears of each message first. */
export function createEventFaults(engines: readonly SimEngine[]): EventFaults {
  const states = engines.map((engine) => {
    const state = { left: 0, lost: new Set<number>(), canReplay: true };
    engine.onMessage(({ sequence }) => {
      if (state.left === 0) return;
      state.left--;
      state.lost.add(sequence);
    });
    engine.onLife(() => state.lost.clear());
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
