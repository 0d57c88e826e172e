import { type Clock, type Expiring, hashOf, LiveCounts, RecencyMap } from "@espalier/core";
import type { Bindings } from "@espalier/shared-tree";

/** Stores bindings: those of a replica, which all routers share, or a router's own. */
export type BindingStore = Pick<Bindings, "get" | "set" | "leftMs" | "forget" | "count">;

/** A session of one model: requests to another model go to other engines. */
export interface NamedSession {
  readonly model: string;
  /** What else than the key names it: see `sessionScope`. */
  readonly scope?: string | undefined;
  readonly key: string;
}

/**
 * Separates equal session keys of different tenants and of different cache salts.
 *
 * @param tenant empty for none
 * @returns one line; undefined for neither
 */
export function sessionScope(tenant: string, cacheSalt: string | undefined): string | undefined {
  return tenant === "" && cacheSalt === undefined ? undefined : JSON.stringify([tenant, cacheSalt ?? null]);
}

/** The target to bind a session to, and how long the binding lasts without requests, in milliseconds. */
interface SessionBinding {
  readonly target: string;
  readonly ttlMs: number;
}

/** Which target serves which session. */
export interface SessionBindings {
  /** The key of the target that a session is bound to; undefined if unbound. */
  targetOf(session: NamedSession): string | undefined;
  /** Live sessions of a target: bound to it, whichever router bound them. */
  count(target: string): number;
  /** Binds the session to the target that its request goes to. */
  sent(session: NamedSession, binding: SessionBinding): void;
  /**
   * Ends the sessions of a key: those that this router bound, and those without a scope that others bound.
   *
   * @param models in which others may have bound it
   * @param within ends only the sessions of one scope: see `sessionScope`
   */
  endSession(key: string, models: Iterable<string>, within?: { readonly scope: string | undefined }): void;
}

/**
 * A binding in use is rewritten once less than this share of its time is left. So a session needs few records, and a
 * router that has not heard of a move does not undo it.
 */
const renewedShare = 3 / 4;
/** Models and scopes of one key that its end finds; beyond it the oldest expires by itself. */
export const maxEndedScopes = 16;

/** Sessions in a store that also keeps other bindings. */
export function createSessionBindings(store: BindingStore): SessionBindings {
  // By hash of the key: what begins the texts of its bindings.
  const bound = new RecencyMap<string, Set<string>>();
  const remember = (key: string, beginning: string): void => {
    const hash = hashed(key);
    const beginnings = bound.use(hash) ?? new Set();
    if (!bound.get(hash)) bound.set(hash, beginnings);
    if (bound.size > maxLocalBindings) bound.deleteOldest();
    beginnings.delete(beginning);
    beginnings.add(beginning);
    if (beginnings.size > maxEndedScopes) beginnings.delete(beginnings.values().next().value!);
  };
  return {
    targetOf: (session) => store.get(textOf(session))?.slice(valueBeginning.length),
    count: (target) => store.count(valueBeginning + target),
    sent(session, { target, ttlMs }) {
      const text = textOf(session);
      const value = valueBeginning + target;
      if (store.get(text) === value && store.leftMs(text) >= renewedShare * ttlMs) return;
      remember(session.key, beginningOf(session));
      store.set(text, value, ttlMs);
    },
    endSession(key, models, within) {
      const hash = hashed(key);
      if (within) {
        for (const model of models) {
          const beginning = beginningOf({ model, scope: within.scope });
          store.forget(beginning + key);
          bound.get(hash)?.delete(beginning);
        }
        return;
      }
      for (const beginning of bound.get(hash) ?? []) store.forget(beginning + key);
      bound.delete(hash);
      for (const model of models) store.forget(textOf({ model, key }));
    },
  };
}

/** No value that something else is bound to begins like this, so that values count sessions. */
const valueBeginning = "session\n";

/** Reads bindings, and binds no session. */
export function dryRunSessions(sessions: SessionBindings): SessionBindings {
  return { ...sessions, sent() {}, endSession() {} };
}

/** No other binding begins like this. Only the key, which is the client's, may contain a line break. */
function textOf(session: NamedSession): string {
  return beginningOf(session) + session.key;
}

function beginningOf({ model, scope = "" }: Omit<NamedSession, "key">): string {
  return `session\n${model}\n${scope}\n`;
}

/** Bound of local bindings, the same as that of shared ones. */
export const maxLocalBindings = 100_000;

/**
 * Bindings that other routers do not see.
 *
 * @param capacity beyond it the binding that was set longest ago is dropped
 */
export function createLocalBindings(clock: Clock, capacity = maxLocalBindings): BindingStore {
  // Keys may be long, so their hashes are stored.
  const held = new RecencyMap<string, Expiring>();
  const counts = new LiveCounts();
  const forget = (hash: string): void => {
    const known = held.get(hash);
    if (known) counts.remove(known);
    held.delete(hash);
  };
  const find = (key: string): Expiring | undefined => {
    const hash = hashed(key);
    const found = held.get(hash);
    if (!found || found.expiresMs > clock.nowMs()) return found;
    forget(hash);
    return undefined;
  };
  return {
    get: (key) => find(key)?.value,
    leftMs(key) {
      const found = find(key);
      return found ? found.expiresMs - clock.nowMs() : 0;
    },
    set(key, value, ttlMs) {
      const hash = hashed(key);
      const binding = { value, expiresMs: clock.nowMs() + ttlMs };
      forget(hash);
      held.set(hash, binding);
      counts.add(binding);
      if (held.size > capacity) forget(held.oldest()![0]);
    },
    forget: (key) => forget(hashed(key)),
    count: (value) => counts.of(value, clock.nowMs()),
  };
}

function hashed(key: string): string {
  const { low, high } = hashOf(key);
  return `${high.toString(36)}.${low.toString(36)}`;
}
