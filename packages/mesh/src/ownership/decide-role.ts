import type { RouterId } from "@espalier/common";
import type { FeedWorth, PostedClaim } from "@espalier/replication";
import type { Standing } from "./candidates.ts";
import type { FeedRole } from "./feed-roles.ts";

/** A nominee that has not claimed a feed for so long loses its turn to the next candidate. */
export const turnMs = 1_000;

export interface RoleQuestion {
  readonly self: RouterId;
  readonly standing: Standing;
  /** The claim that holds among those of live routers. */
  readonly holding: PostedClaim | undefined;
  /** What this router's own reading of the feed is worth. */
  readonly worth: FeedWorth;
  /** It may take the feed from a live claimant. */
  readonly mayTakeOver: boolean;
  /** For how long there has been no live claim. */
  readonly unclaimedMs: number;
}

const worths: Readonly<Record<FeedWorth, number>> = { none: 0, void: 1, partial: 2, complete: 3 };

/** What a router is to do with a feed. */
export function decideRole(question: RoleQuestion): FeedRole {
  const { self, standing, holding, worth, mayTakeOver, unclaimedMs } = question;
  const { nominee, heir, rank } = standing;
  if (!holding) {
    if (rank === undefined) return "none";
    const turn = Math.floor(unclaimedMs / turnMs);
    if (rank <= turn) return "owner";
    return rank === turn + 1 ? "backup" : "none";
  }
  if (holding.origin.router === self) return "owner";
  const isReady = worths[worth] >= Math.max(worths.partial, worths[holding.claim.worth]);
  if (nominee === self && isReady && mayTakeOver) return "owner";
  return heir === self ? "backup" : "none";
}
