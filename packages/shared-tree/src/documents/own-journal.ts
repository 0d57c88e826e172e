import type { Clock } from "@espalier/core";
import type { DocumentUpdate, Origin } from "@espalier/mesh";
import { type FactEntry, FactItemWriter } from "../facts/fact-item.ts";
import { countFactOps } from "../facts/fact-ops.ts";
import type { FeedDeclaration } from "../facts/feed-declaration.ts";
import type { FeedClaim } from "../feeds/feed-claim.ts";
import { FeedNumbers } from "./feed-numbers.ts";
import { type JournalFeed, noteEntry, type OwnJournalObserver } from "./journal.ts";
import type { JournalDocument } from "./journal-document.ts";
import { binaryItem, checkStatement, claimStatement, itemKind, type LogValue } from "./journal-log.ts";
import { PlacementItems } from "./placement-items.ts";
import { SettledItems } from "./settled-items.ts";

/** Pending entries are committed before they grow beyond this. */
export const maxCommitBytes = 1_048_576;
/** Bytes of one placement item: the longest chain that a record may have, and 4 KiB for the item's other parts. */
export const maxPlacementItemBytes = 65_536 * 8 + 4_096;
/** Without anything to write, an empty item is written once so many bytes can be deleted. */
const minDeletionBytes = 65_536;
const minDeletionItems = 64;
/** Upper bound of an entry's bytes in the fact log without its ops. */
const entryOverheadBytes = 48;

export interface OwnJournalOptions {
  readonly document: JournalDocument;
  readonly clock: Clock;
  readonly maxFeeds: number;
  readonly maxOwnBytes: number;
  readonly maxHeldBytes: number;
  readonly maxPlacementBytes: number;
  readonly onCommit: (update: DocumentUpdate) => void;
  readonly observer?: OwnJournalObserver | undefined;
}

/**
 * The journal of this router in its present epoch; each epoch has another document. `commit` makes what is written
 * visible to others.
 */
export class OwnJournal {
  document: JournalDocument;
  readonly #options: OwnJournalOptions;
  #facts = new FactItemWriter();
  #settled = new SettledItems();
  #placements: PlacementItems;
  #feeds: FeedNumbers;
  readonly #claims = new Map<string, FeedClaim>();
  readonly #claimClocks = new Map<string, number>();
  readonly #changedClaims = new Set<string>();
  #emptyClocks: number[] = [];
  #pendingBytes = 0;

  constructor(options: OwnJournalOptions) {
    this.#options = options;
    this.document = options.document;
    this.#placements = new PlacementItems(options.maxPlacementBytes);
    this.#feeds = this.#createFeeds();
  }

  /** Begins an empty journal of a later epoch; what was not committed in the one before never becomes visible. */
  restart(document: JournalDocument): void {
    this.document.destroy();
    this.document = document;
    this.#facts = new FactItemWriter();
    this.#settled = new SettledItems();
    this.#placements = new PlacementItems(this.#options.maxPlacementBytes);
    this.#feeds = this.#createFeeds();
    this.#claims.clear();
    this.#claimClocks.clear();
    this.#changedClaims.clear();
    this.#emptyClocks = [];
    this.#pendingBytes = 0;
  }

  get origin(): Origin {
    return this.document.origin;
  }

  get name(): string {
    return this.document.name;
  }

  /** Claims of this router, by target. */
  get claims(): ReadonlyMap<string, FeedClaim> {
    return this.#claims;
  }

  /** Whether it is so long that its feeds should be checkpointed, before other routers refuse it. */
  get isLong(): boolean {
    return this.document.byteLength > this.#options.maxOwnBytes;
  }

  get factItems(): number {
    return this.#settled.items;
  }

  get placementItems(): number {
    return this.#placements.items;
  }

  get hasPending(): boolean {
    const { entryCount } = this.#facts;
    const hasNew = entryCount > 0 || this.#feeds.hasPending || this.#placements.hasPending;
    return hasNew || this.#changedClaims.size > 0 || this.#hasMuchToDelete();
  }

