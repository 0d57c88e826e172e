import { type Member, type Origin, originKey } from "@espalier/replication";
import type { BackendDescription } from "../exchange/backend.ts";
import type { RedisParts } from "./redis-parts.ts";
import type { TrafficMeter } from "./traffic-meter.ts";

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
