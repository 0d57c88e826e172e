import { type Origin, stampsPerMs } from "@espalier/mesh";
import type { FeedJournal } from "./feed-reader.ts";

/**
 * How reliable a target's feed is. `complete`: it covers everything that the target holds. `partial`: its facts are
 * true, but the target may hold more. `void`: its facts may be outdated. `none`: there is no feed.
 */
export type FeedQuality = "complete" | "partial" | "void" | "none";

/** The reason, as `kv-events` names it, of a feed whose engine has answered that it has published nothing. */
const nothingPublished = "nothing-published";

/** Says that a router reads a target's events for all routers. Plain JSON in the journal of that router. */
export interface FeedClaim {
  /** Target's key. */
  readonly target: string;
  /**
   * Hybrid logical clock of the claim: of two claims the later one prevails; of equal ones that of the lower router id.
   */
  readonly stamp: number;
  readonly quality: FeedQuality;
  /** State and reason as operators see them, for instance `live`, `complete`. */
  readonly state: string;
  readonly reason: string;
  /** Why the events that are read cannot be used; null when they can. */
  readonly unusable: string | null;
}

/** A claim with the router that posted it. */
export interface PostedClaim {
  readonly origin: Origin;
  readonly claim: FeedClaim;
}

/** Whether a claim prevails over another one: the later stamp does; of equal stamps the lower router id. */
export function holdsAgainst(one: PostedClaim, other: PostedClaim): boolean {
  if (one.claim.stamp !== other.claim.stamp) return one.claim.stamp > other.claim.stamp;
  return one.origin.router <= other.origin.router;
}

/**
 * Whether a later claim is still possible. A stamp may use up to half of the numbers that are left from now to 2^53. No
 * clock comes near that before the year 2067. A router whose clock was never set does not judge another's stamp too
 * high before 2039.
 *
 * @param wallMs of the router that decides, since the Unix epoch
 */
export function canBeOutbid({ stamp }: FeedClaim, wallMs: number): boolean {
  return stamp <= (wallMs * stampsPerMs + Number.MAX_SAFE_INTEGER) / 2;
}

export interface OwnClaimOptions {
  readonly target: string;
  readonly journal: FeedJournal;
  readonly stamp: () => number;
  readonly claimsOf: () => readonly PostedClaim[];
}

type StatedQuality = Pick<FeedClaim, "quality" | "state" | "reason" | "unusable">;

/** For a feed whose engine may be another process than the one that the facts are of. */
const unverified: StatedQuality = { quality: "void", state: "stale", reason: "unverified", unusable: null };

/** This router's claim to a target's feed, and any router that has claimed it since. */
export class OwnClaim {
  readonly #options: OwnClaimOptions;
  #quality: StatedQuality = { quality: "none", state: "off", reason: "not-started", unusable: null };
  #isUnverified = false;
  #stamp: number | undefined;
  /** The router with a better claim. */
  #rival: { readonly origin: Origin; hasWritten: boolean } | undefined;

  constructor(options: OwnClaimOptions) {
    this.#options = options;
  }

  get isPosted(): boolean {
    return this.#stamp !== undefined;
  }

  /** Another router has claimed the feed since, and has perhaps written too. */
  get rival(): { readonly hasWritten: boolean } | undefined {
    return this.#rival;
  }

  get isUsable(): boolean {
    const { quality, unusable } = this.#quality;
    return unusable === null && (quality === "complete" || quality === "partial");
  }

  /** Whether the engine has answered that it has published nothing since it was started. */
  get isOfNothing(): boolean {
    return this.isUsable && this.#quality.reason === nothingPublished;
  }

  /** Whether any other router claims the feed. */
  hasOthers(): boolean {
    return this.#options.claimsOf().some(({ origin }) => !this.#isOwn(origin));
  }

  /** Claims the feed, with a later stamp than all others. */
  post(): void {
    const { target, journal, stamp, claimsOf } = this.#options;
    this.#rival = undefined;
    this.#stamp = stamp();
    for (const { claim } of claimsOf()) this.#stamp = Math.max(this.#stamp, claim.stamp + 1);
    journal.claim({ target, stamp: this.#stamp, ...this.#stated });
  }

  /**
   * A feed has an owner even if its engine has published nothing since it was started, or since this router listens.
   */
  postUnread(): void {
    if (this.isUsable && !this.isPosted) this.post();
  }

  withdraw(): void {
    if (this.#stamp === undefined) return;
    this.#stamp = undefined;
    this.#rival = undefined;
    this.#options.journal.unclaim(this.#options.target);
  }

  /** Sets the feed quality. It is a part of the claim, but does not make it another claim. */
  setQuality(quality: FeedQuality, state: string, reason: string, unusable: string | null): void {
    const was = this.#stated;
    this.#quality = { quality, state, reason, unusable };
    this.#restate(was);
  }

  /**
   * Sets whether the facts may be of another engine than the one that is read. Then their quality is `void`, whatever
   * the reader reports.
   */
  setUnverified(isUnverified: boolean): void {
    const was = this.#stated;
    this.#isUnverified = isUnverified;
    this.#restate(was);
  }

  seen(origin: Origin, claim: FeedClaim): void {
    if (this.#stamp === undefined || this.#isOwn(origin)) return;
    const { target, journal } = this.#options;
    const own = { origin: journal.origin, claim: { target, stamp: this.#stamp, ...this.#stated } };
    if (holdsAgainst(own, { origin, claim }) || this.#isRival(origin)) return;
    this.#rival = { origin, hasWritten: false };
  }

  /** Records or a checkpoint of another router arrived. */
  written(origin: Origin): void {
    if (this.#rival && this.#isRival(origin)) this.#rival.hasWritten = true;
  }

  get #stated(): StatedQuality {
    return this.#isUnverified && this.isUsable ? unverified : this.#quality;
  }

  #restate(was: StatedQuality): void {
    const { quality, state, reason, unusable } = this.#stated;
    const isSame = was.quality === quality && was.state === state && was.reason === reason && was.unusable === unusable;
    const { target, journal } = this.#options;
    if (this.#stamp !== undefined && !isSame) journal.claim({ target, stamp: this.#stamp, ...this.#stated });
  }

  #isRival({ router, epoch }: Origin): boolean {
    const rival = this.#rival?.origin;
    return rival !== undefined && rival.router === router && rival.epoch === epoch;
  }

  #isOwn({ router }: Origin): boolean {
    return router === this.#options.journal.origin.router;
  }
}
