import type { Origin } from "@espalier/mesh";
import type { FactEntry } from "../facts/fact-item.ts";
import type { DeclarationOf, FeedDeclaration } from "../facts/feed-declaration.ts";
import type { FeedClaim } from "../feeds/feed-claim.ts";

/** A feed that a journal declares, and how far the journal covers it. */
export interface JournalFeed {
  readonly number: number;
  readonly declaration: FeedDeclaration;
  /** The last record or checkpoint; -1 without one. */
  lastSequence: number;
  /** The last checkpoint; -1 without one. */
  lastCheckpoint: number;
}

/** Notes what a journal says about a feed. */
export function noteEntry(feed: JournalFeed, entry: FactEntry): void {
  if (entry.kind === "gap") return;
  feed.lastSequence = Math.max(feed.lastSequence, entry.sequence);
  if (entry.kind === "checkpoint") feed.lastCheckpoint = Math.max(feed.lastCheckpoint, entry.sequence);
}

/** Sees what a journal of another router says, in the order it was written. Does not see the own journal. */
export interface JournalObserver {
  /** Called before anything mentions the number. */
  feedDeclared(origin: Origin, feed: number, declaration: FeedDeclaration): void;
  claimChanged(origin: Origin, target: string, claim: FeedClaim | undefined): void;
  facts(origin: Origin, entries: readonly FactEntry[], declarationOf: DeclarationOf): void;
  /** One item of the placement log; see placements/. */
  placements(origin: Origin, item: Uint8Array, declarationOf: DeclarationOf): void;
  /** The journal is gone; its facts stay as they were folded. */
  journalDropped(origin: Origin): void;
}

/** Sees what is written to the own journal, which a `JournalObserver` does not. */
export interface OwnJournalObserver {
  /** Something waits for a commit. */
  pending(): void;
  claimChanged(target: string, claim: FeedClaim | undefined): void;
}

export interface JournalStats {
  readonly documents: number;
  readonly byteLength: number;
  /** Of the own journal. */
  readonly ownFactItems: number;
  readonly ownPlacementItems: number;
  readonly ownBytes: number;
}
