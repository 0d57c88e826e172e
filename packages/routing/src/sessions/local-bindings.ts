import { type Clock, RecencyMap } from "@espalier/common";
import { hashOf } from "@espalier/prefix-index";
import type { BindingStore } from "./session-bindings.ts";

/** Bindings that are kept, as many as routers share. */
export const maxLocalBindings = 100_000;

interface Held {
  readonly value: string;
  readonly expiresMs: number;
}

/**
 * Bindings that no other router hears of.
 *
 * @param capacity beyond it the one that was set longest ago goes
 */
export function createLocalBindings(clock: Clock, capacity = maxLocalBindings): BindingStore {
  // Keys may be long, so their hashes are kept.
  const held = new RecencyMap<string, Held>();
  const find = (key: string): Held | undefined => {
    const hash = hashed(key);
    const found = held.get(hash);
    if (!found || found.expiresMs > clock.nowMs()) return found;
    held.delete(hash);
    return undefined;
  };
  return {
    get: (key) => find(key)?.value,
    leftMs(key) {
      const found = find(key);
      return found ? found.expiresMs - clock.nowMs() : 0;
    },
    set(key, value, ttlMs) {
      held.set(hashed(key), { value, expiresMs: clock.nowMs() + ttlMs });
      if (held.size > capacity) held.deleteOldest();
    },
  };
}

function hashed(key: string): string {
  const { low, high } = hashOf(key);
  return `${high.toString(36)}.${low.toString(36)}`;
}
