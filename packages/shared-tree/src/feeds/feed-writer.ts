import { counterBy, counterOf, type Meter } from "@espalier/core";
import { type BatchMark, type EngineEpoch, epochId, markOf } from "../facts/engine-epoch.ts";
import type { FactFold, FoldState } from "../facts/fact-fold.ts";
import { type CheckpointEntry, type FactEntry, lastMessageOf } from "../facts/fact-item.ts";
import { blocksOf } from "../facts/target-fold.ts";
import { isSameMessage } from "./feed-epoch.ts";
import type { FeedJournal, FeedReaderOptions } from "./feed-reader.ts";
import { type KeptEntry, lastSequenceOf, type TakeoverPlan } from "./takeover.ts";

/** Writes a target's entries and checkpoints, while this router reads its feed for all routers. */
export class FeedWriter {
  readonly feeds: OwnFeeds;
  readonly meters: FeedReaderMeters;
  /** Blocks of a state that other readers have stated, which this one cannot verify. */
  inheritedBlocks = 0;
  /** Removed blocks that the ledger did not know, since the state was inherited. */
  unknownRemovals = 0;
  /** Whether the index holds exactly the state that the next message changes. */
  isLevel = false;
  readonly #options: FeedReaderOptions;
  readonly #limits: FeedReaderLimits;
  /** The message of the last checkpoint; undefined when this router has not made one since it took over. */
  #checkpointAt: number | undefined;
  #checkpointMs = 0;
  #openSinceMs: number | undefined;

  constructor(options: FeedReaderOptions, limits: FeedReaderLimits) {
    this.#options = options;
    this.#limits = limits;
    this.feeds = new OwnFeeds(options.key, options.journal, options.fold);
    this.meters = createFeedReaderMeters(options.meter);
  }

  /** A reader takes over. */
  begin(inheritedBlocks: number): void {
    this.inheritedBlocks = inheritedBlocks;
    this.unknownRemovals = 0;
    this.isLevel = false;
    this.#checkpointAt = undefined;
    this.#checkpointMs = this.#options.clock.nowMs();
    this.#openSinceMs = undefined;
  }

  /** An inherited state loses trust when the engine has removed many blocks that the ledger does not know. */
  get isDistrusted(): boolean {
    return this.inheritedBlocks > 0 && this.unknownRemovals * 2 >= this.inheritedBlocks;
  }

  /** Checks whether the fold is where the reader is. */
  look(newest: BatchMark | undefined): void {
    const state = this.#options.fold.state(this.#options.key);
    this.isLevel = state?.progress === "current" && state.last?.sequence === newest?.sequence;
  }

  /** Blocks that the target holds now, in all tiers. */
  countBlocks(): number {
    const { index, slots, key } = this.#options;
    const slot = slots.find(key);
    return slot < 0 ? 0 : blocksOf(index, slot);
  }

  /** States what the target holds. */
  checkpoint(state: FoldState): void {
    const { epoch, last } = state;
    const stated = this.#options.fold.checkpointStatement(this.#options.key);
    if (!epoch || !last || !stated) return;
    this.feeds.checkpoint(epoch, last, stated);
    this.#checkpointAt = last.sequence;
    this.#checkpointMs = this.#options.clock.nowMs();
    this.#openSinceMs = undefined;
    this.meters.checkpoint();
  }

