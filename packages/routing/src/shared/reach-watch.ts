import type { Cancel, Scheduler } from "@espalier/common";

/** A socket that is not connected after so long is taken for one that this router cannot reach. */
const unreachedMs = 2_000;

/** Which targets' event sockets this router cannot reach, so that another one reads them. */
export interface ReachWatch {
  /** @param isConnected undefined when this router does not try */
  note(target: string, isConnected: boolean | undefined): void;
  /** The target is none of this router's any more. */
  forget(target: string): void;
}

/** @param onChange told of all of them when one comes or goes */
export function createReachWatch(scheduler: Scheduler, onChange: (targets: readonly string[]) => void): ReachWatch {
  const pending = new Map<string, Cancel>();
  const unreachable = new Set<string>();
  const unwatch = (target: string): void => {
    pending.get(target)?.();
    pending.delete(target);
  };
  const noteReached = (target: string): void => {
    if (unreachable.delete(target)) onChange([...unreachable]);
  };
  return {
    note(target, isConnected) {
      if (isConnected === false) {
        if (pending.has(target) || unreachable.has(target)) return;
        const cancel = scheduler.after(unreachedMs, () => {
          pending.delete(target);
          unreachable.add(target);
          onChange([...unreachable]);
        });
        pending.set(target, cancel);
        return;
      }
      unwatch(target);
      // Whoever stops trying does not know that it could reach it now: it says so until it has tried again.
      if (isConnected) noteReached(target);
    },
    forget(target) {
      unwatch(target);
      noteReached(target);
    },
  };
}
