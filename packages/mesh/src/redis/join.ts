import type { Clock, Scheduler } from "@espalier/common";
import { type Origin, originKey, type ReplicaPorts } from "@espalier/replication";
import { pause } from "./pause.ts";
import type { RedisLimits } from "./redis-limits.ts";
import type { RedisParts } from "./redis-parts.ts";

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
