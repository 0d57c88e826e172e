import type { Cancel } from "@espalier/core";

/** Adds a listener until it is cancelled. */
export function subscribe<Listener>(listeners: Set<Listener>, listener: Listener): Cancel {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Calls all of them, whatever one throws, and throws the first error after that. */
export function callAll(calls: readonly (() => void)[]): void {
  const errors: unknown[] = [];
  for (const call of calls) {
    try {
      call();
    } catch (error) {
      errors.push(error);
    }
  }
  if (errors.length > 0) throw errors[0];
}
