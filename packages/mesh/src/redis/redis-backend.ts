import type { Cancel, GaugeSeries } from "@espalier/common";
import { type Member, type Origin, originKey } from "@espalier/replication";
import type { Backend, BackendDescription } from "../exchange/backend.ts";
import type { DirectoryView } from "./directory.ts";
import type { ControlMessage } from "./message-channels.ts";
import { defaultRedisLimits, type RedisLimits } from "./redis-limits.ts";
import {
  describeRedis,
  joinThrough,
  makeRedisParts,
  type RedisBackendOptions,
  type RedisParts,
  TrafficMeter,
} from "./redis-parts.ts";
import type { RedisSession } from "./redis-session.ts";

/** After somebody came, left or moved, the others look again so soon. */
const lookSoonMs = 5;
/** A writer is heard at most this often when others ask it to publish anew. */
const republishIntervalMs = 1_000;
/** What is on its way is given so long to arrive when the router leaves. */
const leaveTimeoutMs = 1_000;
/** Looks between two sweeps of journals that nobody needs. */
const sweepEvery = 20;

/**
 * Carries a replica's journals, gauges and snapshots through Redis. While Redis is away the replica goes on with what it
 * has, and members stay as they were.
 *
 * `start` throws EspalierError `redis_unusable` when Redis refuses user or password, and `mesh_rejected` when another
 * living router has the same id. When Redis cannot be reached it returns, and goes on trying.
 */
export function createRedisBackend(options: RedisBackendOptions): Backend {
  return new RedisBackend(options);
}

class RedisBackend implements Backend {
  readonly kind = "redis";
  readonly #options: RedisBackendOptions;
  readonly #limits: RedisLimits;
  readonly #isConnected: GaugeSeries;
  readonly #parts: RedisParts;
  readonly #traffic: TrafficMeter;
  readonly #listeners = new Set<() => void>();
  readonly #cancels: Cancel[] = [];
  /** The session on which this router holds its lease. */
  #session: RedisSession | undefined;
  #isStarted = false;
  #isLeaving = false;
  #isLooking = false;
  #hasJoined = false;
  #graceUntilMs = Number.NEGATIVE_INFINITY;
  #lastRepublishMs = Number.NEGATIVE_INFINITY;
  #looks = 0;
  #cancelSoon: Cancel | undefined;

