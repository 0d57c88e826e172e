import { type Cancel, type Clock, counterOf, type Meter, type RouterId } from "@espalier/core";
import { type Member, type Origin, originKey, subscribe } from "@espalier/mesh";
import type { FactFold } from "../facts/fact-fold.ts";
import type { FactEntry } from "../facts/fact-item.ts";
import type { DeclarationOf } from "../facts/feed-declaration.ts";
import type { TargetSlots } from "../facts/target-slots.ts";
import type { FeedRole } from "./decide-role.ts";
import { canBeOutbid, type FeedClaim, type FeedQuality, holdsAgainst, type PostedClaim } from "./feed-claim.ts";
import type { EventReading, FeedOutput } from "./feed-host.ts";
import type { FeedReader } from "./feed-reader.ts";

/**
 * What this router knows of one target's feed. What is below follows from what is above: from configuration and claims
 * the role, from the role what is read, from claims and fold the quality.
 */
export interface Feed {
  readonly target: string;
  /** Configuration: how this router reads its events. Undefined where none of its engines publishes them. */
  make: ((output: FeedOutput) => EventReading) | undefined;
  /** Claims of all routers, this one included, by origin. */
  readonly claims: Map<string, PostedClaim>;
  /** Who should read it, by `Ownership`. Undefined outside of this router's fleet. */
  nomination: Nomination | undefined;
  /** This router's role, by `Ownership`. */
  role: FeedRole;
  /** Reads the events, for an owner or a backup. */
  reading: EventReading | undefined;
  /** Journals what is read. */
  reader: CoordinatedReader | undefined;
  /** Quality of this router's own reading. */
  readQuality: FeedQuality;
  /** Whether this router has tried in vain for long to connect to the event socket. */
  isUnreachable: boolean;
  /** Ends the wait until it counts as unreachable. */
  cancelReach: Cancel | undefined;
  /** Quality of the target's facts; undefined until somebody asks. */
  quality: FeedQuality | undefined;
}

export interface Nomination {
  readonly region: string | undefined;
  /** The router whose claim prevails, if it is alive. */
  owner: RouterId | undefined;
  /** The last owner known, to count moves. */
  lastOwner: RouterId | undefined;
  /**
   * The latest claim that prevailed here. What it superseded stays void when its author dies, until it is withdrawn.
   */
  latest: PostedClaim | undefined;
  unclaimedSinceMs: number | undefined;
  lostAtMs: number;
  announcedAtMs: number;
}

/** What a reader hears of others. */
export type CoordinatedReader = Pick<
  FeedReader,
  "role" | "setRole" | "claimSeen" | "factsSeen" | "foldChanged" | "maintain" | "stop"
>;

export interface FeedTableOptions {
  readonly fold: Pick<FactFold, "state">;
  readonly slots: Pick<TargetSlots, "keyOf">;
  readonly self: () => Origin;
  readonly clock: Clock;
  readonly meter: Meter;
}

/** All feeds that this router reads or that any router claims, a row each. */
export class FeedTable {
  readonly #options: FeedTableOptions;
  readonly #feeds = new Map<string, Feed>();
  /** Those with a reader, in the order in which they began to be read. */
  readonly #read = new Set<Feed>();
  /** Rows by target index; emptied when a row goes. */
  #byIndex: (Feed | undefined)[] = [];
  readonly #listeners = new Set<(target: string) => void>();
  readonly #refusedClaim: () => void;
  /** Keys of the origins of living routers, this one's included. */
  #living: ReadonlySet<string> = new Set();

