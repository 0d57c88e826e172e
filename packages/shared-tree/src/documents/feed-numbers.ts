import type { EngineEpoch } from "../facts/engine-epoch.ts";
import type { FeedDeclaration } from "../facts/feed-declaration.ts";
import type { JournalFeed } from "./journal.ts";
import { checkStatement, feedStatement, type LogValue } from "./journal-log.ts";
import type { PlacementItems } from "./placement-items.ts";
import { FeedItems, type SettledItems } from "./settled-items.ts";

/** A feed of the own journal, from its declaration until nothing in the log mentions it. */
export interface NumberedFeed extends JournalFeed {
  /** Target and epoch as text. */
  readonly key: string;
  readonly statement: LogValue;
  /** Clock of the statement; undefined until it is committed. */
  clock: number | undefined;
  /** Whether a reader of the target's events writes this feed. Only that reader retires it then. */
  isRead: boolean;
  /** Which items of facts it needs. */
  readonly items: FeedItems;
}

export interface FeedNumbersOptions {
  readonly maxFeeds: number;
  readonly settled: SettledItems;
  /** Called before so many bytes become pending. */
  readonly reserve: (bytes: number) => void;
}

/**
 * What the feed numbers of the own journal mean. A feed is open until it is retired; only an open feed is written, and
 * found by its target and epoch. A feed and its number end when neither facts nor placements in the log mention it.
 */
export class FeedNumbers {
  readonly #options: FeedNumbersOptions;
  /** Feeds that have not ended; `takeEnded` removes. */
  readonly #feeds = new Map<number, NumberedFeed>();
  /** The open ones by target and epoch; `retire` removes. */
  readonly #open = new Map<string, NumberedFeed>();
  /** The feed of each target that prompts are placed under; `retire` removes. */
  readonly #placing = new Map<string, { readonly epoch: EngineEpoch | null; readonly feed: NumberedFeed }>();
  /** Not committed yet; `takePending` empties it, `takeEnded` removes. */
  #pending: NumberedFeed[] = [];
  /**
   * Retired feeds that facts do not mention, each with the last placement item that may mention it, in the order of
   * these items; `takeEnded` removes.
   */
  readonly #leaving: { readonly feed: NumberedFeed; readonly lastItem: number }[] = [];
  #nextNumber = 1;

  constructor(options: FeedNumbersOptions) {
    this.#options = options;
  }

  get hasPending(): boolean {
    return this.#pending.length > 0;
  }

  get(number: number): NumberedFeed | undefined {
    return this.#feeds.get(number);
  }

  all(): Iterable<NumberedFeed> {
    return this.#feeds.values();
  }

  /** @throws RangeError for a feed that was not declared, or was retired */
  open(number: number): NumberedFeed {
    const feed = this.#feeds.get(number);
    if (feed === undefined || feed.items.isRetired) throw new RangeError(`feed ${number} is not declared`);
    return feed;
  }

  /** @throws RangeError beyond the bound on feeds, and for texts that are too long */
  declare(declaration: FeedDeclaration): NumberedFeed {
    const { target, epoch } = declaration;
    const key = JSON.stringify([
      target,
      epoch && [epoch.sequence, epoch.timestampUs, epoch.checksum, epoch.predecessor],
    ]);
    const known = this.#open.get(key);
    if (known !== undefined) return known;
    if (this.#feeds.size >= this.#options.maxFeeds) throw new RangeError("too many feeds");
    const number = this.#nextNumber;
    const statement = feedStatement(number, declaration);
    checkStatement(statement);
    this.#options.reserve(2 * key.length);
    this.#nextNumber += 1;
    const items = new FeedItems(number);
    const unsynced = { clock: undefined, isRead: false, lastSequence: -1, lastCheckpoint: -1 };
    const feed: NumberedFeed = { number, key, declaration, statement, items, ...unsynced };
    this.#open.set(key, feed);
    this.#feeds.set(number, feed);
    this.#pending.push(feed);
    return feed;
  }

  /** The feed to place prompts under. Retires the one before it, unless events are written under it. */
  declarePlacing(declaration: FeedDeclaration): NumberedFeed {
    const { target, epoch } = declaration;
    const before = this.#placing.get(target);
    if (before?.epoch === epoch) return before.feed;
    const feed = this.declare(declaration);
    if (before && before.feed !== feed && !before.feed.isRead) this.retire(before.feed);
    this.#placing.set(target, { epoch, feed });
    return feed;
  }

  /** A feed that was retired before stays retired; its target and epoch may be those of another feed by now. */
  retire(feed: NumberedFeed): void {
    if (feed.items.isRetired) return;
    this.#open.delete(feed.key);
    const { target } = feed.declaration;
    if (this.#placing.get(target)?.feed === feed) this.#placing.delete(target);
    this.#options.settled.retire(feed.items);
  }

  retireAllOf(target: string): void {
    for (const feed of [...this.#open.values()]) if (feed.declaration.target === target) this.retire(feed);
  }

  /** Feeds to state before anything mentions them; the call takes them. */
  takePending(): readonly NumberedFeed[] {
    return this.#pending.splice(0);
  }

  /**
   * Ends the feeds that neither facts nor placement items mention any more.
   *
   * @returns clocks of their statements
   */
  takeEnded({ newest, oldest }: Pick<PlacementItems, "newest" | "oldest">): readonly number[] {
    for (const { number } of this.#options.settled.takeFreeFeeds()) {
      // Placements that are not written yet go into the next item.
      this.#leaving.push({ feed: this.#feeds.get(number)!, lastItem: newest + 1 });
    }
    const kept = this.#leaving.findIndex(({ lastItem }) => oldest !== undefined && oldest <= lastItem);
    const ended = this.#leaving.splice(0, kept < 0 ? this.#leaving.length : kept).map(({ feed }) => feed);
    const unstated = new Set<NumberedFeed>();
    for (const feed of ended) {
      this.#feeds.delete(feed.number);
      if (feed.clock === undefined) unstated.add(feed);
    }
    if (unstated.size > 0) this.#pending = this.#pending.filter((feed) => !unstated.has(feed));
    return ended.flatMap(({ clock }) => clock ?? []);
  }
}