  constructor(options: RedisBackendOptions) {
    this.#options = options;
    this.#limits = { ...defaultRedisLimits, ...options.limits };
    this.#isConnected = options.meter
      .gauge({ name: "espalier_redis_connected", help: "1 while the router's state goes through Redis, else 0." })
      .series();
    this.#traffic = new TrafficMeter(options.clock);
    this.#parts = makeRedisParts(options, this.#limits, {
      onSession: (session) => this.#connected(session),
      onSessionEnd: () => this.#disconnected(),
      onMembers: () => this.#membersChanged(),
      onControl: (message) => this.#control(message),
      session: () => this.#session,
      isReady: () => this.waitingFor.length === 0,
    });
  }

  async start(): Promise<void> {
    const { replica, scheduler } = this.#options;
    this.#cancels.push(
      replica.documents.onUpdate((update, isOwn) => isOwn && this.#parts.writer.add(update)),
      replica.snapshots.onRequest((request) => void this.#parts.snapshots.ask(request)),
    );
    await this.#parts.connector.start();
    const { session } = this.#parts.connector;
    if (session) {
      await this.#firstClaim(session);
      await this.#look();
    }
    this.#isStarted = true;
    this.#cancels.push(
      scheduler.every(this.#limits.renewMs, () => void this.#look()),
      scheduler.every(this.#limits.statementsMs, () => this.#state()),
    );
  }

  async stop(): Promise<void> {
    this.#listeners.clear();
    for (const cancel of this.#cancels.splice(0)) cancel();
    this.#cancelSoon?.();
    this.#parts.snapshots.stop();
    this.#disconnected();
    this.#parts.channels.stop();
    this.#parts.connector.stop();
  }

  async leave(): Promise<void> {
    const { replica } = this.#options;
    const session = this.#session;
    if (!session || this.#isLeaving) return;
    await this.#parts.writer.settle(leaveTimeoutMs);
    this.#isLeaving = true;
    try {
      await this.#parts.lease.release(session);
      await this.#parts.channels.publishNow({ kind: "goodbye", from: replica.origin });
    } catch {
      this.#options.logger.info("Redis is away; the others will see the lease lapse");
    }
  }

  members(): readonly Member[] {
    return this.#parts.table.list(this.#session !== undefined);
  }

  onMembers(listener: () => void): Cancel {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  get waitingFor(): readonly string[] {
    return this.#parts.join.waitingFor(this.#parts.reader.unread);
  }

  setDraining(isDraining: boolean): void {
    this.#parts.lease.isDraining = isDraining;
    this.#tellAll();
  }

  setUnreachable(targets: readonly string[]): void {
    this.#parts.lease.unreachable = [...targets];
    this.#tellAll();
  }

  get bufferedBytes(): number {
    return this.#parts.writer.queuedBytes;
  }

  describe(): BackendDescription {
    return describeRedis(this.#parts, this.#traffic, this.members(), this.waitingFor);
  }

  async #firstClaim(session: RedisSession): Promise<void> {
    try {
      await this.#parts.lease.claim(session);
    } catch (error) {
      if (!session.isEnded) {
        this.#parts.connector.stop();
        throw error;
      }
    }
  }

  #connected(session: RedisSession): void {
    this.#parts.join.connected();
    if (this.#hasJoined) this.#startGrace();
    if (this.#isStarted) void this.#look(session);
  }

  #disconnected(): void {
    this.#session = undefined;
    this.#isConnected.set(0);
    this.#parts.writer.detach();
    this.#parts.reader.detach();
    this.#parts.channels.detach();
    if (this.#isStarted) this.#membersChanged();
  }

  #startGrace(): void {
    this.#graceUntilMs = this.#options.clock.nowMs() + this.#limits.graceMs;
  }

  /** Renews the own lease, and looks who and what is there. */
  async #look(session = this.#parts.connector.session): Promise<void> {
    if (!session || session.isEnded || this.#isLooking || this.#isLeaving) return;
    this.#isLooking = true;
    try {
      const outcome = await this.#parts.lease.renew(session);
      this.#idTaken(outcome === "taken");
      if (outcome === "taken") return;
      if (outcome === "anew" && this.#session) this.#startGrace();
      const view = await this.#parts.directory.look(session);
      if (session.isEnded) return;
      this.#take(view);
      if (this.#session !== session) this.#attach(session);
      await this.#parts.writer.check(view.announced);
      await this.#tidy(session, view);
    } catch (error) {
      if (!session.isEnded) this.#options.logger.warn("a look at Redis failed", { error: String(error) });
    } finally {
      this.#isLooking = false;
    }
  }

  #idTaken(isTaken: boolean): void {
    this.#parts.join.idTaken(isTaken);
    if (!isTaken || !this.#session) return;
    const { logger, replica } = this.#options;
    logger.error("another living router has this router's id; this one shares nothing", { ...replica.origin });
    this.#disconnected();
  }

  #take({ leases, sources }: DirectoryView): void {
    const isGrace = this.#options.clock.nowMs() < this.#graceUntilMs;
    this.#parts.table.observe(leases, isGrace);
    this.#parts.reader.setSources(sources);
  }

  #attach(session: RedisSession): void {
    const { replica, scheduler, logger } = this.#options;
    this.#session = session;
    this.#isConnected.set(1);
    this.#parts.writer.attach(session);
    this.#parts.channels.attach(session);
    this.#parts.channels.publish({ kind: "hello", from: replica.origin });
    if (this.#hasJoined) {
      this.#parts.reader.attach(session);
      this.#membersChanged();
      return;
    }
    this.#hasJoined = true;
    this.#cancels.push(scheduler.after(this.#limits.gaugesTimeoutMs, () => this.#parts.join.gaugesOverdue()));
    joinThrough(this.#parts, { ...this.#options, limits: this.#limits })
      .then(() => this.#session && this.#parts.reader.attach(this.#session))
      .catch((error: unknown) => logger.warn("joining failed", { error: String(error) }));
  }

  async #tidy(session: RedisSession, { sources }: DirectoryView): Promise<void> {
    const forgotten = this.#parts.table.takeForgotten();
    await this.#parts.directory.forget(session, forgotten);
    for (const router of forgotten) this.#parts.channels.forget(router);
    if (++this.#looks % sweepEvery !== 0) return;
    // A member in any state may come back to its journal.
    const known = new Set(this.members().map(({ origin }) => originKey(origin)));
    this.#traffic.keepOnly(new Set(["sent", ...known]));
    const dead = [...sources.values()].filter(({ origin }) => !known.has(originKey(origin)));
    await this.#parts.directory.sweep(session, dead, new Set(this.#parts.reader.dropped.map(originKey)));
  }

  #control(message: ControlMessage): void {
    switch (message.kind) {
      case "hello":
        this.#parts.channels.sendAllGaugesSoon();
        this.#lookSoon();
        return;
      case "streams":
        this.#lookSoon();
        return;
      case "goodbye":
        this.#parts.table.left(message.from);
        return;
      case "republish":
        this.#republish(message.origin);
        return;
      case "snapshot":
        if (this.#session) void this.#parts.snapshotServer.handle(this.#session, message);
        return;
      case "statements":
        for (const statement of message.statements) this.#options.replica.compareStatement(statement, message.from);
    }
  }

  #republish(origin: Origin): void {
    const { replica, clock } = this.#options;
    if (originKey(origin) !== originKey(replica.origin)) return;
    if (clock.nowMs() - this.#lastRepublishMs < republishIntervalMs) return;
    this.#lastRepublishMs = clock.nowMs();
    this.#parts.writer.republish();
  }

  #state(): void {
    const { replica } = this.#options;
    const statements = replica.statements();
    for (let at = 0; at < statements.length; at += this.#limits.maxStatements) {
      const some = statements.slice(at, at + this.#limits.maxStatements);
      this.#parts.channels.publish({ kind: "statements", from: replica.origin, statements: some });
    }
  }

  /** Renews the lease with what has changed, and has the others look at it. */
  #tellAll(): void {
    if (!this.#session) return;
    this.#look()
      .then(() => this.#parts.channels.publish({ kind: "streams", from: this.#options.replica.origin }))
      .catch(() => {});
  }

  #lookSoon(): void {
    this.#cancelSoon ??= this.#options.scheduler.after(lookSoonMs, () => {
      this.#cancelSoon = undefined;
      void this.#look();
    });
  }

  #membersChanged(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}
