import type { JournalWriter } from "../documents/journal.ts";
import type { CutEntry } from "../facts/fact-entry.ts";
import type { FeedClaim } from "../feeds/feed-claim.ts";

/** What the parts of a replica write to. */
export type TouchingJournal = Pick<
  JournalWriter,
  | "declareFeed"
  | "placingFeed"
  | "declarationOf"
  | "claim"
  | "unclaim"
  | "claims"
  | "writeFact"
  | "settle"
  | "retireFeed"
  | "retireFeedsOf"
  | "writePlacements"
  | "keepPlacements"
  | "holdsPlacements"
  | "opsSinceCut"
  | "origin"
>;

/**
 * The own journal of the moment, which sees to it that what is written is committed.
 *
 * @param touch called whenever something is pending
 * @param claimed told of the own claims, which nobody else tells of
 * @param cutWritten told of the own cuts, likewise
 */
export function createTouchingJournal(
  own: () => JournalWriter,
  touch: () => void,
  claimed: (target: string, claim: FeedClaim | undefined) => void,
  cutWritten: (cut: CutEntry) => void,
): TouchingJournal {
  return {
    get origin() {
      return own().origin;
    },
    get claims() {
      return own().claims;
    },
    declareFeed(declaration) {
      touch();
      return own().declareFeed(declaration);
    },
    placingFeed(declaration) {
      touch();
      return own().placingFeed(declaration);
    },
    declarationOf: (feed) => own().declarationOf(feed),
    claim(claim) {
      touch();
      own().claim(claim);
      claimed(claim.target, claim);
    },
    unclaim(target) {
      touch();
      own().unclaim(target);
      claimed(target, undefined);
    },
    writeFact(entry) {
      touch();
      own().writeFact(entry);
      if (entry.kind === "cut") cutWritten(entry);
    },
    settle(feed, sequence) {
      touch();
      own().settle(feed, sequence);
    },
    retireFeed(feed) {
      touch();
      own().retireFeed(feed);
    },
    retireFeedsOf(target) {
      touch();
      own().retireFeedsOf(target);
    },
    writePlacements(item, expiresMs) {
      return own().writePlacements(item, expiresMs);
    },
    keepPlacements: (item, untilMs) => own().keepPlacements(item, untilMs),
    holdsPlacements: (item) => own().holdsPlacements(item),
    opsSinceCut: (feed) => own().opsSinceCut(feed),
  };
}
