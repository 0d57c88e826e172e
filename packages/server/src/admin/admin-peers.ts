import { type Cancel, type Clock, readOrUndefined, type Scheduler, struct, text, versioned } from "@espalier/core";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import { isLocalOrigin, maxOriginLength, readOrigin } from "./admin-access.ts";

/** Origins of the other routers' admin listeners, as they announce them. */
export interface AdminPeers {
  /** Announces this router's admin listener. */
  announce(origin: string): void;
  /** Undefined while unknown. */
  originOf(router: string): string | undefined;
  /** Distinct origins of live routers, in the order of members. */
  origins(): readonly string[];
  /** `origins`, plus those of routers seen alive within the last hour: their pages continue at other routers. */
  readers(): readonly string[];
  stop(): void;
}

export interface AdminPeersOptions {
  /** The channel for announcements; undefined when nothing is shared. */
  readonly notes: NoteChannel | undefined;
  readonly members: () => readonly { readonly router: string; readonly state: string }[];
  /** Accepts only loopback origins, so that no announcement lets foreign pages read. */
  readonly localOnly: boolean;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** Key of the announcement. */
const noteKey = "admin";
const noteVersion = 1;
/** Most announcements that are kept. */
export const maxAdminPeers = 256;
/** Most origins that may read: every page lists them in a header. */
export const maxAdminOrigins = 64;
/** How long the pages of a lost router may read from other routers. */
export const pageTtlMs = 3_600_000;
const lookEveryMs = 30_000;

interface KnownPeer {
  readonly origin: string;
  /** When the router was last known to be alive. */
  aliveMs: number;
}

export function createAdminPeers(options: AdminPeersOptions): AdminPeers {
  const { notes, members, localOnly, clock, scheduler } = options;
  const known = new Map<string, KnownPeer>();
  const hear = ({ key, origin, bytes }: Note): void => {
    if (key !== noteKey) return;
    const { router } = origin;
    const announced = readAdminNote(bytes);
    if (announced === undefined || (localOnly && !isLocalOrigin(announced))) known.delete(router);
    else if (known.has(router) || known.size < maxAdminPeers) {
      known.set(router, { origin: announced, aliveMs: known.get(router)?.aliveMs ?? Number.NEGATIVE_INFINITY });
    }
  };
  const living = (): readonly KnownPeer[] => {
    const alive = members().filter(({ state }) => state === "alive" || state === "suspect");
    const peers = alive.flatMap(({ router }) => known.get(router) ?? []);
    for (const peer of peers) peer.aliveMs = clock.nowMs();
    return peers;
  };
  const cancels: readonly Cancel[] = [notes?.onNote(hear) ?? (() => {}), scheduler.every(lookEveryMs, living)];
  return {
    announce(origin) {
      const plain = readOrigin(origin);
      if (plain !== undefined) notes?.post(noteKey, writeAdminNote(plain), { isLasting: true });
    },
    originOf: (router) => known.get(router)?.origin,
    origins: () => distinct(living()),
    readers() {
      const alive = living();
      const late = [...known.values()].filter(({ aliveMs }) => clock.nowMs() - aliveMs < pageTtlMs);
      return distinct([...alive, ...late]);
    },
    stop() {
      for (const cancel of cancels) cancel();
    },
  };
}

function distinct(peers: readonly KnownPeer[]): readonly string[] {
  return [...new Set(peers.map(({ origin }) => origin))].slice(0, maxAdminOrigins);
}

/** Where browsers find the admin listener. */
const adminNote = versioned(noteVersion, struct({ origin: text(maxOriginLength) }));

export const adminNoteLayout = adminNote.layout;

export function writeAdminNote(origin: string): Uint8Array {
  return adminNote.encode({ origin });
}

/** @returns undefined for a note of a later version or without a usable origin */
export function readAdminNote(bytes: Uint8Array): string | undefined {
  return readOrUndefined(() => readOrigin(adminNote.decode(bytes).origin));
}
