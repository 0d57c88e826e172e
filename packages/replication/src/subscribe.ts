import type { Cancel } from "@espalier/common";

/** Adds a listener until it is cancelled. */
export function subscribe<Listener>(listeners: Set<Listener>, listener: Listener): Cancel {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
