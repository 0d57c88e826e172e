import type { Cancel, Clock, Scheduler, Startable } from "@espalier/common";
import type { Replica, TargetSlots } from "@espalier/replication";

export interface GoneTargetsOptions {
  readonly replica: Pick<Replica, "fold" | "store" | "claimOf" | "forgetTarget">;
  readonly slots: Pick<TargetSlots, "targets">;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Targets whose engines this router has, or whose events it reads; undefined while it does not know its engines. */
  readonly present: () => ReadonlySet<string> | undefined;
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
  const { replica, slots, clock, scheduler, present, onForget } = options;
  let goneSinceMs: ReadonlyMap<string, number> = new Map();
  let cancel: Cancel = () => {};
  const sweep = (): void => {
    const nowMs = clock.nowMs();
    const here = present();
    if (!here) return;
    const gone = new Map<string, number>();
    for (const target of knownTargets(replica, slots)) {
      if (!here.has(target) && !replica.claimOf(target)) gone.set(target, goneSinceMs.get(target) ?? nowMs);
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

/** Wherever anything is kept of a target: a number, facts, what the own journal says of it. */
function knownTargets(replica: GoneTargetsOptions["replica"], slots: GoneTargetsOptions["slots"]): ReadonlySet<string> {
  const known = new Set(slots.targets());
  for (const { target } of replica.fold.states()) known.add(target);
  for (const { declaration } of replica.store.own.feeds()) known.add(declaration.target);
  return known;
}
