import type { Cancel, Clock, Scheduler, Startable } from "@espalier/core";
import type { TargetSlots } from "../facts/target-slots.ts";
import type { Replica } from "./replica.ts";

export interface TombstoneOptions {
  readonly replica: Pick<Replica, "fold" | "store" | "feeds" | "forgetTarget">;
  readonly slots: Pick<TargetSlots, "targets">;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /**
   * Targets whose engines this router knows, or whose events it reads; undefined while it does not know its engines.
   */
  readonly present: () => ReadonlySet<string> | undefined;
  /** Called with each target before it is forgotten. */
  readonly onForget: (target: string) => void;
}

/** A target is forgotten once it is in no fleet for this long: its engine or its reader may be moving. */
export const tombstoneMs = 30_000;
const sweepPeriodMs = 10_000;

/**
 * Forgets what routers share about engines that have left. Another router may still read such an engine, and peers may
 * pass it on to routers that join later, so the sweep repeats.
 */
export function createTombstones(options: TombstoneOptions): Startable {
  const { replica, slots, clock, scheduler, present, onForget } = options;
  let absentSinceMs: ReadonlyMap<string, number> = new Map();
  let cancel: Cancel = () => {};
  const sweep = (): void => {
    const nowMs = clock.nowMs();
    const inFleet = present();
    if (!inFleet) return;
    const absent = new Map<string, number>();
    for (const target of knownTargets(replica, slots)) {
      if (!inFleet.has(target) && !replica.feeds.claimOf(target))
        absent.set(target, absentSinceMs.get(target) ?? nowMs);
    }
    absentSinceMs = absent;
    for (const [target, sinceMs] of absent) {
      if (nowMs - sinceMs < tombstoneMs) continue;
      absent.delete(target);
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

/** All targets with any state: an index, facts, or a feed in the own journal. */
function knownTargets(replica: TombstoneOptions["replica"], slots: TombstoneOptions["slots"]): ReadonlySet<string> {
  const known = new Set(slots.targets());
  for (const { target } of replica.fold.states()) known.add(target);
  for (const { declaration } of replica.store.own.feeds()) known.add(declaration.target);
  return known;
}
