import type { TargetIndex } from "@espalier/common";
import type { Replica, TargetSlots } from "@espalier/replication";
import type { FeedStanding } from "../prefix/prefix-knowledge.ts";

/** What facts of targets are worth, for decisions: asked for every candidate of every request. */
export interface Standings {
  of(target: TargetIndex): FeedStanding;
}

/** Remembers what the replica says until it may have changed. */
export function createStandings(
  replica: Pick<Replica, "qualityOf" | "onClaims">,
  slots: Pick<TargetSlots, "keyOf" | "find">,
): Standings {
  /** By slot, with the key of the target that it was then. */
  const known: ({ readonly key: string; readonly standing: FeedStanding } | undefined)[] = [];
  replica.onClaims((target) => {
    const slot = slots.find(target);
    if (slot >= 0) known[slot] = undefined;
  });
  return {
    of(target) {
      const key = slots.keyOf(target);
      if (key === undefined) return "none";
      let entry = known[target];
      if (entry?.key !== key) {
        entry = { key, standing: replica.qualityOf(key) };
        known[target] = entry;
      }
      return entry.standing;
    },
  };
}
