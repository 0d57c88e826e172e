import { type Tier, tierNames } from "@espalier/prefix-index";
import type { FoldState } from "../facts/fact-fold.ts";
import type { BatchMark, Life } from "../facts/life.ts";
import { cutUrgency } from "./cut-policy.ts";
import type { FeedReaderLimits } from "./feed-limits.ts";
import type { FeedReaderOptions } from "./feed-reader.ts";
import { createFeedReaderMeters, type FeedReaderMeters } from "./feed-reader-meters.ts";
import type { KeptEntry } from "./kept-records.ts";
import { OwnFeeds } from "./own-feeds.ts";
import { lastSequenceOf } from "./plan-takeover.ts";

/** Writes a target's entries and cuts, while this router reads its feed for all. */
export class FeedWriter {
  readonly meters: FeedReaderMeters;
  /** Blocks of a state that other readers have told, which this one cannot verify. */
  inheritedBlocks = 0;
  /** Blocks that were removed without being known to the ledger since the state was inherited. */
  unknownRemovals = 0;
  /** Whether the index holds exactly what the next message changes. */
  isLevel = false;
  readonly #options: FeedReaderOptions;
  readonly #limits: FeedReaderLimits;
  readonly #feeds: OwnFeeds;
  /** The message that the last cut was made at; undefined when this router has not made one since it took over. */
  #cutAt: number | undefined;
  #cutMs = 0;
  #openSinceMs: number | undefined;

  constructor(options: FeedReaderOptions, limits: FeedReaderLimits) {
    this.#options = options;
    this.#limits = limits;
    this.#feeds = new OwnFeeds(options.key, options.journal, options.fold);
    this.meters = createFeedReaderMeters(options.meter);
  }

  /** A reader takes over. */
  begin(inheritedBlocks: number): void {
    this.inheritedBlocks = inheritedBlocks;
    this.unknownRemovals = 0;
    this.isLevel = false;
    this.#cutAt = undefined;
    this.#cutMs = this.#options.clock.nowMs();
    this.#openSinceMs = undefined;
  }

  /** What was inherited is not believed for ever: not when the engine has removed much that the ledger does not know. */
  get isDistrusted(): boolean {
    return this.inheritedBlocks > 0 && this.unknownRemovals * 2 >= this.inheritedBlocks;
  }

  declare(life: Life): void {
    this.#feeds.declare(life);
  }

  /** Declares a life; no other one matters any more. */
  declareAlone(life: Life): void {
    this.#feeds.declare(life);
    this.#feeds.retireOthers(life);
  }

  /** A life was declared that is the newest now. */
  named(life: Life): void {
    this.meters.lifeNamed();
    this.#feeds.retireOthers(life);
  }

  write(life: Life, entries: readonly KeptEntry[]): void {
    this.#feeds.write(life, entries);
  }

  settle(life: Life, sequence: number): void {
    this.#feeds.settle(life, sequence);
  }

  retireOthers(current: Life): void {
    this.#feeds.retireOthers(current);
  }

  /** Sees whether the fold is where the reader is. */
  look(newest: BatchMark | undefined): void {
    const state = this.#options.fold.state(this.#options.key);
    this.isLevel = state?.progress === "current" && state.last?.sequence === newest?.sequence;
  }

  /** Blocks that the target holds now, in all tiers. */
  countBlocks(): number {
    const { index, slots, key } = this.#options;
    const slot = slots.find(key);
    if (slot < 0) return 0;
    return tierNames.reduce((sum, _name, tier) => sum + index.factBlockCount(slot, tier as Tier), 0);
  }

  /** States what the target holds. */
  cut(state: FoldState): void {
    const { life, last } = state;
    const stated = this.#options.fold.cutStatement(this.#options.key);
    if (!life || !last || !stated) return;
    this.#feeds.cut(life, last, stated);
    this.#cutAt = last.sequence;
    this.#cutMs = this.#options.clock.nowMs();
    this.#openSinceMs = undefined;
    this.meters.cut();
  }

  /** Cuts when it is time. */
  maintain(state: FoldState): void {
    if (!state.life || !state.last || isOnItsWay(state.progress)) return;
    const nowMs = this.#options.clock.nowMs();
    if (state.progress === "open") this.#openSinceMs ??= nowMs;
    else this.#openSinceMs = undefined;
    const isOpenLong = this.#openSinceMs !== undefined && nowMs - this.#openSinceMs >= this.#limits.openGapMs;
    const urgency = isOpenLong ? "due" : this.#urgency(state, nowMs);
    if (urgency === "none" || (urgency === "due" && state.progress === "open" && !isOpenLong)) return;
    if (urgency === "overdue" || (this.#options.takeCutTurn?.() ?? true)) this.cut(state);
  }

  describe() {
    return { inheritedBlocks: this.inheritedBlocks, unknownRemovals: this.unknownRemovals };
  }

  #urgency(state: FoldState, nowMs: number): "none" | "due" | "overdue" {
    // The first one after a takeover lets the journals of those who read before be given up.
    if (this.#cutAt === undefined) return "due";
    const ops = state.life ? this.#feeds.opsSinceCut(state.life) : 0;
    if (this.#options.isCutWanted?.(ops)) return "overdue";
    const sinceCutMs = nowMs - this.#cutMs;
    if (ops < this.#limits.minCutOps && sinceCutMs < this.#limits.maxCutAgeMs) return "none";
    const hasMoved = this.#cutAt !== lastSequenceOf(state);
    return cutUrgency({ ops, blocks: this.countBlocks(), sinceCutMs, hasMoved }, this.#limits);
  }
}

function isOnItsWay(progress: FoldState["progress"]): boolean {
  return progress === "loading" || progress === "waiting";
}
