import type { Cancel } from "@espalier/core";
import type { EngineEpoch } from "../facts/engine-epoch.ts";
import type { FactEntry } from "../facts/fact-item.ts";
import type { FeedClaim } from "../feeds/feed-claim.ts";
import type { Origin } from "../origin.ts";

/** What a number in a journal's items denotes: a target, and one of its epochs if it has a feed. */
export interface FeedDeclaration {
  readonly target: string;
  /** Null for placements at a target without a known epoch. */
  readonly epoch: EngineEpoch | null;
}

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

/** What a number in the items of one journal denotes. The object stays the same while the journal has the number. */
export type DeclarationOf = (feed: number) => FeedDeclaration | undefined;

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

/**
 * A part of a Yjs document for another replica. A journal has one writer, whose clock counts what it has written:
 * `bytes` holds the writer's structs from clock `from` to clock `to` (exclusive), so that duplicates and gaps are found
 * without decoding. The registry has many writers: there both are 0, and the update is always applied.
 */
export interface DocumentUpdate {
  /** Name of the document. */
  readonly name: string;
  readonly from: number;
  readonly to: number;
  /** A Yjs update, version 1. */
  readonly bytes: Uint8Array;
}

/**
 * `applied`; `duplicate`: all of it was there already; `gap`: something before it is missing, nothing was applied, and
 * the caller must ask for a diff; `dropped`: the document was abandoned for good, and the sender may give it up too.
 */
export type ApplyOutcome = "applied" | "duplicate" | "gap" | "dropped";

export interface DocumentState {
  readonly name: string;
  /** The writer of a journal; undefined for the registry. */
  readonly origin: Origin | undefined;
  /** The writer's clock, as far as it is known here; 0 for the registry. */
  readonly clock: number;
  /** Approximate bytes of the document's present content. */
  readonly byteLength: number;
}

/** The documents of a replica as their carriers to other replicas see them. */
export interface ReplicatedDocuments {
  /** Every document, the own journal first. */
  list(): readonly DocumentState[];
  state(name: string): DocumentState | undefined;
  /** State vector as in y-protocols; for an unknown document, that of an empty one. */
  stateVector(name: string): Uint8Array;
  /**
   * What a router with this state vector lacks, in pieces of about `maxBytes` at most (never less than one item),
   * oldest first. Each piece takes a few milliseconds at most; the document may change between two of them.
   *
   * @throws RangeError for a state vector that cannot be read
   */
  diff(name: string, stateVector: Uint8Array, maxBytes: number): Generator<DocumentUpdate, void, undefined>;
  /**
   * Applies an update of another replica. An unknown journal is begun.
   *
   * @throws EspalierError `mesh_update_refused` when it is no update, holds structs or deletions by others than the
   *   document's writer, or exceeds a bound. Nothing is applied then, and the link that it came by should be closed.
   */
  apply(update: DocumentUpdate): ApplyOutcome;
  /**
   * Calls the listener with every update, after it was applied.
   *
   * @param listener `isOwn`: this replica wrote it
   */
  onUpdate(listener: (update: DocumentUpdate, isOwn: boolean) => void): Cancel;
}
