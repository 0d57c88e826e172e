import type { FactEntry } from "../facts/fact-item.ts";
import type { DeclarationOf } from "../facts/feed-declaration.ts";
import type { FeedClaim } from "../feeds/feed-claim.ts";
import { type JournalFeed, type JournalObserver, noteEntry } from "./journal.ts";
import type { JournalDocument } from "./journal-document.ts";
import type { ClockRange, JournalUpdate } from "./read-journal-update.ts";

/**
 * The live statements of one kind, each about one key. Of several about one key the latest counts. When the journal's
 * writer deletes the item, the statement goes, and its effect ends unless a later statement about the key remains.
 */
class Statements<Key, Value> {
  readonly values = new Map<Key, Value>();
  readonly #clocks = new Map<Key, number>();
  /** Keys of all live statements, superseded ones too, by their clocks. */
  readonly #keys = new Map<number, Key>();

  set(key: Key, value: Value, clock: number): void {
    this.values.set(key, value);
    this.#clocks.set(key, clock);
    this.#keys.set(clock, key);
  }

  /** Keys that have no statement left once these statements are gone. */
  *endedBy(range: ClockRange): Generator<Key, void, undefined> {
    for (const clock of clocksIn(this.#keys, range)) {
      const key = this.#keys.get(clock)!;
      if (this.#clocks.get(key) === clock) yield key;
    }
  }

  /** @returns keys that have no statement left */
  delete(range: ClockRange): Key[] {
    const ended = [...this.endedBy(range)];
    for (const key of ended) {
      this.values.delete(key);
      this.#clocks.delete(key);
    }
    for (const clock of clocksIn(this.#keys, range)) this.#keys.delete(clock);
    return ended;
  }
}

/** A journal of another router, with what its live declarations and claims say. */
export class ReplicaJournal {
  readonly document: JournalDocument;
  readonly #feeds = new Statements<number, JournalFeed>();
  readonly #claims = new Statements<string, FeedClaim>();

  constructor(document: JournalDocument) {
    this.document = document;
  }

  readonly declarationOf: DeclarationOf = (feed) => this.#feeds.values.get(feed)?.declaration;

  feeds(): Iterable<JournalFeed> {
    return this.#feeds.values.values();
  }

  /** Whether the update keeps feeds and claims within their bounds. */
  hasCapacityFor({ items, deletions }: JournalUpdate, maxFeeds: number): boolean {
    if (Math.max(this.#feeds.values.size, this.#claims.values.size) + items.length <= maxFeeds) return true;
    const feeds = new Set(this.#feeds.values.keys());
    const claims = new Set(this.#claims.values.keys());
    for (const range of deletions) {
      for (const feed of this.#feeds.endedBy(range)) feeds.delete(feed);
      for (const target of this.#claims.endedBy(range)) claims.delete(target);
    }
    for (const { content } of items) {
      if (content.kind === "feed") feeds.add(content.feed);
      if (content.kind === "claim") claims.add(content.claim.target);
    }
    return feeds.size <= maxFeeds && claims.size <= maxFeeds;
  }

  /** Applies an update, and passes what it says to the observers in the order in which it was written. */
  take(update: JournalUpdate, observers: readonly JournalObserver[]): void {
    for (const { clock, content } of update.items) {
      if (content.kind === "feed") {
        const { feed, declaration } = content;
        this.#feeds.set(feed, { number: feed, declaration, lastSequence: -1, lastCheckpoint: -1 }, clock);
      } else if (content.kind === "claim") this.#claims.set(content.claim.target, content.claim, clock);
    }
    for (const range of update.deletions) this.#feeds.delete(range);
    const unclaimed = update.deletions.flatMap((range) => this.#claims.delete(range));
    const { origin } = this.document;
    for (const { content } of update.items) {
      if (content.kind === "facts") this.#note(content.entries);
      for (const observer of observers) {
        if (content.kind === "feed") observer.feedDeclared(origin, content.feed, content.declaration);
        else if (content.kind === "facts") observer.facts(origin, content.entries, this.declarationOf);
        else if (content.kind === "placements") observer.placements(origin, content.item, this.declarationOf);
        else if (content.kind === "claim") observer.claimChanged(origin, content.claim.target, content.claim);
      }
    }
    for (const target of unclaimed) {
      for (const observer of observers) observer.claimChanged(origin, target, undefined);
    }
  }

  #note(entries: readonly FactEntry[]): void {
    for (const entry of entries) {
      const feed = this.#feeds.values.get(entry.feed);
      if (feed !== undefined) noteEntry(feed, entry);
    }
  }
}

/** Keys within a range, found by the shorter of two ways. */
function clocksIn(known: ReadonlyMap<number, unknown>, { from, to }: ClockRange): number[] {
  const found: number[] = [];
  if (to - from <= known.size) {
    for (let clock = from; clock < to; clock++) if (known.has(clock)) found.push(clock);
  } else {
    for (const clock of known.keys()) if (clock >= from && clock < to) found.push(clock);
  }
  return found;
}
