import type { Cancel } from "@espalier/core";
import { subscribe } from "@espalier/mesh";

/** Gives every target's key a small number, which the prefix index and the columns of loads use. */
export type TargetSlots = ReturnType<typeof createTargetSlots>;

/** @param capacity at most as many targets as the prefix index was made for */
export function createTargetSlots(capacity: number) {
  const slots = new Map<string, number>();
  const keys: (string | undefined)[] = [];
  const free: number[] = [];
  const listeners = new Set<(target: string) => void>();
  return {
    /** Exclusive bound on slots. */
    capacity,
    /**
     * The number of a target; a new target gets a free one. Only the fleet and the fold of facts call it, and release the
     * number. For what others say of a target, use `find`.
     *
     * @returns -1 when all are taken
     */
    slotOf(target: string): number {
      const known = slots.get(target);
      if (known !== undefined) return known;
      const slot = free.pop() ?? (keys.length < capacity ? keys.length : -1);
      if (slot < 0) return -1;
      keys[slot] = target;
      slots.set(target, slot);
      for (const listener of listeners) listener(target);
      return slot;
    },
    /** @returns -1 when the target has none */
    find: (target: string): number => slots.get(target) ?? -1,
    keyOf: (slot: number): string | undefined => keys[slot],
    /** Targets that have a number. */
    targets: (): Iterable<string> => slots.keys(),
    /** Calls the listener with each target that gets a number. */
    onAssigned: (listener: (target: string) => void): Cancel => subscribe(listeners, listener),
    /** Frees the number for another target. */
    release(target: string): void {
      const slot = slots.get(target);
      if (slot === undefined) return;
      slots.delete(target);
      keys[slot] = undefined;
      free.push(slot);
    },
  };
}
