import type { Clock, Scheduler } from "@espalier/common";
import type { Origin, ReplicaPorts } from "@espalier/replication";
import { pause } from "./pause.ts";
import type { RedisLimits } from "./redis-limits.ts";
import type { RedisParts } from "./redis-parts.ts";

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
