import { type Cancel, EspalierError, type GaugeSeries } from "@espalier/core";
import type { Backend, BackendDescription } from "../exchange/backend.ts";
import type { ExchangeLimits } from "../exchange/exchange-parts.ts";
import type { ProcessPorts } from "../link/link.ts";
import { createMesh, defaultGraceMs, type Mesh } from "../mesh.ts";
import { type Origin, originKey } from "../origin.ts";
import type { Member, ReplicaPorts } from "../replica-ports.ts";
import { subscribe } from "../subscribe.ts";
import { createNonce } from "../wire/secure-nonce.ts";
import { JournalStore } from "./journal-store.ts";
import { LivingRouters } from "./living-routers.ts";
import {
  createIncidentCounter,
  createRedisKeys,
  defaultRedisLimits,
  type RedisLimits,
  type StoredJournal,
} from "./redis-keys.ts";
import { lackOfRights, pause, RedisConnector, type RedisSession } from "./redis-session.ts";
import { RedisTransport } from "./redis-transport.ts";

/** How long a router that leaves waits until everything is stored and sent. */
const leaveTimeoutMs = 1_000;
/** Looks between two sweeps of obsolete journals. */
const sweepEvery = 20;

export interface RedisBackendOptions extends ProcessPorts {
  readonly replica: ReplicaPorts;
  /** `redis://` or `rediss://`, with user and password where needed. Never logged. */
  readonly url: string;
  /** Routers of one cluster share everything; clusters may share a Redis server. */
  readonly cluster: string;
  readonly fleetSeed: string;
  readonly blockSizeTokens: number;
  /** Where this router is; undefined if that is not said. */
  readonly region?: string | undefined;
  /** How long a router that has just started waits for Redis and looks for the routers in it, in milliseconds. */
  readonly graceMs?: number;
  /** CPU time that this process has used, in milliseconds. Default: none. */
  readonly cpuMs?: () => number;
  readonly limits?: Partial<RedisLimits>;
  readonly exchangeLimits?: Partial<ExchangeLimits>;
}

