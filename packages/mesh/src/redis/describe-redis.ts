import type { Clock } from "@espalier/common";
import { type Member, type Origin, originKey } from "@espalier/replication";
import type { BackendDescription } from "../exchange/backend.ts";
import type { RedisParts } from "./redis-parts.ts";

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
