import { asTargetIndex, type TargetIndex } from "@espalier/common";
import type { TargetSlots } from "@espalier/replication";

/**
 * Gives targets the numbers by which the prefix index and the shared load know them. Targets beyond those have numbers
 * that nothing is known of.
 */
export function createTargetIndices(slots: TargetSlots): (targetKey: string) => TargetIndex {
  let beyond = slots.capacity;
  return (targetKey) => {
    const slot = slots.slotOf(targetKey);
    return asTargetIndex(slot >= 0 ? slot : beyond++);
  };
}
