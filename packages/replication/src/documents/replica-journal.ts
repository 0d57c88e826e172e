import type { FeedClaim } from "../feeds/feed-claim.ts";
import type { FeedDeclaration, JournalObserver } from "./journal.ts";
import type { JournalDocument } from "./journal-document.ts";
import type { ClockRange, JournalUpdate, LogItem } from "./read-journal-update.ts";

/** A journal of another router, with what its live declarations and claims say. */
export class ReplicaJournal {
  readonly document: JournalDocument;
  readonly #feeds = new Map<number, { readonly clock: number; readonly declaration: FeedDeclaration }>();
  readonly #feedClocks = new Map<number, number>();
  readonly #claims = new Map<string, FeedClaim>();
  readonly #claimClocks = new Map<number, string>();
  readonly #clockOfClaim = new Map<string, number>();

  constructor(document: JournalDocument) {
    this.document = document;
  }

  get claims(): ReadonlyMap<string, FeedClaim> {
    return this.#claims;
  }

  declaration(feed: number): FeedDeclaration | undefined {
    return this.#feeds.get(feed)?.declaration;
  }

  /** Whether feeds and claims stay within a bound. */
  hasRoomFor({ items, deletions }: JournalUpdate, maxFeeds: number): boolean {
    if (Math.max(this.#feeds.size, this.#claims.size) + items.length <= maxFeeds) return true;
    const feeds = new Set(this.#feeds.keys());
    const claims = new Set(this.#claims.keys());
    for (const range of deletions) {
      for (const clock of clocksIn(this.#feedClocks, range)) {
        const feed = this.#feedClocks.get(clock)!;
        if (this.#feeds.get(feed)?.clock === clock) feeds.delete(feed);
      }
      for (const clock of clocksIn(this.#claimClocks, range)) {
        const target = this.#claimClocks.get(clock)!;
        if (this.#clockOfClaim.get(target) === clock) claims.delete(target);
      }
    }
    for (const { content } of items) {
      if (content.kind === "feed") feeds.add(content.feed);
      if (content.kind === "claim") claims.add(content.claim.target);
    }
    return feeds.size <= maxFeeds && claims.size <= maxFeeds;
  }

  /** Takes what an update says, and tells it in the order in which it was written. */
  take(update: JournalUpdate, observers: readonly JournalObserver[]): void {
    for (const item of update.items) this.#note(item);
    const unclaimed = this.#forget(update.deletions);
    const { origin } = this.document;
    for (const { content } of update.items) {
      for (const observer of observers) {
        if (content.kind === "feed") observer.feedDeclared(origin, content.feed, content.declaration);
        else if (content.kind === "facts") observer.facts(origin, content.entries);
        else if (content.kind === "placements") observer.placements(origin, content.item);
        else if (content.kind === "claim") observer.claimChanged(origin, content.claim.target, content.claim);
      }
    }
    for (const target of unclaimed) {
      for (const observer of observers) observer.claimChanged(origin, target, undefined);
    }
  }

  #note({ clock, content }: LogItem): void {
    if (content.kind === "feed") {
      this.#feeds.set(content.feed, { clock, declaration: content.declaration });
      this.#feedClocks.set(clock, content.feed);
    } else if (content.kind === "claim") {
      const { target } = content.claim;
      this.#claims.set(target, content.claim);
      this.#claimClocks.set(clock, target);
      this.#clockOfClaim.set(target, clock);
    }
  }

  /** @returns targets that are not claimed any more */
  #forget(deletions: readonly ClockRange[]): string[] {
    const unclaimed: string[] = [];
    for (const range of deletions) {
      for (const clock of clocksIn(this.#feedClocks, range)) {
        const feed = this.#feedClocks.get(clock)!;
        this.#feedClocks.delete(clock);
        if (this.#feeds.get(feed)?.clock === clock) this.#feeds.delete(feed);
      }
      for (const clock of clocksIn(this.#claimClocks, range)) {
        const target = this.#claimClocks.get(clock)!;
        this.#claimClocks.delete(clock);
        if (this.#clockOfClaim.get(target) !== clock) continue;
        this.#clockOfClaim.delete(target);
        this.#claims.delete(target);
        unclaimed.push(target);
      }
    }
    return unclaimed;
  }
}

/** Keys within a range, found the shorter way. */
function clocksIn(known: ReadonlyMap<number, unknown>, { from, to }: ClockRange): number[] {
  const found: number[] = [];
  if (to - from <= known.size) {
    for (let clock = from; clock < to; clock++) if (known.has(clock)) found.push(clock);
  } else {
    for (const clock of known.keys()) if (clock >= from && clock < to) found.push(clock);
  }
  return found;
}
