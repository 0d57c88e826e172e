import type { Clock, Logger, Meter, Random, Scheduler } from "@espalier/common";
import { type Member, type Origin, originKey, type ReplicaPorts } from "@espalier/replication";
import type { BackendDescription } from "../exchange/backend.ts";
import { Directory, MemberTable } from "./directory.ts";
import { LeaseKeeper } from "./lease.ts";
import { type ControlMessage, MessageChannels } from "./message-channels.ts";
import { RedisConnector } from "./redis-connector.ts";
import { createIncidentCounter, createRedisKeys } from "./redis-keys.ts";
import type { RedisLimits } from "./redis-limits.ts";
import { pause, type RedisSession } from "./redis-session.ts";
import { createSnapshotServer, SnapshotClient, type SnapshotServer } from "./snapshots.ts";
import { StreamReader } from "./stream-reader.ts";
import { StreamWriter } from "./stream-writer.ts";

export interface RedisBackendOptions {
  readonly replica: ReplicaPorts;
  /** `redis://` or `rediss://`, with user and password where needed. Never logged. */
  readonly url: string;
  /** Routers of one cluster share everything, and share the Redis server with other clusters. */
  readonly cluster: string;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly meter: Meter;
  readonly limits?: Partial<RedisLimits>;
}

/** What the parts tell and ask the whole. */
export interface RedisHooks {
  readonly onSession: (session: RedisSession) => void;
  readonly onSessionEnd: () => void;
  readonly onMembers: () => void;
  readonly onControl: (message: ControlMessage) => void;
  /** The session on which the lease is held. */
  readonly session: () => RedisSession | undefined;
  readonly isReady: () => boolean;
}

export interface RedisParts {
  readonly connector: RedisConnector;
  readonly lease: LeaseKeeper;
  readonly table: MemberTable;
  readonly directory: Directory;
  readonly writer: StreamWriter;
  readonly reader: StreamReader;
  readonly channels: MessageChannels;
  readonly snapshots: SnapshotClient;
  readonly snapshotServer: SnapshotServer;
  readonly join: JoinWatch;
}

export function makeRedisParts(options: RedisBackendOptions, limits: RedisLimits, hooks: RedisHooks): RedisParts {
  const { replica, cluster, clock, meter } = options;
  const { documents, load, notes, snapshots } = replica;
  const keys = createRedisKeys(cluster);
  const origin = (): Origin => replica.origin;
  const shared = { ...options, origin, keys, limits, count: createIncidentCounter(meter), isReady: hooks.isReady };
  const join = new JoinWatch(clock, limits);
  const onGauges = (from: Origin): void => join.gaugesFrom(from);
  const channels = new MessageChannels({ ...shared, load, notes, onControl: hooks.onControl, onGauges });
  const connector = new RedisConnector({
    ...shared,
    channels: [keys.load, keys.notes, keys.control],
    onMessage: (channel, message) => channels.receive(channel, message),
    onSession: hooks.onSession,
    onEnd: hooks.onSessionEnd,
  });
  const onGone = (gone: Origin): void => load.originGone(gone);
  const table = new MemberTable({ ...shared, onChange: hooks.onMembers, onGone });
  const onAnnounced = (): void => channels.publish({ kind: "streams", from: replica.origin });
  const onHole = (hole: Origin): void => channels.publish({ kind: "republish", from: replica.origin, origin: hole });
  return {
    connector,
    channels,
    table,
    join,
    lease: new LeaseKeeper(shared),
    directory: new Directory(shared),
    writer: new StreamWriter({ ...shared, documents, onAnnounced }),
    reader: new StreamReader({ ...shared, documents, onHole }),
    snapshots: new SnapshotClient({
      ...shared,
      snapshots,
      session: hooks.session,
      hasPeers: () => table.hasReady,
      publish: (question) => channels.publish(question),
    }),
    snapshotServer: createSnapshotServer({ ...shared, snapshots }),
  };
}

/** The shortest time over which a rate is taken. */
const minWindowMs = 500;

/** Bytes of a counter, and how many per second of late. */
export interface Traffic {
  readonly bytes: number;
  readonly bytesPerS: number;
}

interface Sample {
  bytes: number;
  atMs: number;
  bytesPerS: number;
}

/** Rates of counters, between one look and the next. */
export class TrafficMeter {
  readonly #clock: Clock;
  readonly #samples = new Map<string, Sample>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @param bytes what the counter of this name says now */
  of(name: string, bytes: number): Traffic {
    const nowMs = this.#clock.nowMs();
    const sample = this.#samples.get(name);
    if (!sample) {
      this.#samples.set(name, { bytes, atMs: nowMs, bytesPerS: 0 });
      return { bytes, bytesPerS: 0 };
    }
    const elapsedMs = nowMs - sample.atMs;
    if (elapsedMs >= minWindowMs) {
      const bytesPerS = Math.max(0, ((bytes - sample.bytes) * 1_000) / elapsedMs);
      Object.assign(sample, { bytes, atMs: nowMs, bytesPerS });
    }
    return { bytes, bytesPerS: sample.bytesPerS };
  }

