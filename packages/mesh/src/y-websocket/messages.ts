import { ByteReader, ByteWriter } from "@espalier/common";

/** Kinds of messages of the y-websocket protocol (y-protocols 1.0, y-websocket 3.1); numbers are varints as ours are. */
const kinds = { sync: 0, awareness: 1, auth: 2, queryAwareness: 3 } as const;
const syncKinds = { step1: 0, step2: 1, update: 2 } as const;

/** What a reader may send. `write` stands for every attempt to change the document. */
export type ClientMessage =
  | { readonly kind: "sync-step-1"; readonly stateVector: Uint8Array }
  | { readonly kind: "write" | "awareness" | "query-awareness" | "unknown" };

/**
 * @param maxBytes of a state vector or an update
 * @throws RangeError for bytes that end too early
 */
export function readClientMessage(bytes: Uint8Array, maxBytes: number): ClientMessage {
  const reader = new ByteReader(bytes);
  switch (reader.varint()) {
    case kinds.sync: {
      const syncKind = reader.varint();
      const payload = reader.bytes(maxBytes);
      if (syncKind === syncKinds.step1) return { kind: "sync-step-1", stateVector: payload };
      return { kind: syncKind === syncKinds.step2 || syncKind === syncKinds.update ? "write" : "unknown" };
    }
    case kinds.awareness:
      return { kind: "awareness" };
    case kinds.queryAwareness:
      return { kind: "query-awareness" };
    default:
      return { kind: "unknown" };
  }
}

/** A change of the document, as everybody is told of it. */
export function updateMessage(update: Uint8Array): Uint8Array {
  const writer = new ByteWriter(update.length + 16);
  writer.varint(kinds.sync);
  writer.varint(syncKinds.update);
  writer.bytes(update);
  return writer.copy();
}

/** An update without structs and deletions. */
const emptyUpdate = Uint8Array.of(0, 0);

/** Tells the reader that it has all there is: sync step 2 with an empty update, after the contents went as updates. */
export const syncedMessage = Uint8Array.of(kinds.sync, syncKinds.step2, emptyUpdate.length, ...emptyUpdate);

/** The awareness states of nobody. It tells the reader that somebody is there. */
export const emptyAwarenessMessage = Uint8Array.of(kinds.awareness, 1, 0);