  /**
   * @returns the number of the feed: the same for the same target and epoch, until `retireFeed`
   * @throws RangeError beyond the bound on feeds, and for texts that are too long
   */
  declareFeed(declaration: FeedDeclaration): number {
    const feed = this.#feeds.declare(declaration);
    feed.isRead = true;
    return feed.number;
  }

  /**
   * As `declareFeed`, for prompts that are placed. Once prompts are placed in another epoch of the target, the number
   * is retired unless the target's events are written under it.
   *
   * @throws RangeError as `declareFeed`
   */
  placingFeed(declaration: FeedDeclaration): number {
    this.#options.observer?.pending();
    return this.#feeds.declarePlacing(declaration).number;
  }

  /** What a number denotes; undefined if it was never given or its feed has left the log. */
  declarationOf(feed: number): FeedDeclaration | undefined {
    return this.#feeds.get(feed)?.declaration;
  }

  /** The feeds whose numbers are in use. */
  feeds(): Iterable<JournalFeed> {
    return this.#feeds.all();
  }

  /** @throws RangeError beyond the bound on claims, which equals that on feeds, and for texts that are too long */
  claim(claim: FeedClaim): void {
    const { target, state, reason, unusable } = claim;
    if (!this.#claims.has(target) && this.#claims.size >= this.#options.maxFeeds)
      throw new RangeError("too many claims");
    checkStatement(claimStatement(claim));
    this.#reserve(2 * (target.length + state.length + reason.length + (unusable?.length ?? 0)));
    this.#claims.set(target, claim);
    this.#changedClaims.add(target);
    this.#options.observer?.pending();
    this.#options.observer?.claimChanged(target, claim);
  }

  unclaim(target: string): void {
    if (!this.#claims.delete(target)) return;
    if (this.#claimClocks.has(target)) this.#changedClaims.add(target);
    else this.#changedClaims.delete(target);
    this.#options.observer?.pending();
    this.#options.observer?.claimChanged(target, undefined);
  }

  /** @throws RangeError for a feed that is not declared, and for what `FactItemWriter.add` refuses */
  writeFact(entry: FactEntry): void {
    const feed = this.#feeds.open(entry.feed);
    const ops = entry.kind === "record" ? entry.ops.length : 0;
    const count = entry.kind === "record" ? countFactOps(entry.ops) : 0;
    this.#reserve(ops + entryOverheadBytes);
    this.#facts.add(entry);
    this.#settled.add(feed.items, entry, count);
    noteEntry(feed, entry);
    this.#options.observer?.pending();
  }

  /** Entries of this feed up to and including this sequence are obsolete, except its newest checkpoint. */
  settle(feed: number, sequence: number): void {
    const known = this.#feeds.get(feed);
    if (known === undefined) return;
    this.#settled.settle(known.items, sequence);
    this.#options.observer?.pending();
  }

  /** The whole feed is obsolete: its epoch has ended, or another router has checkpointed beyond it. */
  retireFeed(feed: number): void {
    const known = this.#feeds.get(feed);
    if (known === undefined) return;
    this.#feeds.retire(known);
    this.#options.observer?.pending();
  }

  /** All feeds of this target are obsolete: no router has the target. */
  retireFeedsOf(target: string): void {
    this.#feeds.retireAllOf(target);
    this.#options.observer?.pending();
  }

  /**
   * Adds one item to the placement log.
   *
   * @param expiresMs when all of it is obsolete, on the monotonic clock
   * @returns a number for `keepPlacements`
   * @throws RangeError for an item that is too long
   */
  writePlacements(item: Uint8Array, expiresMs: number): number {
    if (item.length > maxPlacementItemBytes) throw new RangeError(`a placement item of ${item.length} bytes`);
    this.#reserve(item.length);
    return this.#placements.add(item, expiresMs);
  }

  /** Keeps an item until then, because a later one refers to it. */
  keepPlacements(item: number, untilMs: number): void {
    this.#placements.keep(item, untilMs);
  }

  /** Whether the item is still in the log and not marked for deletion for lack of capacity. */
  holdsPlacements(item: number): boolean {
    return this.#placements.holds(item, this.#options.clock.nowMs());
  }

  /** Ops written since the feed's last checkpoint, for the decision when to checkpoint. */
  opsSinceCheckpoint(feed: number): number {
    return this.#feeds.get(feed)?.items.ops ?? 0;
  }

  /** One transaction: adds what is pending, deletes what is settled or expired. `onUpdate` listeners see it. */
  commit(): void {
    this.#placements.expire(this.#options.clock.nowMs());
    if (!this.hasPending) return;
    const excessBytes = this.document.byteLength + this.#pendingBytes - this.#options.maxHeldBytes;
    if (excessBytes > 0) this.#settled.dropOldest(excessBytes + this.#options.maxHeldBytes / 16);
    this.#pendingBytes = 0;
    const values: LogValue[] = [];
    const written: ((clock: number) => void)[] = [];
    const add = (value: LogValue, atClock: (clock: number) => void): void => {
      values.push(value);
      written.push(atClock);
    };
    const deletions = this.#takeDeletions();
    this.#gather(add, deletions);
    if (values.length === 0 && deletions.length === 0) return;
    if (values.length === 0) add(Uint8Array.of(itemKind.empty), (clock) => this.#emptyClocks.push(clock));
    const from = this.document.clock;
    const bytes = this.document.write(values, deletions);
    for (const [index, atClock] of written.entries()) atClock(from + index);
    this.#options.onCommit({ name: this.name, from, to: from + values.length, bytes });
  }

  #createFeeds(): FeedNumbers {
    return new FeedNumbers({
      maxFeeds: this.#options.maxFeeds,
      settled: this.#settled,
      reserve: (bytes) => {
        this.#reserve(bytes);
        this.#options.observer?.pending();
      },
    });
  }

  /** Declarations precede what mentions them; claims are last. */
  #gather(add: (value: LogValue, atClock: (clock: number) => void) => void, deletions: number[]): void {
    for (const feed of this.#feeds.takePending()) {
      add(feed.statement, (clock) => {
        feed.clock = clock;
      });
    }
    if (this.#facts.entryCount > 0) {
      const item = binaryItem(itemKind.facts, this.#facts.finish());
      add(item, (clock) => this.#settled.commit(clock, item.length));
    }
    for (const { bytes, committed } of this.#placements.takePending()) {
      add(binaryItem(itemKind.placements, bytes), committed);
    }
    for (const target of this.#changedClaims) {
      const before = this.#claimClocks.get(target);
      if (before !== undefined) deletions.push(before);
      this.#claimClocks.delete(target);
      const claim = this.#claims.get(target);
      if (claim !== undefined) add(claimStatement(claim), (clock) => this.#claimClocks.set(target, clock));
    }
    this.#changedClaims.clear();
  }

  /** Clocks of obsolete items. */
  #takeDeletions(): number[] {
    const empty = this.#emptyClocks;
    this.#emptyClocks = [];
    const items = [...this.#settled.takeDeletable(), ...this.#placements.takeDeletable()];
    return [...empty, ...items, ...this.#feeds.takeEnded(this.#placements)];
  }

  #hasMuchToDelete(): boolean {
    const { deletableBytes, deletableItems } = this.#settled;
    const bytes = deletableBytes + this.#placements.deletableBytes;
    return bytes >= minDeletionBytes || deletableItems + this.#placements.deletableItems >= minDeletionItems;
  }

  #reserve(bytes: number): void {
    if (this.#pendingBytes > 0 && this.#pendingBytes + bytes > maxCommitBytes) this.commit();
    this.#pendingBytes += bytes;
  }
}
