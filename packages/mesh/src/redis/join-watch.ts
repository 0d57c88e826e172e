import type { Clock } from "@espalier/common";
import { type Origin, originKey } from "@espalier/replication";
import type { RedisLimits } from "./redis-limits.ts";

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
