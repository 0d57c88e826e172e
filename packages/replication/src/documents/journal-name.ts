import { asRouterId } from "@espalier/common";
import type { Origin } from "../origin.ts";

/** A journal's name in characters; router ids that make it longer cannot take part. */
export const maxDocumentNameLength = 256;

const pattern = /^journal\/([^/]+)\/([^/]+)\/(0|[1-9]\d{0,15})$/;

/** Names that were made, by the object that was asked for: journals are looked up with every record. */
const made = new WeakMap<Origin, { readonly pool: string; readonly name: string }>();

/** The name of the document that one life of a router writes. */
export function journalName(pool: string, origin: Origin): string {
  const known = made.get(origin);
  if (known?.pool === pool) return known.name;
  const name = `journal/${pool}/${origin.router}/${origin.epoch}`;
  made.set(origin, { pool, name });
  return name;
}

/** @returns undefined for the name of anything but a journal of this pool */
export function parseJournalName(pool: string, name: string): Origin | undefined {
  if (name.length > maxDocumentNameLength) return undefined;
  const match = pattern.exec(name);
  if (match === null || match[1] !== pool) return undefined;
  const epoch = Number(match[3]);
  if (!Number.isSafeInteger(epoch)) return undefined;
  return { router: asRouterId(match[2]!), epoch };
}

/** The Yjs client that writes a journal: FNV-1a of its name. One document has one writer, so it need not be unique. */
export function journalClient(name: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < name.length; at++) hash = Math.imul(hash ^ name.charCodeAt(at), 0x01000193);
  return hash >>> 0;
}
