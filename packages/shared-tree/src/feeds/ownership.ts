import type { Cancel, CounterSeries, GaugeSeries, RouterId, Scheduler, Startable } from "@espalier/core";
import type { Backend, Member, Origin, ProcessPorts } from "@espalier/mesh";
import {
  backupsFor,
  type Candidate,
  candidateHash,
  decideRole,
  eligibleFor,
  type FeedRole,
  rankingOf,
  turnMs,
} from "./decide-role.ts";
import { type FeedQuality, holdsAgainst, type PostedClaim } from "./feed-claim.ts";
import { type Feed, type FeedTable, type Nomination, prevailing } from "./feed-table.ts";

/** How often feeds without a live claim are checked. */
const tickMs = 250;
/** How long a feed may have no owner before that is reported. */
const unownedAlarmMs = 2_000;
/**
 * A router that lost a feed to another claim does not take it back from a live claimant sooner, lest two views fight
 * over it.
 */
const retakeMs = 2_000;
/** Targets of one pool. */
export const maxOwnedTargets = 131_072;

export interface OwnershipDeps extends Omit<ProcessPorts, "random"> {
  /** This epoch of this router. It may rise. */
  readonly self: () => Origin;
  /** Where this router is; undefined if that is not said. */
  readonly region?: string | undefined;
  /** The other routers. */
  readonly members: () => readonly Member[];
  /** Nominations and roles are kept there, next to the claims and qualities that decide them. */
  readonly feeds: FeedTable;
  /**
   * Called when a role changes. An owner claims the feed in its journal, with a stamp later than every known claim. It
   * is called again every second while its claim does not prevail.
   */
  readonly onRole: (target: string, role: FeedRole) => void;
}

/**
 * Decides which feeds this router reads, as owner for all routers or as backup.
 *
 * Nominates by rendezvous hashing, routers of the target's region first, and decides by claims. Regions count only while all
 * live routers say theirs: else routers of an earlier version, and those that lack the setting, would nominate others.
 *
 * Call `membersChanged` when the answers of `members` have changed or `self` begins a new epoch, and `claimsChanged` when
 * claims in the table have.
 */
export class Ownership {
  readonly #deps: OwnershipDeps;
  /** Those whose role may change with time alone. */
  readonly #unsettled = new Set<Feed>();
  readonly #moves: CounterSeries;
  readonly #unowned: GaugeSeries;
  #candidates: readonly Candidate[] = [];
  /** Epoch of each live router. */
  #live = new Map<RouterId, number>();
  /** What the candidates were made from. */
  #seen = "";
  #isDraining = false;
  #unreachable: ReadonlySet<string> = new Set();
  #cancelTick: Cancel | undefined;
  #targetCount = 0;
  #unownedCount = 0;

  constructor(deps: OwnershipDeps) {
    this.#deps = deps;
    const moves = deps.meter.counter("espalier_mesh_feed_moves_total", "Feeds taken over by another router.");
    const unowned = deps.meter.gauge("espalier_mesh_feeds_unowned", "Feeds without an owner for over 2 s.");
    this.#moves = moves.series();
    this.#unowned = unowned.series();
  }

  /** Before it every role is `none`: a router that joins must know the others and their claims first. */
  start(): void {
    this.#cancelTick = this.#deps.scheduler.every(tickMs, () => this.#tick());
    this.membersChanged();
    this.#decideAll();
  }

  stop(): void {
    this.#cancelTick?.();
    this.#cancelTick = undefined;
  }