  /** Writes a checkpoint when it is time. */
  maintain(state: FoldState): void {
    if (!state.epoch || !state.last || isOnItsWay(state.progress)) return;
    const nowMs = this.#options.clock.nowMs();
    if (state.progress === "open") this.#openSinceMs ??= nowMs;
    else this.#openSinceMs = undefined;
    const isOpenLong = this.#openSinceMs !== undefined && nowMs - this.#openSinceMs >= this.#limits.openGapMs;
    const urgency = isOpenLong ? "due" : this.#urgency(state, nowMs);
    if (urgency === "none" || (urgency === "due" && state.progress === "open" && !isOpenLong)) return;
    if (urgency === "overdue" || (this.#options.takeCheckpointTurn?.() ?? true)) this.checkpoint(state);
  }

  describe() {
    return { inheritedBlocks: this.inheritedBlocks, unknownRemovals: this.unknownRemovals };
  }

  #urgency(state: FoldState, nowMs: number): "none" | "due" | "overdue" {
    // With the first checkpoint after a takeover the journals of earlier readers can be abandoned.
    if (this.#checkpointAt === undefined) return "due";
    const ops = state.epoch ? this.feeds.opsSinceCheckpoint(state.epoch) : 0;
    if (this.#options.isCheckpointWanted?.(ops)) return "overdue";
    const sinceCheckpointMs = nowMs - this.#checkpointMs;
    if (ops < this.#limits.minCheckpointOps && sinceCheckpointMs < this.#limits.maxCheckpointAgeMs) return "none";
    const hasMoved = this.#checkpointAt !== lastSequenceOf(state);
    return checkpointUrgency({ ops, blocks: this.countBlocks(), sinceCheckpointMs, hasMoved }, this.#limits);
  }
}

function isOnItsWay(progress: FoldState["progress"]): boolean {
  return progress === "loading" || progress === "waiting";
}

/** Epochs of one target that this router may have entries of in its journal. */
export const maxOwnFeeds = 4;

interface OwnFeed {
  readonly epoch: EngineEpoch;
  readonly number: number;
  /** Numbers of further declarations, by the predecessor that each of them names. */
  readonly further: Map<string, number>;
  /** The last message of which anything was written; -1 for none. */
  last: number;
}

/** What this router's journal holds of one target, epoch by epoch. Everything written goes to the fold as well. */
export class OwnFeeds {
  readonly #target: string;
  readonly #journal: FeedJournal;
  readonly #fold: Pick<FactFold, "declare" | "apply" | "outranking">;
  /** By epoch, the latest declared last. */
  readonly #feeds = new Map<string, OwnFeed>();
  #journalEpoch: number;
  /** The feed that was used last. */
  #recent: OwnFeed | undefined;

  constructor(target: string, journal: FeedJournal, fold: Pick<FactFold, "declare" | "apply" | "outranking">) {
    this.#target = target;
    this.#journal = journal;
    this.#fold = fold;
    this.#journalEpoch = journal.origin.epoch;
  }

  /** Makes an epoch writable, and declares it the newest where that is not known yet. */
  declare(epoch: EngineEpoch): void {
    this.#outrank(this.#feedOf(epoch));
  }

  /** Writes several entries of an epoch. */
  write(epoch: EngineEpoch, entries: readonly KeptEntry[]): void {
    if (entries.length === 0) return;
    const feed = this.#feedOf(epoch);
    const numbered = entries.map((entry) => ({ ...entry, feed: feed.number }));
    for (const entry of numbered) {
      feed.last = Math.max(feed.last, lastMessageOf(entry));
      this.#journal.writeFact(entry);
    }
    this.#apply(numbered);
  }

  /** Writes a checkpoint, which makes everything up to it obsolete. */
  checkpoint(
    epoch: EngineEpoch,
    mark: BatchMark,
    stated: Pick<CheckpointEntry, "isComplete" | "blocks" | "digest">,
  ): void {
    const feed = this.#feedOf(epoch);
    const { isComplete, blocks, digest } = stated;
    const entry = { kind: "checkpoint", feed: feed.number, ...markOf(mark), isComplete, blocks, digest } as const;
    feed.last = Math.max(feed.last, mark.sequence);
    this.#journal.writeFact(entry);
    this.#apply([entry]);
    this.#journal.settle(feed.number, mark.sequence);
  }

  #apply(entries: readonly FactEntry[]): void {
    this.#fold.apply(this.#journal.origin, entries, (feed) => this.#journal.declarationOf(feed));
  }

  opsSinceCheckpoint(epoch: EngineEpoch): number {
    const feed = this.#known(epoch);
    return feed ? this.#journal.opsSinceCheckpoint(feed.number) : 0;
  }

  /** Another router has made a checkpoint: everything up to it in this journal is obsolete. */
  settle(epoch: EngineEpoch, sequence: number): void {
    const feed = this.#known(epoch);
    if (!feed) return;
    if (sequence >= feed.last) this.#retire(epochId(epoch));
    else this.#journal.settle(feed.number, sequence);
  }

  /** Only this epoch counts from now on. */
  retireOthers(current: EngineEpoch): void {
    for (const [id, { epoch }] of this.#feeds) if (!isSameMessage(epoch, current)) this.#retire(id);
  }

  #retire(id: string): void {
    const feed = this.#feeds.get(id);
    if (!feed) return;
    for (const number of [feed.number, ...feed.further.values()]) this.#journal.retireFeed(number);
    this.#feeds.delete(id);
    this.#recent = undefined;
  }

  #known(epoch: EngineEpoch): OwnFeed | undefined {
    const journalEpoch = this.#journal.origin.epoch;
    // The own journal has begun another epoch, and its old numbers mean nothing any more.
    if (journalEpoch !== this.#journalEpoch) {
      this.#feeds.clear();
      this.#recent = undefined;
      this.#journalEpoch = journalEpoch;
    }
    if (this.#recent && isSameMessage(this.#recent.epoch, epoch)) return this.#recent;
    this.#recent = this.#feeds.get(epochId(epoch));
    return this.#recent;
  }

  #feedOf(epoch: EngineEpoch): OwnFeed {
    const known = this.#known(epoch);
    if (known) return known;
    const declaration = { target: this.#target, epoch };
    const feed: OwnFeed = { epoch, number: this.#journal.declareFeed(declaration), further: new Map(), last: -1 };
    this.#feeds.set(epochId(epoch), feed);
    this.#fold.declare(declaration);
    const [oldest] = this.#feeds.keys();
    if (this.#feeds.size > maxOwnFeeds && oldest !== undefined) this.#retire(oldest);
    this.#outrank(feed);
    return feed;
  }

  /**
   * Declares that the epoch follows every one that is dated later. The own journal must say so itself: the journals
   * that named the epochs between may be gone for a router that joins later.
   */
  #outrank({ epoch, further }: OwnFeed): void {
    for (const predecessor of this.#fold.outranking(this.#target, epoch)) {
      if (predecessor === epoch.predecessor || further.has(predecessor)) continue;
      const declaration = { target: this.#target, epoch: { ...epoch, predecessor } };
      further.set(predecessor, this.#journal.declareFeed(declaration));
      this.#fold.declare(declaration);
    }
  }
}

export interface CheckpointNeed {
  /** Blocks stored and removed since the last checkpoint. */
  readonly ops: number;
  /** Blocks that the target holds. */
  readonly blocks: number;
  readonly sinceCheckpointMs: number;
  /** Whether any message followed the last checkpoint. */
  readonly hasMoved: boolean;
}

/** A checkpoint that got no turn is made without one after so many times what makes it due. */
const overdueFactor = 3;

/**
 * When a feed needs another checkpoint. Journals then keep at most one to three times what the target holds, and
 * replicas that differ find out. `due` ones take turns.
 */
export function checkpointUrgency(need: CheckpointNeed, limits: FeedReaderLimits): "none" | "due" | "overdue" {
  if (!need.hasMoved) return "none";
  const share = need.ops / Math.max(limits.minCheckpointOps, need.blocks);
  const age = need.sinceCheckpointMs / limits.maxCheckpointAgeMs;
  const most = Math.max(share, age);
  if (most < 1) return "none";
  return most < overdueFactor ? "due" : "overdue";
}

/** Bounds and times of a feed reader. */
export type FeedReaderLimits = Readonly<typeof defaultFeedLimits>;

export const defaultFeedLimits = {
  /** Records that a backup keeps, to take over without loss. */
  maxKeptRecords: 16_384,
  /** Bytes of these records, with their overhead. */
  maxKeptBytes: 4 * 1_024 * 1_024,
  /** A feed is checkpointed again after as many stored and removed blocks as it holds, and at least this many. */
  minCheckpointOps: 4_096,
  /** A feed that has moved is checkpointed after this time at the latest. */
  maxCheckpointAgeMs: 60_000,
  /** How long a gap stays open for a router that may fill it, before a checkpoint closes it. */
  openGapMs: 10_000,
  /** How long an owner waits to find out whether the epoch that others know is the one it reads. */
  epochWaitMs: 10_000,
  /** How long an owner that lacks messages waits for what the router that named the epoch has written of it. */
  factsWaitMs: 2_000,
};

/** @throws RangeError for limits that are no positive numbers */
export function checkFeedLimits(limits: Partial<FeedReaderLimits> = {}): FeedReaderLimits {
  const checked = { ...defaultFeedLimits, ...limits };
  for (const [name, limit] of Object.entries(checked)) {
    if (!(limit > 0)) throw new RangeError(`${name} is ${limit}`);
  }
  return checked;
}

export type FeedReaderMeters = ReturnType<typeof createFeedReaderMeters>;

/** Counters that the readers of all feeds share. */
export function createFeedReaderMeters(meter: Meter) {
  return {
    takenOver: counterBy<Exclude<TakeoverPlan["how"], "wait">>(
      meter,
      "method",
      "espalier_feed_takeovers_total",
      "Feeds that this router began to journal: from the journals' end, or with a whole state.",
    ),
    yielded: counterOf(meter, "espalier_feed_yields_total", "Feeds of this router taken over by another router."),
    checkpoint: counterOf(meter, "espalier_feed_checkpoints_total", "Target checkpoints written to the journal."),
    epochNamed: counterOf(meter, "espalier_feed_epochs_total", "Engine epochs announced by this router."),
  };
}
