import type { Clock } from "@espalier/common";
import type { FeedDeclaration, JournalStore } from "../documents/journal.ts";
import type { FactFold } from "../facts/fact-fold.ts";
import type { FactEntry } from "../facts/fact-item.ts";
import { lifeId } from "../facts/life.ts";
import { type Origin, originKey } from "../origin.ts";

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

/** What one journal says about one target, in the newest life that it mentions. */
interface Extent {
  readonly life: string;
  /** What told of the life last: where it has not changed, the life has not either. */
  declaration: FeedDeclaration;
  /** The last record. */
  sequence: number;
  /** The last checkpoint; -1 without one. */
  checkpoint: number;
}

/**
 * How far journals reach, to tell when that of a dead router is not needed any more: when for each of its targets a
 * living router has made a checkpoint at or beyond its last record, or the target has a newer life.
 */
export class JournalCoverage {
  readonly #extents = new Map<string, Map<string, Extent>>();

  note(
    origin: Origin,
    entries: readonly FactEntry[],
    declarationOf: (feed: number) => FeedDeclaration | undefined,
  ): void {
    const key = originKey(origin);
    let extents = this.#extents.get(key);
    if (!extents) {
      extents = new Map();
      this.#extents.set(key, extents);
    }
    for (const entry of entries) {
      const declaration = declarationOf(entry.feed);
      if (!declaration?.life) continue;
      let extent = extents.get(declaration.target);
      if (extent?.declaration !== declaration) {
        const life = lifeId(declaration.life);
        if (extent?.life === life) extent.declaration = declaration;
        else {
          extent = { life, declaration, sequence: -1, checkpoint: -1 };
          extents.set(declaration.target, extent);
        }
      }
      if (entry.kind === "record") extent.sequence = Math.max(extent.sequence, entry.sequence);
      else if (entry.kind === "checkpoint") {
        extent.checkpoint = Math.max(extent.checkpoint, entry.sequence);
        extent.sequence = Math.max(extent.sequence, entry.sequence);
      }
    }
  }

  forget(origin: Origin): void {
    this.#extents.delete(originKey(origin));
  }

  /** Nobody has the target any more. */
  forgetTarget(target: string): void {
    for (const extents of this.#extents.values()) extents.delete(target);
  }

  /**
   * @param living whose checkpoints count
   * @param currentLife id of a target's newest life
   */
  isCovered(origin: Origin, living: readonly Origin[], currentLife: (target: string) => string | undefined): boolean {
    for (const [target, { life, sequence }] of this.#extents.get(originKey(origin)) ?? []) {
      if (sequence < 0 || currentLife(target) !== life) continue;
      const isCheckpoint = living.some((other) => {
        const extent = this.#extents.get(originKey(other))?.get(target);
        return extent?.life === life && extent.checkpoint >= sequence;
      });
      if (!isCheckpoint) return false;
    }
    return true;
  }
}
