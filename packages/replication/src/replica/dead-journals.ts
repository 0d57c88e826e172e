import type { Clock } from "@espalier/common";
import type { JournalStore } from "../documents/journal.ts";
import type { FactFold } from "../facts/fact-fold.ts";
import { lifeId } from "../facts/life.ts";
import { type Origin, originKey } from "../origin.ts";
import type { JournalCoverage } from "./journal-coverage.ts";

/** Journals of dead routers that are kept; with more, the one that is dead for longest goes. */
export const maxDeadJournals = 64;

export interface DeadJournalsOptions {
  readonly clock: Clock;
  readonly store: Pick<JournalStore, "origins" | "drop">;
  readonly fold: Pick<FactFold, "state">;
  readonly coverage: JournalCoverage;
  readonly self: () => Origin;
  /** Predictions in a journal are of no use any more when its writer is dead for so long. */
  readonly placementTtlMs: number;
}

/** Drops journals of routers that are gone, once nothing in them is needed. */
export interface DeadJournals {
  /** @param isLiving of origins other than this router */
  collect(isLiving: (origin: Origin) => boolean): void;
}

export function createDeadJournals(options: DeadJournalsOptions): DeadJournals {
  const { clock, store, fold, coverage, self, placementTtlMs } = options;
  /** Since when, on the monotonic clock, by key of the origin; in the order in which they died. */
  const deadSinceMs = new Map<string, number>();
  const currentLife = (target: string): string | undefined => {
    const life = fold.state(target)?.life;
    return life && lifeId(life);
  };
  return {
    collect(isLiving) {
      const nowMs = clock.nowMs();
      const all = store.origins();
      const living = [self(), ...all.filter(isLiving)];
      const dead = new Map(all.filter((origin) => !isLiving(origin)).map((origin) => [originKey(origin), origin]));
      for (const key of [...deadSinceMs.keys()]) if (!dead.has(key)) deadSinceMs.delete(key);
      for (const key of dead.keys()) if (!deadSinceMs.has(key)) deadSinceMs.set(key, nowMs);
      const isUseless = (origin: Origin): boolean =>
        nowMs - deadSinceMs.get(originKey(origin))! > placementTtlMs && coverage.isCovered(origin, living, currentLife);
      let excess = dead.size - maxDeadJournals;
      for (const key of [...deadSinceMs.keys()]) {
        const origin = dead.get(key);
        if (!origin) continue;
        // Whoever drops a life drops those before it too.
        const going = [...dead.values()].filter(
          ({ router, epoch }) => router === origin.router && epoch <= origin.epoch,
        );
        if (excess <= 0 && !going.every(isUseless)) continue;
        excess -= going.length;
        for (const each of going) dead.delete(originKey(each));
        for (const each of going) deadSinceMs.delete(originKey(each));
        store.drop(origin);
      }
    },
  };
}
