import type { Cancel, GaugeSeries } from "@espalier/core";
import { type Backend, type BackendDescription, describeMember, PeerRates, Readiness } from "../exchange/backend.ts";
import { Exchange } from "../exchange/exchange.ts";
import type { ExchangeLimits } from "../exchange/exchange-parts.ts";
import { guardObserver } from "../link/guard-observer.ts";
import type { Channel, Link, ProcessPorts } from "../link/link.ts";
import { type Origin, originKey } from "../origin.ts";
import type { Member, ReplicaPorts } from "../replica-ports.ts";
import { Directory, type DirectoryView, MemberTable, type StoredJournal } from "./directory.ts";
import { JournalStore } from "./journal-store.ts";
import { LeaseKeeper } from "./lease.ts";
import { createIncidentCounter, createRedisKeys, defaultRedisLimits, type RedisLimits } from "./redis-keys.ts";
import { RedisLinks } from "./redis-links.ts";
import { pause, RedisConnector, type RedisSession } from "./redis-session.ts";

/** How soon others look again after a router came, left or moved. */
const lookSoonMs = 5;
/** How long a router that leaves waits until everything is stored and sent. */
const leaveTimeoutMs = 1_000;
/** Looks between two sweeps of obsolete entries. */
const sweepEvery = 20;
const ratesPeriodMs = 1_000;

export interface RedisBackendOptions extends ProcessPorts {
  readonly replica: ReplicaPorts;
  /** `redis://` or `rediss://`, with user and password where needed. Never logged. */
  readonly url: string;
  /** Routers of one cluster share everything; clusters may share a Redis server. */
  readonly cluster: string;
  /** Where this router is; undefined if that is not said. */
  readonly region?: string | undefined;
  readonly limits?: Partial<RedisLimits>;
  readonly exchangeLimits?: Partial<ExchangeLimits>;
}

/**
 * Carries the frames of the mesh's exchange through Redis, where leases say which routers are alive. It keeps a copy of
 * every journal there for a tier that starts again. While Redis is away the replica continues with what it has, and
 * members stay as they were.
 *
 * `start` throws EspalierError `redis_unusable` when Redis refuses user or password, and `mesh_rejected` when another
 * living router has the same id. When Redis cannot be reached it returns, and retries.
 */
export function createRedisBackend(options: RedisBackendOptions): Backend {
  return new RedisBackend(options);
}

class RedisBackend implements Backend {
  readonly kind = "redis";
  readonly #options: RedisBackendOptions;
  readonly #limits: RedisLimits;
  readonly #isConnected: GaugeSeries;
  readonly #count;
  readonly #connector: RedisConnector;
  readonly #lease: LeaseKeeper;
  readonly #directory: Directory;
  readonly #table: MemberTable;
  readonly #links: RedisLinks;
  readonly #exchange: Exchange;
  readonly #store: JournalStore;
  readonly #readiness: Readiness;
  readonly #rates: PeerRates;
  readonly #listeners = new Set<() => void>();
  readonly #cancels: Cancel[] = [];
  /** The session on which this router holds its lease. */
  #session: RedisSession | undefined;
  #isStarted = false;
  #isLeaving = false;
  #isLooking = false;
  #isIdTaken = false;
  #isOlderLogged = false;
  #isReading = false;
  #hasAttached = false;
  #graceUntilMs = Number.NEGATIVE_INFINITY;
  #looks = 0;
  #cancelSoon: Cancel | undefined;

