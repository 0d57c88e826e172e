import { type Clock, RecencyMap } from "@espalier/common";
import { hashOf } from "@espalier/prefix-index";
import type { Bindings } from "@espalier/replication";

/** What keeps bindings: a replica's, which are the same in all routers, or a router's own. */
export type BindingStore = Pick<Bindings, "get" | "set" | "leftMs">;

/** A session by the model that it asks: its requests to another one have other engines. */
export interface NamedSession {
  readonly model: string;
  readonly key: string;
}

/** Where the next binding of a session is to, and how long it lasts without requests, in milliseconds. */
interface SessionBinding {
  readonly target: string;
  readonly ttlMs: number;
}

/** Which target serves which session. */
export interface SessionBindings {
  /** The key of the target to which a session is bound; undefined where it is to none. */
  targetOf(session: NamedSession): string | undefined;
  /** A request of the session goes to a target: it is bound to it from now on. */
  sent(session: NamedSession, binding: SessionBinding): void;
}

/**
 * A binding that is used is written again when less than this share of its time is left: so a session costs few records,
 * and a router that has not heard of a move does not undo it.
 */
const renewedShare = 3 / 4;

/** Sessions among other things that a store binds. */
export function createSessionBindings(store: BindingStore): SessionBindings {
  return {
    targetOf: (session) => store.get(textOf(session)),
    sent(session, { target, ttlMs }) {
      const text = textOf(session);
      if (store.get(text) === target && store.leftMs(text) >= renewedShare * ttlMs) return;
      store.set(text, target, ttlMs);
    },
  };
}

/** Reads what sessions are bound to, and binds none. */
export function quietSessions(sessions: SessionBindings): SessionBindings {
  return { ...sessions, sent() {} };
}

/** Nothing else that is bound begins like this. No model's name has a line break in it. */
function textOf({ model, key }: NamedSession): string {
  return `session\n${model}\n${key}`;
}

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
