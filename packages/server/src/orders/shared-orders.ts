import { capped, list, RecencyMap, readOrUndefined, struct, text, varint, versioned } from "@espalier/core";
import type { Note, NoteChannel } from "@espalier/shared-tree";

/** Orders of a kind in a note, the latest ones. */
export const maxSharedOrders = 128;
/** An order that is older when it is heard, by a router that has just joined, is over. */
const freshMs = 5_000;
/** Routers whose orders are counted; beyond it the one heard longest ago is forgotten. */
const maxOrigins = 256;

/** Each has its number at its router, from 1. */
export const orderNote = (maxSubjectBytes: number) =>
  versioned(
    1,
    list(struct({ number: capped(varint, Number.MAX_SAFE_INTEGER), subject: text(maxSubjectBytes) }), maxSharedOrders),
  );

interface SharedOrdersOptions {
  /** Names the kind of order among all notes. */
  readonly key: string;
  readonly note: ReturnType<typeof orderNote>;
  /** An order about a longer subject is followed here only. */
  readonly maxSubjectBytes: number;
  /** Undefined when nothing is shared. */
  readonly notes: NoteChannel | undefined;
  /** Follows an order at this router. */
  readonly follow: (subject: string) => void;
}

/**
 * Has all routers do once what one of them is told to. The others hear of it within milliseconds.
 *
 * @returns gives an order
 */
export function createSharedOrders(options: SharedOrdersOptions): (subject: string) => void {
  const { key: noteKey, note, maxSubjectBytes, notes, follow } = options;
  const own: { readonly number: number; readonly subject: string }[] = [];
  let count = 0;
  /** By router and epoch, the last number that was heard. */
  const heard = new RecencyMap<string, number>();
  notes?.onNote(({ key, origin, bytes, ageMs }: Note): void => {
    if (key !== noteKey) return;
    const from = `${origin.router}/${origin.epoch}`;
    const last = heard.get(from) ?? 0;
    const orders = (readOrUndefined(() => note.decode(bytes)) ?? []).filter(({ number }) => number > last);
    if (orders.length === 0) return;
    heard.set(from, orders.at(-1)!.number);
    if (heard.size > maxOrigins) heard.deleteOldest();
    if (ageMs < freshMs) for (const { subject } of orders) follow(subject);
  });
  return (subject) => {
    follow(subject);
    if (Buffer.byteLength(subject) > maxSubjectBytes) return;
    count += 1;
    own.push({ number: count, subject });
    if (own.length > maxSharedOrders) own.shift();
    notes?.post(noteKey, note.encode(own));
  };
}