  constructor(options: RedisBackendOptions) {
    this.#options = options;
    const { replica, clock, cluster, meter } = options;
    const limits = { ...defaultRedisLimits, ...options.limits };
    this.#limits = limits;
    this.#isConnected = meter
      .gauge({ name: "espalier_redis_connected", help: "1 while the router's state goes through Redis, else 0." })
      .series();
    this.#count = createIncidentCounter(meter);
    this.#rates = new PeerRates(clock);
    const keys = createRedisKeys(cluster);
    const origin = (): Origin => replica.origin;
    const shared = { ...options, origin, keys, limits, count: this.#count };
    this.#lease = new LeaseKeeper({ ...shared, isReady: () => this.waitingFor.length === 0 });
    this.#directory = new Directory(shared);
    this.#table = new MemberTable({
      ...shared,
      onChange: () => this.#membersChanged(),
      onGone: (gone) => this.#exchange.memberGone(gone),
    });
    this.#links = new RedisLinks({
      ...shared,
      observer: guardObserver(
        {
          up: (link) => this.#exchange.linkUp(link),
          down: (link) => this.#exchange.linkDown(link),
          frame: (link, channel, frame) => this.#frame(link, channel, frame),
          drained: (link, channel) => this.#exchange.drained(link, channel),
          dialFailed() {},
        },
        options,
      ),
      onGreeting: (from) => {
        this.#table.greeted(from);
        this.#lookSoon();
      },
      onGoodbye: (from) => this.#table.left(from),
      onLook: () => this.#lookSoon(),
    });
    const { exchangeLimits, limits: _, ...parts } = options;
    this.#exchange = new Exchange({
      ...parts,
      peers: {
        get self() {
          return replica.origin;
        },
        // A router with a lease hears all others.
        hears: (router, other) => this.#isAlive(router) && this.#isAlive(other),
        epochOf: (router) => this.#table.member(router)?.origin.epoch,
      },
      isLooking: () => this.#readiness.isLooking,
      ...(exchangeLimits && { limits: exchangeLimits }),
    });
    this.#store = new JournalStore({ ...shared, documents: replica.documents });
    this.#readiness = new Readiness({
      clock,
      graceMs: limits.redisTimeoutMs,
      maxWaitMs: Math.max(limits.joinTimeoutMs, limits.redisTimeoutMs),
      lookingFor: "redis",
      hasTriedAll: () => this.#hasAttached && !this.#isReading && this.#hasAllLinks(),
      conditions: {
        "router id": () => !this.#isIdTaken,
        snapshot: () => !this.#hasAttached || this.#exchange.conditions.snapshot(),
        journals: () => this.#exchange.conditions.journals(),
        gauges: () => this.#exchange.conditions.gauges(),
      },
    });
    this.#connector = new RedisConnector({
      ...shared,
      channels: [keys.all, keys.inbox(replica.origin.router)],
      onMessage: (message) => this.#links.receive(message),
      onSession: () => this.#connected(),
      onEnd: () => this.#disconnected(),
    });
  }

  async start(): Promise<void> {
    const { scheduler } = this.#options;
    this.#readiness.start();
    this.#exchange.start();
    this.#cancels.push(this.#store.start());
    await this.#connector.start();
    const { session } = this.#connector;
    if (session) {
      await this.#firstClaim(session);
      await this.#look();
    }
    this.#isStarted = true;
    this.#cancels.push(
      scheduler.every(this.#limits.renewMs, () => void this.#look()),
      scheduler.every(ratesPeriodMs, () => this.#rates.sample(this.#links.links())),
    );
  }

  async stop(): Promise<void> {
    this.#listeners.clear();
    for (const cancel of this.#cancels.splice(0)) cancel();
    this.#cancelSoon?.();
    this.#disconnected();
    this.#exchange.stop();
    this.#connector.stop();
  }

  async leave(): Promise<void> {
    const session = this.#session;
    if (!session || this.#isLeaving) return;
    this.#isLeaving = true;
    const { scheduler, logger } = this.#options;
    const leave = async (): Promise<void> => {
      await this.#store.write(session);
      await this.#lease.release(session);
      await this.#links.tellAll("goodbye");
    };
    await Promise.race([
      leave().catch(() => logger.info("Redis is away; the others will see the lease lapse")),
      pause(scheduler, leaveTimeoutMs),
    ]);
  }

  members(): readonly Member[] {
    return this.#table.list(this.#session !== undefined);
  }

  onMembers(listener: () => void): Cancel {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  get waitingFor(): readonly string[] {
    return this.#readiness.waitingFor;
  }

  setDraining(isDraining: boolean): void {
    this.#lease.isDraining = isDraining;
    this.#tellAll();
  }

  setUnreachable(targets: readonly string[]): void {
    this.#lease.unreachable = [...targets];
    this.#tellAll();
  }

  get bufferedBytes(): number {
    return this.#links.waitingBytes;
  }

  describe(): BackendDescription {
    const links = new Map(this.#links.links().map((link) => [originKey(link.peer.origin), link]));
    const members = this.members().map((member) => {
      const link = links.get(originKey(member.origin));
      const rates = link && this.#rates.of(link);
      return describeMember({ member, link, rates, lagMs: link && this.#exchange.lagMs(link), address: undefined });
    });
    return { kind: "redis", address: null, members, refused: [], waitingFor: this.waitingFor };
  }

  async #firstClaim(session: RedisSession): Promise<void> {
    try {
      await this.#lease.claim(session);
    } catch (error) {
      if (!session.isEnded) {
        this.#connector.stop();
        throw error;
      }
    }
  }

  #connected(): void {
    if (this.#hasAttached) this.#startGrace();
    if (this.#isStarted) void this.#look();
  }

  #disconnected(): void {
    this.#session = undefined;
    this.#isConnected.set(0);
    this.#links.detach();
    if (this.#isStarted) this.#membersChanged();
  }

  #startGrace(): void {
    this.#graceUntilMs = this.#options.clock.nowMs() + this.#limits.graceMs;
  }

  /** Renews the own lease, and looks for the other routers and journals. */
  async #look(): Promise<void> {
    const { session } = this.#connector;
    if (!session || session.isEnded || this.#isLooking || this.#isLeaving) return;
    this.#isLooking = true;
    try {
      const outcome = await this.#lease.renew(session);
      this.#idTaken(outcome === "taken");
      if (outcome === "taken") return;
      if (outcome === "anew" && this.#session) this.#startGrace();
      const view = await this.#directory.look(session);
      if (session.isEnded || this.#isLeaving) return;
      this.#table.observe(view.leases, this.#options.clock.nowMs() < this.#graceUntilMs);
      if (this.#session !== session) this.#attach(session);
      this.#links.setPeers(this.#present());
      await this.#load(session, view);
      await this.#store.keep(session, view.announced);
      await this.#tidy(session, view);
    } catch (error) {
      if (!session.isEnded) this.#options.logger.warn("a look at Redis failed", { error: String(error) });
    } finally {
      this.#isLooking = false;
    }
  }

  #idTaken(isTaken: boolean): void {
    this.#isIdTaken = isTaken;
    if (!isTaken || !this.#session) return;
    const { logger, replica } = this.#options;
    logger.error("another living router has this router's id; this one shares nothing", { ...replica.origin });
    this.#disconnected();
  }

  #attach(session: RedisSession): void {
    this.#session = session;
    this.#hasAttached = true;
    this.#isConnected.set(1);
    this.#links.attach(session);
    this.#membersChanged();
  }

  /** Live routers send their journals themselves. Those of other routers are in Redis, and perhaps nowhere else. */
  async #load(session: RedisSession, { journals }: DirectoryView): Promise<void> {
    const held = new Set(this.#options.replica.documents.list().map(({ origin }) => origin && originKey(origin)));
    const isGone = ({ origin }: StoredJournal): boolean =>
      this.#table.member(origin.router)?.state !== "alive" && !held.has(originKey(origin));
    this.#isReading = true;
    try {
      await this.#store.load(session, journals, isGone);
    } finally {
      this.#isReading = false;
    }
  }

  async #tidy(session: RedisSession, { journals }: DirectoryView): Promise<void> {
    await this.#directory.forget(session, this.#table.takeForgotten());
    if (this.#looks++ % sweepEvery !== 0) return;
    await this.#warnOfOlder(session);
    if (this.waitingFor.length > 0) return;
    // A member in any state may come back to its journal.
    const known = new Set(this.members().map(({ origin }) => originKey(origin)));
    const dead = journals.filter(({ origin }) => !known.has(originKey(origin)));
    const kept = new Set(
      this.#options.replica.documents.list().flatMap(({ origin }) => (origin ? originKey(origin) : [])),
    );
    await this.#directory.sweep(session, dead, (origin) => !kept.has(originKey(origin)));
  }

  async #warnOfOlder(session: RedisSession): Promise<void> {
    const hasOlder = await this.#directory.hasOlder(session);
    if (hasOlder) this.#count("older-version");
    if (hasOlder && !this.#isOlderLogged) {
      this.#options.logger.error(
        "routers of an earlier version use this Redis and cluster; they and this one share nothing until they are gone",
      );
    }
    this.#isOlderLogged = hasOlder;
  }

  #frame(link: Link, channel: Channel, frame: Uint8Array): void {
    if (channel !== "membership") this.#exchange.frame(link, channel, frame);
  }

  /** Renews the lease with what has changed, and has the others look at it. */
  #tellAll(): void {
    if (!this.#session) return;
    this.#look()
      .then(() => this.#links.tellAll("look"))
      .catch(() => {});
  }

  #lookSoon(): void {
    this.#cancelSoon ??= this.#options.scheduler.after(lookSoonMs, () => {
      this.#cancelSoon = undefined;
      void this.#look();
    });
  }

  #hasAllLinks(): boolean {
    return this.members().every(({ state, origin }) => state !== "alive" || this.#links.isLinked(origin));
  }

  /** Routers whose lease is there, or lapsed a short time ago. */
  #present(): Origin[] {
    return this.members().flatMap(({ state, origin }) => (state === "alive" || state === "suspect" ? origin : []));
  }

  #isAlive(router: string): boolean {
    return router === this.#options.replica.origin.router || this.#table.member(router)?.state === "alive";
  }

  #membersChanged(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}
