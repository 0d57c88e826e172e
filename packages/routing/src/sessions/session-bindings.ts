import type { Bindings } from "@espalier/replication";

/** What keeps bindings: a replica's, which are the same in all routers, or a router's own. */
export type BindingStore = Pick<Bindings, "get" | "set" | "leftMs">;

/** A session by the model that it asks: its requests to another one have other engines. */
export interface NamedSession {
  readonly model: string;
  readonly key: string;
}

/** Where the next binding of a session is to, and how long it lasts without requests, in milliseconds. */
export interface SessionBinding {
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
