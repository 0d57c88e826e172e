import { createDecoder, readVarUint, readVarUint8Array } from "lib0/decoding";
import { createEncoder, toUint8Array, writeVarUint, writeVarUint8Array } from "lib0/encoding";
import { messageYjsSyncStep1, messageYjsSyncStep2, messageYjsUpdate, writeSyncStep2 } from "y-protocols/sync";
import type { Doc } from "yjs";
import { readStateVector } from "./document-diff.ts";
import type { DocumentUpdate } from "./replicated-documents.ts";

/** A Yjs update that says nothing. */
const emptyUpdate = Uint8Array.of(0, 0);

/**
 * Answers a message of y-protocols' sync for somebody who may only read.
 *
 * @returns sync step 2 for a step 1; nothing for a step 2 or an update, which are ignored
 * @throws RangeError for bytes that are no sync message
 */
export function answerSyncMessage(doc: Doc, message: Uint8Array): Uint8Array | undefined {
  const stateVector = readSyncStep1(message);
  if (stateVector === undefined) return undefined;
  readStateVector(stateVector);
  const encoder = createEncoder();
  writeSyncStep2(encoder, doc, stateVector);
  return toUint8Array(encoder);
}

/** Messages for the pieces of a diff: sync step 2 with the first one, updates with the others. */
export function* syncMessages(pieces: Iterable<DocumentUpdate>): Generator<Uint8Array, void, undefined> {
  let kind: number = messageYjsSyncStep2;
  for (const { bytes } of pieces) {
    yield syncMessage(kind, bytes);
    kind = messageYjsUpdate;
  }
  if (kind === messageYjsSyncStep2) yield syncMessage(kind, emptyUpdate);
}

function syncMessage(kind: number, update: Uint8Array): Uint8Array {
  const encoder = createEncoder();
  writeVarUint(encoder, kind);
  writeVarUint8Array(encoder, update);
  return toUint8Array(encoder);
}

/**
 * @returns the state vector of a sync step 1; undefined for another sync message
 * @throws RangeError for bytes that are no sync message
 */
export function readSyncStep1(message: Uint8Array): Uint8Array | undefined {
  try {
    const decoder = createDecoder(message);
    const kind = readVarUint(decoder);
    if (kind === messageYjsSyncStep1) return readVarUint8Array(decoder);
    if (kind === messageYjsSyncStep2 || kind === messageYjsUpdate) return undefined;
  } catch (cause) {
    throw new RangeError("a sync message that ends too early", { cause });
  }
  throw new RangeError("a sync message of an unknown kind");
}
