import { capped, list, RecencyMap, readOrUndefined, struct, text, varint, versioned } from "@espalier/core";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import type { HeldRequests } from "../request/held-requests.ts";

/** Aborts in a note, the latest ones. */
export const maxSharedAborts = 128;
/** UTF-8 bytes of a request id. An abort by a longer one ends only what this router holds. */
export const maxSharedRidBytes = 120;
/** An abort that is older when it is heard, by a router that has just joined, is over. */
const freshMs = 5_000;
/** Routers whose aborts are counted; beyond it the one heard longest ago is forgotten. */
const maxOrigins = 256;
const noteKey = "aborts";

/** Each has its number at its router, from 1. An empty id is for all requests. */
const abortNote = versioned(
  1,
  list(struct({ number: capped(varint, Number.MAX_SAFE_INTEGER), rid: text(maxSharedRidBytes) }), maxSharedAborts),
);

export const abortNoteLayout = abortNote.layout;

interface SharedAbortsOptions {
  readonly held: Pick<HeldRequests, "abort">;
  /** Undefined when nothing is shared. */
  readonly notes: NoteChannel | undefined;
}

/** Aborts the requests whose id begins with the given one; all for an empty id. */
export type AbortRequests = (rid: string) => void;

/**
 * Ends what all routers hold of the requests that an RL framework aborts at one of them. The others hear of it within
 * milliseconds.
 */
export function createSharedAborts({ held, notes }: SharedAbortsOptions): AbortRequests {
  const own: { readonly number: number; readonly rid: string }[] = [];
  let count = 0;
  /** By router and epoch, the last number that was heard. */
  const heard = new RecencyMap<string, number>();
  const abortHere: AbortRequests = (rid) => held.abort((other) => rid === "" || other?.startsWith(rid) === true);
  notes?.onNote(({ key, origin, bytes, ageMs }: Note): void => {
    if (key !== noteKey) return;
    const from = `${origin.router}/${origin.epoch}`;
    const last = heard.get(from) ?? 0;
    const aborts = (readOrUndefined(() => abortNote.decode(bytes)) ?? []).filter(({ number }) => number > last);
    if (aborts.length === 0) return;
    heard.set(from, aborts.at(-1)!.number);
    if (heard.size > maxOrigins) heard.deleteOldest();
    if (ageMs < freshMs) for (const { rid } of aborts) abortHere(rid);
  });
  return (rid) => {
    abortHere(rid);
    if (Buffer.byteLength(rid) > maxSharedRidBytes) return;
    count += 1;
    own.push({ number: count, rid });
    if (own.length > maxSharedAborts) own.shift();
    notes?.post(noteKey, abortNote.encode(own));
  };
}
