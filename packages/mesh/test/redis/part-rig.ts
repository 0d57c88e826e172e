import { createSeededRandom } from "@espalier/common";
import type { Origin } from "@espalier/replication";
import { createRecordingLogger, createVirtualTime, type VirtualTime } from "@espalier/testing";
import { createRedisKeys, type RedisIncident } from "../../src/redis/redis-keys.ts";
import { defaultRedisLimits, type RedisLimits } from "../../src/redis/redis-limits.ts";
import { StreamReader } from "../../src/redis/stream-reader.ts";
import { StreamWriter } from "../../src/redis/stream-writer.ts";
import { FakeRedis } from "./fake-redis.ts";
import { FakeReplica } from "./fake-replica.ts";

export const keys = createRedisKeys("test");

/** What every part of the backend is made with. */
export function makeShared(time: VirtualTime, limits: Partial<RedisLimits> = {}) {
  const incidents: RedisIncident[] = [];
  return {
    keys,
    limits: { ...defaultRedisLimits, ...limits },
    clock: time.clock,
    scheduler: time.scheduler,
    random: createSeededRandom(1),
    logger: createRecordingLogger(),
    count: (incident: RedisIncident) => void incidents.push(incident),
    incidents,
  };
}

export function makeRedis() {
  const time = createVirtualTime();
  return { time, redis: new FakeRedis(time) };
}

/** A writer of a replica's own documents, attached to nothing. */
export function makeWriter(time: VirtualTime, limits: Partial<RedisLimits> = {}, id = "a") {
  const shared = makeShared(time, limits);
  const replica = new FakeReplica(id);
  const announcements: number[] = [];
  const writer = new StreamWriter({
    ...shared,
    documents: replica.documents,
    origin: () => replica.origin,
    onAnnounced: () => announcements.push(time.clock.nowMs()),
  });
  replica.documents.onUpdate((update) => writer.add(update));
  return { writer, replica, shared, announcements };
}

/** A reader of others' journals, attached to nothing. */
export function makeReader(time: VirtualTime, limits: Partial<RedisLimits> = {}, id = "r") {
  const shared = makeShared(time, limits);
  const replica = new FakeReplica(id);
  const holes: string[] = [];
  const reader = new StreamReader({
    ...shared,
    documents: replica.documents,
    onHole: ({ router, epoch }) => holes.push(`${router}@${epoch}`),
  });
  return { reader, replica, shared, holes };
}

/** The journals that are announced, as a look finds them. */
export function announced(redis: FakeRedis) {
  const list = redis.do("HGETALL", keys.origins) as Buffer[];
  const found = new Map<string, { readonly origin: Origin; readonly incarnation: number }>();
  for (let at = 0; at < list.length; at += 2) {
    const key = String(list[at]);
    const [router, epoch] = key.split("@");
    const origin = new FakeReplica(router!, Number(epoch)).origin;
    found.set(key, { origin, incarnation: Number(String(list[at + 1])) });
  }
  return found;
}

/** Writes that many items of one byte each more than their number has digits. */
export function writeMany(replica: FakeReplica, from: number, to: number): void {
  for (let at = from; at < to; at++) replica.write(`i${at}`);
}
