import type { Clock, Logger, Meter, Random, Scheduler } from "@espalier/common";
import type { Origin, ReplicaPorts } from "@espalier/replication";
import type { ControlMessage } from "./control-message.ts";
import { Directory } from "./directory.ts";
import { JoinWatch } from "./join.ts";
import { LeaseKeeper } from "./lease.ts";
import { MemberTable } from "./member-table.ts";
import { MessageChannels } from "./message-channels.ts";
import { RedisConnector } from "./redis-connector.ts";
import { createIncidentCounter } from "./redis-incidents.ts";
import { createRedisKeys } from "./redis-keys.ts";
import type { RedisLimits } from "./redis-limits.ts";
import type { RedisSession } from "./redis-session.ts";
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
