import { createSeededRandom } from "@espalier/core";
import { createRecordingLogger, type VirtualTime } from "@espalier/testing";
import {
  createRedisKeys,
  defaultRedisLimits,
  type RedisIncident,
  type RedisLimits,
} from "../../src/redis/redis-keys.ts";
import type { FakeReplica } from "./fake-replica.ts";

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

/** Writes that many items of one byte each more than their number has digits. */
export function writeMany(replica: FakeReplica, from: number, to: number): void {
  for (let at = from; at < to; at++) replica.write(`i${at}`);
}
