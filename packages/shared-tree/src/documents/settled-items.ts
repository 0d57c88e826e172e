import { type FactEntry, lastMessageOf } from "../facts/fact-item.ts";
import { itemOverheadBytes } from "./journal-document.ts";

/** An item of facts in the own log. */
interface Item {
  /** Undefined until it is committed. */
  clock: number | undefined;
  byteLength: number;
  /** What it is still needed for: feeds with unsettled records, and newest checkpoints. */
  open: number;
  /** Feeds that it mentions, each once. */
  readonly feeds: FeedItems[];
}

/** What one feed of the own log still needs. */
export class FeedItems {
  readonly number: number;
  settled = -1;
  /** Items with records or gaps beyond the settled sequence, and the last sequence in each. */
  readonly unsettled = new Map<Item, number>();
  /** The item that holds the newest checkpoint. */
  checkpoint: Item | undefined;
  /** Number of items in the log that mention it, and the latest of them. */
  mentions = 0;
  mentionedBy: Item | undefined;
  isRetired = false;
  /** Ops since its last checkpoint. */
  ops = 0;

  constructor(number: number) {
    this.number = number;
  }
}

/**
 * Tracks which items of the own fact log are needed: those with an entry that no newer checkpoint of its feed has
 * replaced. It keeps one summary per item and feed, however many entries there are.
 */
export class SettledItems {
  #current: Item = newItem();
  readonly #deletable: Item[] = [];
  #deletableBytes = 0;
  /** Items in the log, the oldest first. */
  readonly #log = new Set<Item>();
  readonly #freeFeeds: FeedItems[] = [];

  /** Items in the log. */
  get items(): number {
    return this.#log.size;
  }

  get deletableItems(): number {
    return this.#deletable.length;
  }

  get deletableBytes(): number {
    return this.#deletableBytes;
  }

  /** Adds an entry to the item that is being gathered. */
  add(feed: FeedItems, entry: FactEntry, ops: number): void {
    const item = this.#current;
    if (feed.mentionedBy !== item) {
      feed.mentionedBy = item;
      item.feeds.push(feed);
      feed.mentions += 1;
    }
    if (entry.kind === "checkpoint") {
      this.#release(feed.checkpoint);
      feed.checkpoint = item;
      item.open += 1;
      feed.ops = 0;
      return;
    }
    feed.ops += ops;
    const last = lastMessageOf(entry);
    if (last <= feed.settled) return;
    const before = feed.unsettled.get(item);
    if (before === undefined) item.open += 1;
    feed.unsettled.set(item, Math.max(before ?? 0, last));
  }

  /** The gathered item is in the log now, at this clock. */
  commit(clock: number, byteLength: number): void {
    const item = this.#current;
    this.#current = newItem();
    item.clock = clock;
    item.byteLength = byteLength;
    this.#log.add(item);
    if (item.open === 0) this.#toDelete(item);
  }

  settle(feed: FeedItems, sequence: number): void {
    if (sequence <= feed.settled) return;
    feed.settled = sequence;
    for (const [item, last] of feed.unsettled) {
      if (last > sequence) continue;
      feed.unsettled.delete(item);
      this.#release(item);
    }
  }

  retire(feed: FeedItems): void {
    if (feed.isRetired) return;
    this.settle(feed, Number.POSITIVE_INFINITY);
    feed.isRetired = true;
    this.#release(feed.checkpoint);
    feed.checkpoint = undefined;
    if (feed.mentions === 0) this.#freeFeeds.push(feed);
  }

  /**
   * Marks the oldest items for deletion, needed or not, until so many bytes can go. Routers that lack them ask for a
   * state.
   */
  dropOldest(bytes: number): void {
    for (const item of this.#log) {
      if (this.#deletableBytes + this.#deletable.length * itemOverheadBytes >= bytes) return;
      for (const feed of item.feeds) {
        const last = feed.unsettled.get(item);
        if (last !== undefined) this.settle(feed, last);
        if (feed.checkpoint !== item) continue;
        feed.checkpoint = undefined;
        this.#release(item);
      }
    }
  }

  /** Clocks of obsolete items; the call takes them. */
  takeDeletable(): readonly number[] {
    const taken = this.#deletable.splice(0);
    this.#deletableBytes = 0;
    for (const item of taken) {
      this.#log.delete(item);
      for (const feed of item.feeds) {
        feed.mentions -= 1;
        if (feed.mentions === 0) {
          feed.mentionedBy = undefined;
          if (feed.isRetired) this.#freeFeeds.push(feed);
        }
      }
    }
    return taken.map(({ clock }) => clock!);
  }

  /** Retired feeds that no item mentions any more; the call takes them. */
  takeFreeFeeds(): readonly FeedItems[] {
    return this.#freeFeeds.splice(0);
  }

  #release(item: Item | undefined): void {
    if (item === undefined) return;
    item.open -= 1;
    if (item.open === 0 && item.clock !== undefined) this.#toDelete(item);
  }

  #toDelete(item: Item): void {
    this.#deletable.push(item);
    this.#deletableBytes += item.byteLength;
  }
}

function newItem(): Item {
  return { clock: undefined, byteLength: 0, open: 0, feeds: [] };
}