/**
 * A mesh whose connections go through Redis, where leases list the addresses of its routers. It keeps a copy of every
 * journal there for a tier that starts again. While Redis is away the replica continues with what it has, and members
 * stay as they were.
 *
 * `start` throws EspalierError `redis_unusable` when Redis refuses user or password, and `mesh_rejected` when another
 * living router has the same id. When Redis cannot be reached, or refuses what it may take later, it returns, and retries.
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
  readonly #living: LivingRouters;
  readonly #transport: RedisTransport;
  readonly #mesh: Mesh;
  readonly #store: JournalStore;
  readonly #cancels: Cancel[] = [];
  readonly #seedListeners = new Set<() => void>();
  /** The session on which this router holds its lease. */
  #session: RedisSession | undefined;
  #isStarted = false;
  #startMs = 0;
  #isLeaving = false;
  #isLooking = false;
  /** Journals are being read or written. */
  #isKeeping = false;
  #isIdTaken = false;
  /** Journals are being read. */
  #isReading = false;
  /** Redis was looked at, and the journals in it were read. */
  #hasLooked = false;
  #isOlderLogged = false;
  #lastFailure = "";
  #graceUntilMs = Number.NEGATIVE_INFINITY;
  #looks = 0;

  constructor(options: RedisBackendOptions) {
    this.#options = options;
    const { replica, cluster, meter, limits: changed, exchangeLimits, ...rest } = options;
    const limits = { ...defaultRedisLimits, ...changed };
    this.#limits = limits;
    this.#isConnected = meter
      .gauge("espalier_redis_connected", "1 while the router is connected to Redis, else 0.")
      .series();
    this.#count = createIncidentCounter(meter);
    const keys = createRedisKeys(cluster);
    const origin = (): Origin => replica.origin;
    const address = `${Buffer.from(createNonce()).toString("hex").slice(0, 16)}.redis:1`;
    const shared = { ...options, origin, address, keys, limits, count: this.#count };
    this.#living = new LivingRouters(shared);
    this.#transport = new RedisTransport({
      ...shared,
      isGone: (other) => !this.#isCutOff && !this.#living.has(other),
    });
    this.#store = new JournalStore({ ...shared, documents: replica.documents });
    this.#mesh = createMesh({
      ...{ ...rest, replica, cluster, meter },
      transport: this.#transport,
      security: { kind: "redis" },
      seeds: [],
      found: this.#seeds(),
      resolve: async (host) => [host],
      isCutOff: () => this.#isCutOff,
      linkLimits: { queueBytes: limits.queueBytes, maxPeers: limits.maxMembers },
      membershipLimits: { maxMembers: limits.maxMembers },
      ...(exchangeLimits && { exchangeLimits }),
    });
    this.#connector = new RedisConnector({
      ...shared,
      channels: [keys.inbox(address)],
      onMessage: (message) => this.#transport.receive(message),
      onSession: () => {
        if (this.#hasLooked) this.#graceUntilMs = options.clock.nowMs() + limits.graceMs;
        if (this.#isStarted) void this.#look();
      },
      onEnd: () => this.#detach(),
    });
  }

  async start(): Promise<void> {
    const { scheduler } = this.#options;
    this.#startMs = this.#options.clock.nowMs();
    await this.#connector.start();
    const { session } = this.#connector;
    if (session) await this.#firstClaim(session);
    this.#cancels.push(this.#store.start());
    await this.#mesh.start();
    await this.#look();
    this.#isStarted = true;
    this.#cancels.push(scheduler.every(this.#limits.renewMs, () => void this.#look()));
  }

  async stop(): Promise<void> {
    for (const cancel of this.#cancels.splice(0)) cancel();
    await this.#mesh.stop();
    this.#detach();
    this.#connector.stop();
  }

  async leave(): Promise<void> {
    const session = this.#session;
    if (!session || this.#isLeaving) return;
    this.#isLeaving = true;
    const { scheduler, logger } = this.#options;
    const leave = async (): Promise<void> => {
      await this.#store.write(session);
      await this.#living.release(session);
      await this.#mesh.leave();
      await this.#transport.flushed();
    };
    await Promise.race([
      leave().catch(() => logger.info("Redis unavailable; peers will suspect this router")),
      pause(scheduler, leaveTimeoutMs),
    ]);
  }

  members(): readonly Member[] {
    return this.#mesh.members();
  }

  onMembers(listener: () => void): Cancel {
    return this.#mesh.onMembers(listener);
  }

  get waitingFor(): readonly string[] {
    const waiting = this.#mesh.waitingFor;
    if (this.#hasLooked || waiting.length === 0) return waiting;
    if (this.#isIdTaken) return ["router id"];
    const { clock, graceMs = defaultGraceMs } = this.#options;
    return this.#isStarted && clock.nowMs() - this.#startMs >= graceMs ? [] : ["redis"];
  }

  setDraining(isDraining: boolean): void {
    this.#mesh.setDraining(isDraining);
  }

  setUnreachable(targets: readonly string[]): void {
    this.#mesh.setUnreachable(targets);
  }

  get bufferedBytes(): number {
    return this.#mesh.bufferedBytes;
  }

  /** Addresses are random, and mean nothing to operators. */
  describe(): BackendDescription {
    const mesh = this.#mesh.describe();
    const members = mesh.members.map((member) => ({ ...member, address: null }));
    return { ...mesh, kind: "redis", address: null, members, waitingFor: this.waitingFor };
  }

  /** Whether no router can be reached, or may not be back yet: silence says nothing about them. */
  get #isCutOff(): boolean {
    return this.#session === undefined || this.#options.clock.nowMs() < this.#graceUntilMs;
  }

  /** Whether every lease is that of a member: the others have a journal to give, or lapse and leave one in Redis. */
  get #hasMetAll(): boolean {
    const members = new Set<string>(this.members().map(({ origin }) => origin.router));
    return this.#living.routers.every((router) => members.has(router));
  }

  #seeds() {
    const isTried = (): boolean => this.#hasLooked && !this.#isReading && this.#hasMetAll;
    return {
      seeds: () => this.#living.addresses,
      get isTried() {
        return isTried();
      },
      onChange: (listener: () => void): Cancel => subscribe(this.#seedListeners, listener),
    };
  }

  async #firstClaim(session: RedisSession): Promise<void> {
    try {
      await this.#living.claim(session);
      await this.#riseAboveStored(session);
    } catch (error) {
      const lasting = error instanceof EspalierError ? error : lackOfRights(error);
      if (!lasting) return;
      this.#connector.stop();
      throw lasting;
    }
  }

  /** An earlier run of this router with the same epoch or a later one cannot be distinguished from this run. */
  async #riseAboveStored(session: RedisSession): Promise<void> {
    const { replica } = this.#options;
    const { journals, announced } = await this.#store.list(session);
    const stored = [...journals, ...(announced ? [announced] : [])];
    const own = stored.filter(({ origin }) => origin.router === replica.origin.router);
    const known = Math.max(0, ...own.map(({ origin }) => origin.epoch));
    if (known >= replica.origin.epoch) replica.renewEpoch(known);
  }

  #detach(): void {
    this.#session = undefined;
    this.#isConnected.set(0);
    this.#transport.detach();
  }

  /** Renews the own lease and lists the others. Journals, which may take longer than a lease lasts, are not waited for. */
  async #look(): Promise<void> {
    const { session } = this.#connector;
    if (!session || session.isEnded || this.#isLooking || this.#isLeaving) return;
    this.#isLooking = true;
    const isOwn = await this.#attempt(session, () => this.#renew(session));
    this.#isLooking = false;
    if (!isOwn || this.#isKeeping) return;
    this.#isKeeping = true;
    await this.#attempt(session, () => this.#readAndKeep(session));
    this.#isKeeping = false;
  }

  /** @returns whether this router has its lease, and uses the session */
  async #renew(session: RedisSession): Promise<boolean> {
    const isOwn = await this.#living.renew(session);
    this.#idTaken(!isOwn);
    if (!isOwn || session.isEnded || this.#isLeaving) return false;
    if (this.#session !== session) this.#attach(session);
    return true;
  }

  async #readAndKeep(session: RedisSession): Promise<void> {
    this.#isReading = true;
    const { journals, announced } = await this.#store.list(session);
    await this.#store.load(session, journals, this.#isLost());
    this.#hasLooked = true;
    this.#isReading = false;
    for (const listener of [...this.#seedListeners]) listener();
    await this.#store.keep(session, announced);
    await this.#tidy(session, journals);
    this.#lastFailure = "";
  }

  /** @returns undefined when Redis refused it: it loads its data, has lost its replicas or its disk. Links go on. */
  async #attempt<Value>(session: RedisSession, what: () => Promise<Value>): Promise<Value | undefined> {
    try {
      return await what();
    } catch (thrown) {
      this.#isReading = false;
      if (session.isEnded) return undefined;
      const error = String(thrown);
      this.#count("look-failed");
      if (error !== this.#lastFailure) this.#options.logger.warn("Redis read failed", { error });
      this.#lastFailure = error;
      return undefined;
    }
  }

  #idTaken(isTaken: boolean): void {
    this.#isIdTaken = isTaken;
    if (!isTaken || !this.#session) return;
    const { logger, replica } = this.#options;
    logger.error("duplicate router id in Redis; this router shares nothing", { ...replica.origin });
    this.#detach();
  }

  #attach(session: RedisSession): void {
    this.#session = session;
    this.#connector.proved();
    this.#isConnected.set(1);
    this.#transport.attach(session);
  }

  /** Living routers send their journals themselves. Those of other routers are in Redis, and perhaps nowhere else. */
  #isLost(): (journal: StoredJournal) => boolean {
    const held = this.#held();
    const living = new Set(this.#living.routers);
    return ({ origin }) => !living.has(origin.router) && !held.has(originKey(origin));
  }

  #held(): ReadonlySet<string> {
    const documents = this.#options.replica.documents.list();
    return new Set(documents.flatMap(({ origin }) => (origin ? originKey(origin) : [])));
  }

  async #tidy(session: RedisSession, journals: readonly StoredJournal[]): Promise<void> {
    if (this.#looks++ % sweepEvery !== 0) return;
    await this.#warnOfOlder(session);
    if (this.waitingFor.length > 0) return;
    // A member in any state may come back to its journal.
    const known = new Set(this.members().map(({ origin }) => originKey(origin)));
    const held = this.#held();
    const dead = journals.filter(({ origin }) => !known.has(originKey(origin)));
    await this.#store.sweep(session, dead, (origin) => !held.has(originKey(origin)));
  }

  async #warnOfOlder(session: RedisSession): Promise<void> {
    const hasOlder = await this.#living.hasOlder(session);
    if (hasOlder) this.#count("older-version");
    if (hasOlder && !this.#isOlderLogged) {
      this.#options.logger.error("routers of an earlier version use this Redis cluster; nothing is shared with them");
    }
    this.#isOlderLogged = hasOlder;
  }
}