  /**
   * @param region where its engine is; undefined if that is not known
   * @throws RangeError for more than `maxOwnedTargets`
   */
  addTarget(target: string, region?: string): void {
    if (this.#deps.feeds.get(target)?.nomination) return;
    if (this.#targetCount >= maxOwnedTargets) throw new RangeError(`more than ${maxOwnedTargets} targets`);
    this.#targetCount += 1;
    const feed = this.#deps.feeds.open(target);
    feed.nomination = {
      ...{ region, owner: undefined, lastOwner: undefined, latest: undefined, unclaimedSinceMs: undefined },
      ...{ lostAtMs: Number.NEGATIVE_INFINITY, announcedAtMs: 0 },
    };
    this.#decide(feed);
  }

  removeTarget(target: string): void {
    const feed = this.#deps.feeds.get(target);
    if (!feed?.nomination) return;
    this.#targetCount -= 1;
    feed.nomination = undefined;
    this.#unsettled.delete(feed);
    if (feed.role !== "none") {
      feed.role = "none";
      this.#deps.onRole(target, "none");
    }
    this.#deps.feeds.release(feed);
  }

  /** Members came, left, or changed their records. */
  membersChanged(): void {
    const self = this.#deps.self();
    const others = this.#deps.members().filter(({ origin, state }) => {
      return origin.router !== self.router && (state === "alive" || state === "suspect");
    });
    const said = others.map(({ origin, isDraining, unreachable, region }) => [origin, isDraining, unreachable, region]);
    const seen = JSON.stringify([self, this.#isDraining, [...this.#unreachable], said]);
    // Coming and going links change nothing here.
    if (seen === this.#seen) return;
    this.#seen = seen;
    this.#live = new Map(others.map(({ origin }) => [origin.router, origin.epoch]));
    this.#live.set(self.router, self.epoch);
    const own = { router: self.router, isDraining: this.#isDraining, unreachable: [...this.#unreachable] };
    const all = [...others.map((member) => ({ ...member, ...member.origin })), { ...own, region: this.#deps.region }];
    const doRegionsCount = all.every(({ region }) => region !== undefined);
    this.#candidates = all.map(({ router, isDraining, unreachable, region }) => ({
      ...{ router, isDraining, hash: candidateHash(router), unreachable: new Set(unreachable) },
      region: doRegionsCount ? region : undefined,
    }));
    this.#decideAll();
  }

  claimsChanged(target: string): void {
    const feed = this.#deps.feeds.get(target);
    if (feed) this.#decide(feed);
  }

  /** Current quality of this router's reading of a feed. */
  setQuality(target: string, quality: FeedQuality): void {
    const feed = this.#deps.feeds.get(target);
    if (!feed || feed.readQuality === quality) return;
    feed.readQuality = quality;
    this.#decide(feed);
  }

  setDraining(isDraining: boolean): void {
    if (this.#isDraining === isDraining) return;
    this.#isDraining = isDraining;
    this.membersChanged();
  }

  /** The targets whose event sockets this router cannot reach. */
  setUnreachable(targets: readonly string[]): void {
    this.#unreachable = new Set(targets);
    this.membersChanged();
  }

  roleOf(target: string): FeedRole {
    return this.#deps.feeds.get(target)?.role ?? "none";
  }

  /** The router whose claim prevails, if it is alive. */
  ownerOf(target: string): RouterId | undefined {
    return this.#deps.feeds.get(target)?.nomination?.owner;
  }

  #decideAll(): void {
    for (const feed of [...this.#deps.feeds.all()]) this.#decide(feed);
  }

  #decide(feed: Feed): void {
    const { target, nomination, readQuality: quality } = feed;
    if (!nomination || !this.#cancelTick) return;
    const nowMs = this.#deps.clock.nowMs();
    const self = this.#deps.self().router;
    const eligible = eligibleFor(target, this.#candidates);
    const holding = this.#holdingClaim(target, nomination, eligible);
    const claimant = holding?.origin.router;
    this.#noteOwner(nomination, claimant, nowMs);
    const backups = backupsFor(claimant, eligible, this.#candidates);
    const ranking = rankingOf(target, eligible, { self, claimant, backups, region: nomination.region });
    const mayTakeOver = nowMs - nomination.lostAtMs >= retakeMs;
    const unclaimedMs = nomination.unclaimedSinceMs === undefined ? 0 : nowMs - nomination.unclaimedSinceMs;
    const role = decideRole({ self, ranking, holding, quality, mayTakeOver, unclaimedMs });
    const isPending = role === "owner" && claimant !== self;
    if (holding && mayTakeOver && !isPending) this.#unsettled.delete(feed);
    else this.#unsettled.add(feed);
    if (role === feed.role && !(isPending && nowMs - nomination.announcedAtMs >= turnMs)) return;
    feed.role = role;
    nomination.announcedAtMs = nowMs;
    this.#deps.onRole(target, role);
  }

  #holdingClaim(target: string, nomination: Nomination, eligible: readonly Candidate[]): PostedClaim | undefined {
    const claims = this.#deps.feeds.claimsOf(target);
    const { latest } = nomination;
    // A claim by a clock that is far ahead would void all others until then, even after it is withdrawn.
    const isThere = latest && claims.some((claim) => isSameClaim(claim, latest));
    const holding = prevailing(
      claims,
      (claim) => !(isThere && !holdsAgainst(claim, latest)) && this.#isLive(target, claim, eligible),
    );
    nomination.latest = holding ?? (isThere ? latest : undefined);
    return holding;
  }

  /**
   * A claim counts while its author's epoch lasts and its author reaches the target; if no router does, reach is
   * ignored.
   */
  #isLive(target: string, { origin }: PostedClaim, eligible: readonly Candidate[]): boolean {
    if (this.#live.get(origin.router) !== origin.epoch) return false;
    if (eligible === this.#candidates || eligible.some(({ router }) => router === origin.router)) return true;
    const author = this.#candidates.find(({ router }) => router === origin.router);
    return author !== undefined && !author.unreachable.has(target);
  }

  #noteOwner(nomination: Nomination, claimant: RouterId | undefined, nowMs: number): void {
    const self = this.#deps.self().router;
    if (nomination.owner === self && claimant !== undefined && claimant !== self) nomination.lostAtMs = nowMs;
    nomination.owner = claimant;
    if (claimant === undefined) {
      nomination.unclaimedSinceMs ??= nowMs;
      return;
    }
    nomination.unclaimedSinceMs = undefined;
    if (nomination.lastOwner !== undefined && nomination.lastOwner !== claimant) this.#moves.add();
    nomination.lastOwner = claimant;
  }

  #tick(): void {
    for (const feed of [...this.#unsettled]) this.#decide(feed);
    const nowMs = this.#deps.clock.nowMs();
    let unowned = 0;
    for (const { nomination } of this.#unsettled) {
      const sinceMs = nomination?.unclaimedSinceMs ?? nowMs;
      if (nowMs - sinceMs > unownedAlarmMs) unowned += 1;
    }
    this.#unowned.set(unowned);
    if (unowned > 0 && this.#unownedCount === 0) {
      this.#deps.logger.warn("feeds without a reader", { count: unowned });
    }
    this.#unownedCount = unowned;
  }
}

function isSameClaim(one: PostedClaim, other: PostedClaim): boolean {
  const { router, epoch } = other.origin;
  return one.origin.router === router && one.origin.epoch === epoch && one.claim.stamp === other.claim.stamp;
}

export interface JoinedBackendParts {
  readonly backend: Backend;
  readonly replica: {
    readonly feeds: Pick<FeedTable, "onClaims">;
    setMembers(members: readonly Member[]): void;
  };
  readonly ownership: Ownership;
  readonly scheduler: Scheduler;
}

/** How often a router that joins checks whether it knows all that its peers do. */
const joinCheckMs = 20;

/**
 * A backend that reports the living routers to replica and ownership, and says goodbye at the end. It claims feeds only
 * when the router knows all that its peers do: a router that decides before it knows the claims of others would claim
 * every feed.
 */
export function joinedBackend({ backend, replica, ownership, scheduler }: JoinedBackendParts): Startable {
  let cancelCheck: Cancel = () => {};
  let isStopped = false;
  const changed = (): void => {
    replica.setMembers(backend.members());
    ownership.membersChanged();
  };
  backend.onMembers(changed);
  replica.feeds.onClaims((target) => ownership.claimsChanged(target));
  const startOwnership = (): void => {
    if (backend.waitingFor.length > 0) cancelCheck = scheduler.after(joinCheckMs, startOwnership);
    else ownership.start();
  };
  return {
    async start() {
      await backend.start();
      if (isStopped) return;
      changed();
      startOwnership();
    },
    async stop() {
      isStopped = true;
      cancelCheck();
      ownership.stop();
      await backend.leave();
      await backend.stop();
    },
  };
}