  /** Forgets all other names. */
  keepOnly(names: ReadonlySet<string>): void {
    for (const name of [...this.#samples.keys()]) if (!names.has(name)) this.#samples.delete(name);
  }
}

/** The exchange as operators see it. Through Redis there are neither addresses nor round trips, and what is sent goes to all alike. */
export function describeRedis(
  { writer, reader, channels }: RedisParts,
  traffic: TrafficMeter,
  members: readonly Member[],
  waitingFor: readonly string[],
): BackendDescription {
  const sent = traffic.of("sent", writer.sentBytes + channels.sentBytes);
  const received = (origin: Origin): number =>
    channels.receivedBytes(origin) + (reader.stats(origin)?.receivedBytes ?? 0);
  return {
    kind: "redis",
    address: null,
    waitingFor,
    members: members.map(({ origin, state, isDraining, isLinked }) => {
      const { bytes, bytesPerS } = traffic.of(originKey(origin), received(origin));
      const lagMs = reader.stats(origin)?.lagMs ?? Number.NaN;
      return {
        router: origin.router,
        epoch: origin.epoch,
        state,
        isDraining,
        address: null,
        isLinked,
        roundTripMs: null,
        lagMs: Number.isNaN(lagMs) ? null : lagMs,
        sentBytes: sent.bytes,
        receivedBytes: bytes,
        sentBytesPerS: sent.bytesPerS,
        receivedBytesPerS: bytesPerS,
        bufferedBytes: writer.queuedBytes,
      };
    }),
  };
}

/** What a router waits for before it is used. Once it has had everything it waits for nothing any more. */
export class JoinWatch {
  #isConnected = false;
  #isIdTaken = false;
  #needsSnapshot = true;
  #isDone = false;
  readonly #gauges = new Set<string>();
  readonly #clock: Clock;
  readonly #limits: RedisLimits;
  readonly #startMs: number;

  constructor(clock: Clock, limits: RedisLimits) {
    this.#clock = clock;
    this.#limits = limits;
    this.#startMs = clock.nowMs();
  }

  connected(): void {
    this.#isConnected = true;
  }

  idTaken(isTaken: boolean): void {
    this.#isIdTaken = isTaken;
  }

  snapshotDone(): void {
    this.#needsSnapshot = false;
  }

  awaitGauges(origins: readonly Origin[]): void {
    for (const origin of origins) this.#gauges.add(originKey(origin));
  }

  gaugesFrom(origin: Origin): void {
    this.#gauges.delete(originKey(origin));
  }

  /** They had time enough. */
  gaugesOverdue(): void {
    this.#gauges.clear();
  }

  /** @param unread origins whose journals were not read to the end */
  waitingFor(unread: readonly string[]): readonly string[] {
    const elapsedMs = this.#clock.nowMs() - this.#startMs;
    const { joinTimeoutMs, redisTimeoutMs } = this.#limits;
    this.#isDone ||= elapsedMs >= (this.#isConnected ? joinTimeoutMs : redisTimeoutMs);
    if (this.#isDone) return [];
    const found: string[] = [];
    if (!this.#isConnected) found.push("redis");
    if (this.#isIdTaken) found.push("router id");
    if (this.#needsSnapshot) found.push("snapshot");
    for (const origin of unread) found.push(`journal ${origin}`);
    for (const origin of this.#gauges) found.push(`gauges ${origin}`);
    this.#isDone = found.length === 0;
    return found;
  }
}

const readyPollMs = 25;

export interface JoinOptions {
  readonly replica: Pick<ReplicaPorts, "origin">;
  readonly limits: RedisLimits;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/**
 * Fetches the state of the others, if they have any. It comes before the journals, so that their records at or below the
 * state's stamps are passed over. Of routers that all begin at once, the one with the lowest id waits for nobody, and the
 * others wait for it.
 */
export async function joinThrough({ table, join, snapshots }: RedisParts, options: JoinOptions): Promise<void> {
  const { replica, limits, clock, scheduler } = options;
  const alive = (): Origin[] =>
    table
      .list(true)
      .filter(({ isLinked }) => isLinked)
      .map(({ origin }) => origin);
  join.awaitGauges(alive());
  const untilMs = clock.nowMs() + limits.snapshotTimeoutMs;
  const isBehind = (): boolean => alive().some(({ router }) => router < replica.origin.router);
  while (!table.hasReady && isBehind() && clock.nowMs() < untilMs) await pause(scheduler, readyPollMs);
  if (table.hasReady) await snapshots.ask({ targets: undefined, from: undefined });
  join.snapshotDone();
}
