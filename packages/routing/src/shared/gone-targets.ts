import type { Cancel, Clock, Scheduler, Startable } from "@espalier/common";
import type { Replica } from "@espalier/replication";

export interface GoneTargetsOptions {
  readonly replica: Pick<Replica, "fold" | "claimOf" | "forgetTarget">;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Whether this router has the target's engine, or reads its events. */
  readonly isPresent: (target: string) => boolean;
  /** Told of each target before it is forgotten. */
  readonly onForget: (target: string) => void;
}

/** For so long nobody has a target before it is forgotten: its engine may be on its way to a fleet, its reader to another. */
export const goneAfterMs = 30_000;
const sweepPeriodMs = 10_000;

/**
 * Lets go of what routers share of engines that are gone. One that leaves a fleet is still read by a router then, perhaps by
 * this one, and routers that join later are told of it by those who have not let go: so it is looked for again and again.
 */
export function createGoneTargets(options: GoneTargetsOptions): Startable {
  const { replica, clock, scheduler, isPresent, onForget } = options;
  let goneSinceMs: ReadonlyMap<string, number> = new Map();
  let cancel: Cancel = () => {};
  const isGone = (target: string): boolean => !replica.claimOf(target) && !isPresent(target);
  const sweep = (): void => {
    const nowMs = clock.nowMs();
    const gone = new Map<string, number>();
    for (const { target } of replica.fold.states()) {
      if (isGone(target)) gone.set(target, goneSinceMs.get(target) ?? nowMs);
    }
    goneSinceMs = gone;
    for (const [target, sinceMs] of gone) {
      if (nowMs - sinceMs < goneAfterMs) continue;
      gone.delete(target);
      onForget(target);
      replica.forgetTarget(target);
    }
  };
  return {
    async start() {
      cancel = scheduler.every(sweepPeriodMs, sweep);
    },
    async stop() {
      cancel();
    },
  };
}
