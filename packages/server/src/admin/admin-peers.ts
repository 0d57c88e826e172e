import { ByteReader, ByteWriter, type Cancel, type Clock, type Scheduler } from "@espalier/common";
import type { Note, NoteChannel } from "@espalier/replication";
import { isLocalOrigin, maxOriginLength, readOrigin } from "./admin-access.ts";

/** Where the admin listeners of the other routers are, as they say themselves. */
export interface AdminPeers {
  /** Tells the others where this router's admin listener is. */
  tell(origin: string): void;
  /** Undefined while that is not known. */
  originOf(router: string): string | undefined;
  /** Of routers that live, each once, in the order of members: those that are worth talking to. */
  origins(): readonly string[];
  /** The same, and those of routers that lived within the hour: pages that come from them go on elsewhere. */
  readers(): readonly string[];
  stop(): void;
}

export interface AdminPeersOptions {
  /** Where routers tell each other; undefined where they do not. */
  readonly notes: NoteChannel | undefined;
  readonly members: () => readonly { readonly router: string; readonly state: string }[];
  /** Only origins of this machine count: whoever can name others could let their pages read. */
  readonly localOnly: boolean;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** What the note is about. */
const noteKey = "admin";
const noteVersion = 1;
/** Routers whose word is kept; that of further ones is not. */
export const maxAdminPeers = 256;
/** Origins that may read: they stand in a header of every page. */
export const maxAdminOrigins = 64;
/** How long pages of a router may read elsewhere when it is gone. */
export const pageLifeMs = 3_600_000;
const lookEveryMs = 30_000;

interface KnownPeer {
  readonly origin: string;
  /** When it was last known to live. */
  aliveMs: number;
}

export function createAdminPeers(options: AdminPeersOptions): AdminPeers {
  const { notes, members, localOnly, clock, scheduler } = options;
  const known = new Map<string, KnownPeer>();
  const hear = ({ key, origin, bytes }: Note): void => {
    if (key !== noteKey) return;
    const { router } = origin;
    const told = readAdminNote(bytes);
    if (told === undefined || (localOnly && !isLocalOrigin(told))) known.delete(router);
    else if (known.has(router) || known.size < maxAdminPeers) {
      known.set(router, { origin: told, aliveMs: known.get(router)?.aliveMs ?? Number.NEGATIVE_INFINITY });
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
    tell(origin) {
      const plain = readOrigin(origin);
      if (plain !== undefined) notes?.post(noteKey, writeAdminNote(plain));
    },
    originOf: (router) => known.get(router)?.origin,
    origins: () => distinct(living()),
    readers() {
      const alive = living();
      const late = [...known.values()].filter(({ aliveMs }) => clock.nowMs() - aliveMs < pageLifeMs);
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

/** A version, and the origin as text. */
export function writeAdminNote(origin: string): Uint8Array {
  const writer = new ByteWriter(64);
  writer.u8(noteVersion);
  writer.text(origin);
  return writer.copy();
}

/** @returns undefined for a note of a later version, or one that says nothing that can be used */
export function readAdminNote(bytes: Uint8Array): string | undefined {
  try {
    const reader = new ByteReader(bytes);
    if (reader.u8() !== noteVersion) return undefined;
    return readOrigin(reader.text(maxOriginLength));
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}
