import type { Clock } from "@espalier/core";
import { type Origin, originKey } from "@espalier/mesh";
import type { Journals } from "../documents/journal-store.ts";
import { epochId } from "../facts/engine-epoch.ts";
import type { FactFold } from "../facts/fact-fold.ts";
import type { FeedDeclaration } from "../facts/feed-declaration.ts";

/** Journals of dead routers that are kept; beyond it the one that is dead for longest goes. */
export const maxDeadJournals = 64;

export interface DeadJournalsOptions {
  readonly clock: Clock;
  readonly store: Pick<Journals, "origins" | "drop" | "feedsOf">;
  readonly fold: Pick<FactFold, "state">;
  readonly self: () => Origin;
  /** Predictions in a journal are obsolete when its writer is dead for so long. */
  readonly placementTtlMs: number;
}

/**
 * Drops journals of routers that are gone, once all in them is obsolete.
 *
 * @param isLiving of origins other than this router
 */
export type CollectDeadJournals = (isLiving: (origin: Origin) => boolean) => void;

type CurrentEpoch = (target: string) => string | undefined;

export function createDeadJournals(options: DeadJournalsOptions): CollectDeadJournals {
  const { clock, store, fold, self, placementTtlMs } = options;
  /** Time of death on the monotonic clock, by key of the origin; in the order in which they died. */
  const deadSinceMs = new Map<string, number>();
  const currentEpoch: CurrentEpoch = (target) => {
    const epoch = fold.state(target)?.epoch;
    return epoch && epochId(epoch);
  };
  return (isLiving) => {
    const nowMs = clock.nowMs();
    const all = store.origins();
    const living = [self(), ...all.filter(isLiving)];
    const dead = new Map(all.filter((origin) => !isLiving(origin)).map((origin) => [originKey(origin), origin]));
    for (const key of [...deadSinceMs.keys()]) if (!dead.has(key)) deadSinceMs.delete(key);
    for (const key of dead.keys()) if (!deadSinceMs.has(key)) deadSinceMs.set(key, nowMs);
    const isUseless = (origin: Origin): boolean =>
      nowMs - deadSinceMs.get(originKey(origin))! > placementTtlMs &&
      isCovered(store, origin, { living, currentEpoch });
    let excess = dead.size - maxDeadJournals;
    for (const key of [...deadSinceMs.keys()]) {
      const origin = dead.get(key);
      if (!origin) continue;
      // A router that drops an epoch drops the epochs before it too.
      const going = [...dead.values()].filter(({ router, epoch }) => router === origin.router && epoch <= origin.epoch);
      if (excess <= 0 && !going.every(isUseless)) continue;
      excess -= going.length;
      for (const each of going) dead.delete(originKey(each));
      for (const each of going) deadSinceMs.delete(originKey(each));
      store.drop(origin);
    }
  };
}

/**
 * Whether a journal is obsolete: for each of its feeds a living router has made a checkpoint at or beyond the last
 * record, or the target has a newer epoch.
 *
 * @param living whose checkpoints count
 * @param currentEpoch id of a target's newest epoch
 */
export function isCovered(
  store: Pick<Journals, "feedsOf">,
  origin: Origin,
  { living, currentEpoch }: { readonly living: readonly Origin[]; readonly currentEpoch: CurrentEpoch },
): boolean {
  const needed = new Map<string, number>();
  const isCurrent = ({ target, epoch }: FeedDeclaration): boolean =>
    epoch !== null && currentEpoch(target) === epochId(epoch);
  for (const { declaration, lastSequence } of store.feedsOf(origin)) {
    const { target } = declaration;
    if (lastSequence >= 0 && isCurrent(declaration))
      needed.set(target, Math.max(lastSequence, needed.get(target) ?? lastSequence));
  }
  for (const other of needed.size > 0 ? living : []) {
    for (const { declaration, lastCheckpoint } of store.feedsOf(other)) {
      const sequence = needed.get(declaration.target);
      if (sequence !== undefined && lastCheckpoint >= sequence && isCurrent(declaration))
        needed.delete(declaration.target);
    }
  }
  return needed.size === 0;
}