  constructor(options: FeedTableOptions) {
    this.#options = options;
    this.#refusedClaim = counterOf(
      options.meter,
      "espalier_feed_claims_refused_total",
      "Feed claims rejected for an implausibly late timestamp.",
    );
  }

  get(target: string): Feed | undefined {
    return this.#feeds.get(target);
  }

  /** The row of a target by its index. */
  at(index: number): Feed | undefined {
    const target = this.#options.slots.keyOf(index);
    if (target === undefined) return undefined;
    let feed = this.#byIndex[index];
    if (feed?.target !== target) {
      feed = this.#feeds.get(target);
      this.#byIndex[index] = feed;
    }
    return feed;
  }

  all(): Iterable<Feed> {
    return this.#feeds.values();
  }

  /** The row of a target; a new one unless there is one. */
  open(target: string): Feed {
    const known = this.#feeds.get(target);
    if (known) return known;
    const feed: Feed = {
      ...{ target, claims: new Map(), make: undefined, nomination: undefined, reader: undefined, reading: undefined },
      ...{ role: "none", readQuality: "none", isUnreachable: false, cancelReach: undefined, quality: undefined },
    };
    this.#feeds.set(target, feed);
    return feed;
  }

  /** Drops a row that nobody claims and that this router does not read. */
  release({ target, claims, make, nomination, reader }: Feed): void {
    if (claims.size > 0 || make || nomination || reader) return;
    this.#feeds.delete(target);
    this.#byIndex = [];
  }

  isLiving(origin: Origin): boolean {
    const { router, epoch } = this.#options.self();
    return (origin.router === router && origin.epoch === epoch) || this.#living.has(originKey(origin));
  }

  setMembers(members: readonly Member[]): void {
    const living = members.filter(({ state }) => state === "alive" || state === "suspect");
    this.#living = new Set(living.map(({ origin }) => originKey(origin)));
    for (const { target, claims } of this.all()) if (claims.size > 0) this.#tell(target);
  }

  opened(target: string, reader: CoordinatedReader): void {
    const feed = this.open(target);
    feed.reader = reader;
    this.#read.add(feed);
  }

  closed(target: string, reader: CoordinatedReader): void {
    const feed = this.get(target);
    if (feed?.reader !== reader) return;
    feed.reader = undefined;
    this.#read.delete(feed);
    this.release(feed);
  }

  get readers(): readonly CoordinatedReader[] {
    return [...this.#read].flatMap(({ reader }) => reader ?? []);
  }

  /** Targets whose events this router journals. */
  owned(): readonly string[] {
    return [...this.#read].flatMap(({ target, reader }) => (reader?.role === "owner" ? [target] : []));
  }

  /** A claim that no router could outbid replaces the one before, but does not count as a claim. */
  claimChanged(origin: Origin, target: string, posted: FeedClaim | undefined): void {
    const claim = posted && canBeOutbid(posted, this.#options.clock.wallMs()) ? posted : undefined;
    if (posted && !claim) this.#refusedClaim();
    const feed = claim ? this.open(target) : this.get(target);
    if (feed && claim) {
      feed.claims.set(originKey(origin), { origin, claim });
      feed.reader?.claimSeen(origin, claim);
    } else if (feed) this.#withdraw(feed, origin);
    this.#tell(target);
  }

  /** Call it after the fold. */
  factsSeen(origin: Origin, entries: readonly FactEntry[], declarationOf: DeclarationOf): void {
    if (this.#read.size === 0) return;
    const byFeed = new Map<number, FactEntry[]>();
    for (const entry of entries) {
      const ofFeed = byFeed.get(entry.feed);
      if (ofFeed) ofFeed.push(entry);
      else byFeed.set(entry.feed, [entry]);
    }
    for (const [feed, ofFeed] of byFeed) {
      const declaration = declarationOf(feed);
      if (declaration?.epoch) this.get(declaration.target)?.reader?.factsSeen(origin, declaration.epoch, ofFeed);
    }
  }

  dropOrigin(origin: Origin): void {
    const dropped = [...this.all()].filter((feed) => this.#withdraw(feed, origin));
    for (const { target } of dropped) this.#tell(target);
  }

  foldChanged(target: string): void {
    this.get(target)?.reader?.foldChanged();
    this.#tell(target);
  }

  /** Claims in all journals that this router has, those of dead routers included. */
  claimsOf(target: string): readonly PostedClaim[] {
    return [...(this.get(target)?.claims.values() ?? [])];
  }

  /** The prevailing claim among those of living routers. */
  claimOf(target: string): PostedClaim | undefined {
    return prevailing(this.claimsOf(target), ({ origin }) => this.isLiving(origin));
  }

  /**
   * The quality of a target's facts: what their reader says. It is `void` while their state is on its way, and lower
   * where facts are missing or no router reads on.
   */
  qualityOf(target: string): FeedQuality {
    const feed = this.get(target);
    const quality = feed?.quality ?? this.#decideQuality(target);
    if (feed) feed.quality = quality;
    return quality;
  }

  /** As `qualityOf`, by index: decisions ask for it with every candidate of every request. */
  qualityAt(index: number): FeedQuality {
    const target = this.#options.slots.keyOf(index);
    return this.at(index)?.quality ?? (target === undefined ? "none" : this.qualityOf(target));
  }

  /** Calls the listener when the claims or the quality of a target's facts may have changed. */
  onClaims(listener: (target: string) => void): Cancel {
    return subscribe(this.#listeners, listener);
  }

  #decideQuality(target: string): FeedQuality {
    const state = this.#options.fold.state(target);
    if (state?.progress === "loading") return "void";
    const held = this.claimOf(target);
    const quality = (held ?? prevailing(this.claimsOf(target), () => true))?.claim.quality ?? "none";
    const isFolded = !state || (state.isComplete && state.progress === "current");
    return quality !== "complete" || (held && isFolded) ? quality : "partial";
  }

  #withdraw(feed: Feed, origin: Origin): boolean {
    const isClaimed = feed.claims.delete(originKey(origin));
    this.release(feed);
    return isClaimed;
  }

  #tell(target: string): void {
    const feed = this.get(target);
    if (feed) feed.quality = undefined;
    for (const listener of this.#listeners) listener(target);
  }
}

/** The latest of the claims that count; of equal ones that of the lower router id. */
export function prevailing(
  claims: Iterable<PostedClaim>,
  counts: (claim: PostedClaim) => boolean,
): PostedClaim | undefined {
  let best: PostedClaim | undefined;
  for (const claim of claims) {
    if (counts(claim) && (best === undefined || !holdsAgainst(best, claim))) best = claim;
  }
  return best;
}
