import type { Clock, Logger, Meter } from "@espalier/common";
import type { LedgerSink, PrefixIndex } from "@espalier/prefix-index";
import type { JournalWriter } from "../documents/journal.ts";
import type { FactEntry } from "../facts/fact-entry.ts";
import type { FactFold } from "../facts/fact-fold.ts";
import type { BatchMark, Life } from "../facts/life.ts";
import type { TargetSlots } from "../facts/target-slots.ts";
import type { Origin } from "../origin.ts";
import type { FeedClaim, FeedWorth } from "./feed-claim.ts";
import { checkFeedLimits, type FeedReaderLimits } from "./feed-limits.ts";
import { TargetFeedReader } from "./target-feed-reader.ts";

/** What a reader writes to the own journal. */
export type FeedJournal = Pick<
  JournalWriter,
  "origin" | "declareFeed" | "claim" | "unclaim" | "writeFact" | "settle" | "retireFeed" | "opsSinceCut"
>;

export interface FeedReaderOptions {
  /** Key of the target. */
  readonly key: string;
  readonly journal: FeedJournal;
  readonly fold: Pick<FactFold, "state" | "outranking" | "cutStatement" | "declare" | "apply" | "replaceState">;
  /** Which the fold keeps; read only. */
  readonly index: Pick<PrefixIndex, "findByLow" | "foundHigh" | "factBlockCount">;
  readonly slots: Pick<TargetSlots, "find">;
  /** Tells a sink everything that the ledger holds. */
  readonly tellAll: (sink: LedgerSink) => void;
  readonly clock: Clock;
  /** A hybrid logical clock's time for a claim. */
  readonly stamp: () => number;
  /** All claims of the target that are known, of whatever router. */
  readonly claimsOf: () => readonly { readonly origin: Origin; readonly claim: FeedClaim }[];
  /** Whether a cut may be written now; taken by asking. One that is overdue does not ask. Default: always. */
  readonly takeCutTurn?: () => boolean;
  /**
   * Whether a feed with so many changes since its last cut should be cut at once, because somebody is about to fetch the
   * journal. Default: never.
   */
  readonly isCutWanted?: (opsSinceCut: number) => boolean;
  /** This router reads the target's feed for everybody from now on, be it that it took over by itself. */
  readonly onClaimed?: () => void;
  readonly onStop?: () => void;
  readonly limits?: Partial<FeedReaderLimits>;
  readonly logger: Logger;
  readonly meter: Meter;
}

/**
 * One target's feed on its way from the ledger into the journal. As owner it writes what every message did; as backup it
 * keeps that, to go on where the owner ends.
 */
export interface FeedReader {
  /** For the ledger: what becomes of the target's blocks. */
  readonly sink: LedgerSink;
  /**
   * A message was applied to the ledger, which has told the sink.
   *
   * @param isComplete whether every message of the engine's life up to this one was read
   */
  batch(mark: BatchMark, isComplete: boolean): void;
  /** These messages will not be read any more; both ends are missing. To be told before the message behind them. */
  gap(from: number, to: number): void;
  /** The engine is another process, and the ledger is empty. Which life that is shows with its messages. */
  newLife(): void;
  /** What the feed is worth, for the claim. */
  worth(worth: FeedWorth, state: string, reason: string, unusable: string | null): void;
  /** Blocks were removed that the ledger did not know, in the message that is told next. */
  unknownRemovals(count: number): void;
  /** What this router should be. An owner goes on as such until another one's claim and records are there. */
  setRole(role: FeedReaderRole): void;
  /** What it is: `owner` while it has a claim and writes. */
  readonly role: FeedReaderRole;
  /** Newest life or progress of the target have changed in the fold. */
  foldChanged(): void;
  claimSeen(origin: Origin, claim: FeedClaim): void;
  /** Another router's journal says this of the target, in this life. To be told after the fold. */
  factsSeen(origin: Origin, life: Life, entries: readonly FactEntry[]): void;
  /** To be called before each commit, and at least every second. */
  maintain(): void;
  stop(): void;
  /** Plain JSON for operators. */
  describe(): FeedReaderDescription;
}

export type FeedReaderRole = "owner" | "backup" | "none";

export interface FeedReaderDescription {
  readonly role: FeedReaderRole;
  /** Id of the life that is read; null while that is not known. */
  readonly life: string | null;
  /** Latest message that was read. */
  readonly sequence: number | null;
  readonly isComplete: boolean;
  /** Kept to take over. */
  readonly keptRecords: number;
  readonly keptBytes: number;
  /** Blocks of a state that came from other readers and could not be verified, and removals that it did not explain. */
  readonly inheritedBlocks: number;
  readonly unknownRemovals: number;
}

/** @throws RangeError for limits that are no positive numbers */
export function createFeedReader(options: FeedReaderOptions): FeedReader {
  return new TargetFeedReader(options, checkFeedLimits(options.limits));
}
