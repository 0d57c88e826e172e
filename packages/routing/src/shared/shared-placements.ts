import type { TargetIndex } from "@espalier/common";
import type { PlacementLog, TargetSlots } from "@espalier/replication";
import type { PlacementWriter } from "../prefix/prefix-knowledge.ts";

/** Guesses that all routers are told of. What this router guesses is in its own index at once. */
export function createSharedPlacements(log: PlacementLog, slots: TargetSlots): PlacementWriter {
  const keyOf = (target: TargetIndex): string => slots.keyOf(target) ?? "";
  return {
    place(target, { chain, blockCount }, ttlMs) {
      log.place(keyOf(target), chain, blockCount, { ttlMs, isConfirmed: false });
    },
    confirm(target, { chain, blockCount }, ttlMs) {
      log.place(keyOf(target), chain, blockCount, { ttlMs, isConfirmed: true });
    },
    refute(target, { chain, blockCount }, from) {
      log.refute(keyOf(target), chain, { from, blockCount });
    },
  };
}
