import { ByteReader, ByteWriter } from "@espalier/common";
import { type DocumentUpdate, type Origin, originKey, type ReplicatedDocuments } from "@espalier/replication";
import type { RedisLimits } from "./redis-limits.ts";
import { listOf, type RedisReply, type RedisSession } from "./redis-session.ts";

/** Pieces that are read at once. */
const readPieces = 8;
/** A blob that is replaced while it is read is read again so often. */
const maxReadings = 3;
/** State vector of a document of which nothing is known. */
const emptyStateVector = Uint8Array.of(0);

export interface WriteBlobOptions {
  readonly session: RedisSession;
  readonly key: string;
  readonly documents: Pick<ReplicatedDocuments, "list" | "diff">;
  readonly origin: Origin;
  /** Number of the last entry of the stream that the documents hold. */
  readonly coveredId: number;
  readonly limits: RedisLimits;
  readonly wallMs: () => number;
}

/**
 * Writes all own documents as a list of pieces with a header before them, and puts it in the place of the old list in
 * one step.
 *
 * @returns bytes that were written
 */
export async function writeBlob(options: WriteBlobOptions): Promise<number> {
  const { session, key, documents, origin, coveredId, limits, wallMs } = options;
  const draft = `${key}:next`;
  const expire = (): Promise<RedisReply> => session.run("PEXPIRE", draft, String(limits.journalTtlMs));
  await session.run("DEL", draft);
  let pieces = 0;
  let bytes = 0;
  try {
    for (const name of ownNames(documents, origin)) {
      for (const update of documents.diff(name, emptyStateVector, limits.pieceBytes)) {
        const entry = encodeStreamEntry({ update, sentMs: wallMs() });
        await session.run("RPUSH", draft, entry);
        // From its first piece on, so that a draft goes even when its writer does not live to finish it.
        if (pieces === 0) await expire();
        pieces++;
        bytes += entry.length;
      }
    }
    await session.run("LPUSH", draft, encodeBlobHeader({ coveredId, pieces }));
    await expire();
    await session.run("RENAME", draft, key);
  } catch (error) {
    // A Redis that is out of memory would get no better by drafts that nobody needs.
    await session.run("DEL", draft).catch(() => {});
    throw error;
  }
  return bytes;
}

/** The own journal, and the documents that everybody writes. */
function ownNames(documents: Pick<ReplicatedDocuments, "list">, origin: Origin): string[] {
  const isOwn = (of: Origin | undefined): boolean => of === undefined || originKey(of) === originKey(origin);
  return documents
    .list()
    .filter(({ origin: of }) => isOwn(of))
    .map(({ name }) => name);
}

export interface ReadBlobOptions {
  readonly session: RedisSession;
  readonly key: string;
  readonly limits: RedisLimits;
  /** Takes one piece; what it throws ends the reading. */
  readonly apply: (update: DocumentUpdate, sizeBytes: number) => void;
}

/**
 * Reads a blob on the blocking connection. Pieces may come twice, when the blob is replaced meanwhile.
 *
 * @returns the last entry of the stream that it covers; undefined when there is none
 * @throws RangeError for bytes that no writer writes
 */
export async function readBlob({ session, key, limits, apply }: ReadBlobOptions): Promise<number | undefined> {
  for (let reading = 0; reading < maxReadings; reading++) {
    const before = await headerOf(session, key);
    if (!before) return undefined;
    const { coveredId, pieces } = decodeBlobHeader(before, limits.maxBlobPieces);
    for (let from = 1; from <= pieces; from += readPieces) {
      const to = Math.min(pieces, from + readPieces - 1);
      for (const piece of listOf(await session.runBlocking(0, "LRANGE", key, String(from), String(to)))) {
        if (!Buffer.isBuffer(piece)) throw new RangeError("a piece of a blob is no bytes");
        apply(decodeStreamEntry(piece, limits.maxEntryBytes).update, piece.length);
      }
    }
    const after = await headerOf(session, key);
    if (after?.equals(before)) return coveredId;
  }
  return undefined;
}

async function headerOf(session: RedisSession, key: string): Promise<Buffer | undefined> {
  const reply: RedisReply = await session.runBlocking(0, "LINDEX", key, "0");
  return Buffer.isBuffer(reply) ? reply : undefined;
}

const headerVersion = 1;

/** What stands before the pieces of a blob. */
export interface BlobHeader {
  /** Number of the last entry of the stream that the blob covers. */
  readonly coveredId: number;
  readonly pieces: number;
}

export function encodeBlobHeader({ coveredId, pieces }: BlobHeader): Uint8Array {
  const writer = new ByteWriter(32);
  writer.u8(headerVersion);
  writer.varint(coveredId);
  writer.varint(pieces);
  return writer.copy();
}

/** @throws RangeError for bytes that no writer writes, and for more pieces than `maxPieces` */
export function decodeBlobHeader(bytes: Uint8Array, maxPieces: number): BlobHeader {
  const reader = new ByteReader(bytes);
  if (reader.u8() !== headerVersion) throw new RangeError("a blob of another version");
  const coveredId = reader.varint();
  const pieces = reader.varint();
  reader.end();
  if (pieces > maxPieces) throw new RangeError(`a blob of ${pieces} pieces`);
  return { coveredId, pieces };
}

const entryVersion = 1;
const maxNameBytes = 512;

/** An update as it stands in a stream or a blob, with the writer's wall clock in milliseconds. */
export interface StreamEntry {
  readonly update: DocumentUpdate;
  readonly sentMs: number;
}

export function encodeStreamEntry({ update, sentMs }: StreamEntry): Uint8Array<ArrayBuffer> {
  const writer = new ByteWriter(update.bytes.length + update.name.length + 32);
  writer.u8(entryVersion);
  writer.varint(Math.max(0, Math.floor(sentMs)));
  writer.text(update.name);
  writer.varint(update.from);
  writer.varint(update.to);
  writer.raw(update.bytes);
  return writer.copy();
}

/** @throws RangeError for bytes that are no entry of this version */
export function decodeStreamEntry(bytes: Uint8Array, maxBytes: number): StreamEntry {
  if (bytes.length > maxBytes) throw new RangeError(`${bytes.length} bytes where ${maxBytes} are the most`);
  const reader = new ByteReader(bytes);
  if (reader.u8() !== entryVersion) throw new RangeError("an entry of another version");
  const sentMs = reader.varint();
  const name = reader.text(maxNameBytes);
  const from = reader.varint();
  const to = reader.varint();
  if (name === "" || to < from) throw new RangeError("an entry of no document");
  return { update: { name, from, to, bytes: reader.raw(reader.remaining) }, sentMs };
}
