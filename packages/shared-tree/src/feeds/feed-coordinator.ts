import { type Cancel, type Clock, counterOf, type Meter } from "@espalier/core";
import { type Member, type Origin, originKey, subscribe } from "@espalier/mesh";
import type { DeclarationOf } from "../documents/journal.ts";
import type { FactFold } from "../facts/fact-fold.ts";
import type { FactEntry } from "../facts/fact-item.ts";
import { canBeOutbid, type FeedClaim, type FeedQuality, holdsAgainst, type PostedClaim } from "./feed-claim.ts";
import type { FeedReader } from "./feed-reader.ts";

/** The claims of all journals, by target. */
export class ClaimTable {
  readonly #byTarget = new Map<string, Map<string, PostedClaim>>();

  set(origin: Origin, target: string, claim: FeedClaim | undefined): void {
    const key = originKey(origin);
    const claims = this.#byTarget.get(target);
    if (claim === undefined) {
      claims?.delete(key);
      if (claims?.size === 0) this.#byTarget.delete(target);
    } else if (claims) claims.set(key, { origin, claim });
    else this.#byTarget.set(target, new Map([[key, { origin, claim }]]));
  }

  /** @returns the targets whose claims changed */
  dropOrigin(origin: Origin): readonly string[] {
    const key = originKey(origin);
    const dropped = [...this.#byTarget].flatMap(([target, claims]) => (claims.has(key) ? [target] : []));
    for (const target of dropped) this.set(origin, target, undefined);
    return dropped;
  }

  of(target: string): readonly PostedClaim[] {
    const claims = this.#byTarget.get(target);
    return claims ? [...claims.values()] : [];
  }

  /** The prevailing claim among those for which `counts`: the latest; of equal ones that of the lower router id. */
  holder(target: string, counts: (origin: Origin) => boolean): PostedClaim | undefined {
    let best: PostedClaim | undefined;
    for (const posted of this.#byTarget.get(target)?.values() ?? []) {
      if (counts(posted.origin) && (best === undefined || !holdsAgainst(best, posted))) best = posted;
    }
    return best;
  }

  targets(): Iterable<string> {
    return this.#byTarget.keys();
  }
}

/** What a reader hears of others. */
export type CoordinatedReader = Pick<
  FeedReader,
  "role" | "setRole" | "claimSeen" | "factsSeen" | "foldChanged" | "maintain"
>;

export interface FeedCoordinatorOptions {
  readonly fold: Pick<FactFold, "state">;
  readonly self: () => Origin;
  readonly clock: Clock;
  readonly meter: Meter;
}

/** Who reads which target's events, and the quality of each target's facts that follows from it. */
export class FeedCoordinator {
  readonly #options: FeedCoordinatorOptions;
  readonly #table = new ClaimTable();
  readonly #readers = new Map<string, CoordinatedReader>();
  readonly #listeners = new Set<(target: string) => void>();
  readonly #refusedClaim: () => void;
  /** Keys of the origins of living routers, this one's included. */
  #living: ReadonlySet<string> = new Set();

  constructor(options: FeedCoordinatorOptions) {
    this.#options = options;
    this.#refusedClaim = counterOf(
      options.meter,
      "espalier_feed_claims_refused_total",
      "Claims of feeds ignored because their stamp is implausibly late.",
    );
  }

  isLiving(origin: Origin): boolean {
    const { router, epoch } = this.#options.self();
    return (origin.router === router && origin.epoch === epoch) || this.#living.has(originKey(origin));
  }

  setMembers(members: readonly Member[]): void {
    const living = members.filter(({ state }) => state === "alive" || state === "suspect");
    this.#living = new Set(living.map(({ origin }) => originKey(origin)));
    for (const target of this.#table.targets()) this.#tell(target);
  }

  opened(target: string, reader: CoordinatedReader): void {
    this.#readers.set(target, reader);
  }

  closed(target: string, reader: CoordinatedReader): void {
    if (this.#readers.get(target) === reader) this.#readers.delete(target);
  }

  get readers(): Iterable<CoordinatedReader> {
    return this.#readers.values();
  }

  /** Targets whose events this router journals. */
  *owned(): Generator<string, void, undefined> {
    for (const [target, reader] of this.#readers) if (reader.role === "owner") yield target;
  }

  /** A claim that no router could outbid replaces the one before, but does not count as a claim. */
  claimChanged(origin: Origin, target: string, posted: FeedClaim | undefined): void {
    const claim = posted && canBeOutbid(posted, this.#options.clock.wallMs()) ? posted : undefined;
    if (posted && !claim) this.#refusedClaim();
    this.#table.set(origin, target, claim);
    if (claim) this.#readers.get(target)?.claimSeen(origin, claim);
    this.#tell(target);
  }

  /** Call it after the fold. */
  factsSeen(origin: Origin, entries: readonly FactEntry[], declarationOf: DeclarationOf): void {
    if (this.#readers.size === 0) return;
    const byFeed = new Map<number, FactEntry[]>();
    for (const entry of entries) {
      const ofFeed = byFeed.get(entry.feed);
      if (ofFeed) ofFeed.push(entry);
      else byFeed.set(entry.feed, [entry]);
    }
    for (const [feed, ofFeed] of byFeed) {
      const declaration = declarationOf(feed);
      const reader = declaration && this.#readers.get(declaration.target);
      if (reader && declaration.epoch) reader.factsSeen(origin, declaration.epoch, ofFeed);
    }
  }

  dropOrigin(origin: Origin): void {
    for (const target of this.#table.dropOrigin(origin)) this.#tell(target);
  }

  foldChanged(target: string): void {
    this.#readers.get(target)?.foldChanged();
    this.#tell(target);
  }

  claimsOf(target: string): readonly PostedClaim[] {
    return this.#table.of(target);
  }

  /** The prevailing claim among those of living routers. */
  claimOf(target: string): PostedClaim | undefined {
    return this.#table.holder(target, (origin) => this.isLiving(origin));
  }

  /**
   * The quality of a target's facts: what their reader says. It is `void` while their state is on its way, and lower
   * where facts are missing or no router reads on.
   */
  qualityOf(target: string): FeedQuality {
    const state = this.#options.fold.state(target);
    const held = this.claimOf(target);
    if (state?.progress === "loading") return "void";
    const quality = held?.claim.worth ?? this.#table.holder(target, () => true)?.claim.worth ?? "none";
    if (quality !== "complete" || (held && state?.isComplete && state.progress === "current")) return quality;
    return held && state?.last === undefined ? quality : "partial";
  }

  onClaims(listener: (target: string) => void): Cancel {
    return subscribe(this.#listeners, listener);
  }

  #tell(target: string): void {
    for (const listener of this.#listeners) listener(target);
  }
}
