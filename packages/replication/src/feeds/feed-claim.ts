import type { Origin } from "../origin.ts";
import { stampsPerMs } from "../placements/hybrid-clock.ts";

/** What a feed's events are worth to who routes by them; the server's feed states have the details. */
export type FeedQuality = "complete" | "partial" | "void" | "none";

/** The reason of a feed, as `kv-events` names it, whose engine has answered that it has published nothing. */
export const nothingPublished = "nothing-published";

/** Says that a router reads a target's events for everybody. Plain JSON in the journal of that router. */
export interface FeedClaim {
  /** Target's key. */
  readonly target: string;
  /** Hybrid logical clock of the claim: of two claims the later one holds, of equal ones that of the lower router id. */
  readonly stamp: number;
  readonly worth: FeedQuality;
  /** State and reason as operators know them, for instance `live`, `complete`. */
  readonly state: string;
  readonly reason: string;
  /** Why what is read cannot be used; null when it can. */
  readonly unusable: string | null;
}

/** A claim with the router that posted it. */
export interface PostedClaim {
  readonly origin: Origin;
  readonly claim: FeedClaim;
}

/** Whether a claim holds against another one: the later stamp does, of equal ones that of the lower router id. */
export function holdsAgainst(one: PostedClaim, other: PostedClaim): boolean {
  if (one.claim.stamp !== other.claim.stamp) return one.claim.stamp > other.claim.stamp;
  return one.origin.router <= other.origin.router;
}

/**
 * Whether there is room for later claims. A stamp may take half of the numbers that are left from now to 2^53, which no clock
 * comes near before the year 2067, nor, until 2039, that of another router for one whose own clock was never set.
 *
 * @param wallMs of the router that judges, since the Unix epoch
 */
export function canBeOutbid({ stamp }: FeedClaim, wallMs: number): boolean {
  return stamp <= (wallMs * stampsPerMs + Number.MAX_SAFE_INTEGER) / 2;
}
