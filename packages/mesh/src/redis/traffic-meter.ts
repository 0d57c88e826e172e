import type { Clock } from "@espalier/common";

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
