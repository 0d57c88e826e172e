import { asRouterId, EspalierError, name, rest, struct, varint, versioned } from "@espalier/core";
import type { ProcessPorts } from "../link/link.ts";
import { type Origin, originKey } from "../origin.ts";
import type { DocumentUpdate, ReplicatedDocuments } from "../replicated-documents.ts";
import type { CountIncident, RedisKeys, RedisLimits, StoredJournal } from "./redis-keys.ts";
import { listOf, ownKey, pairsOf, type RedisSession, textOf } from "./redis-session.ts";

/** Pieces that are read at once. */
const readPieces = 8;
/** State vector of an unknown document. */
const emptyStateVector = Uint8Array.of(0);

export interface JournalStoreOptions extends Pick<ProcessPorts, "clock" | "scheduler" | "logger"> {
  readonly documents: Pick<ReplicatedDocuments, "list" | "diff" | "apply" | "onUpdate">;
  readonly origin: () => Origin;
  readonly keys: RedisKeys;
  readonly limits: RedisLimits;
  readonly count: CountIncident;
}

/**
 * Keeps a copy of the own documents in Redis, each a list of pieces, for routers that start when no other router is
 * there. It writes the copy again when the documents have changed, at most every `storeMs`. Later changes are lost with
 * the last router.
 */
export class JournalStore {
  readonly #options: JournalStoreOptions;
  /** Where the latest whole copy is. */
  #stored: StoredJournal | undefined;
  #isChanged = true;
  #lastFailure = "";
  /** Keys of the journals of others that were read. */
  readonly #loaded = new Set<string>();
  #writing: Promise<void> | undefined;
  #notBeforeMs = Number.NEGATIVE_INFINITY;

  constructor(options: JournalStoreOptions) {
    this.#options = options;
  }

  /** Listens to changes. @returns how to stop */
  start(): () => void {
    return this.#options.documents.onUpdate((update, isOwn) => {
      this.#isChanged ||= isOwn || update.to === 0;
    });
  }

  /** The places of all stored journals, the own one apart. */
  async list(
    session: RedisSession,
  ): Promise<{ readonly journals: readonly StoredJournal[]; readonly announced: StoredJournal | undefined }> {
    const { keys, count, origin } = this.#options;
    const own = originKey(origin());
    const journals: StoredJournal[] = [];
    let announced: StoredJournal | undefined;
    for (const [key, value] of pairsOf(await ownKey(session, count, keys.journals, "HGETALL", keys.journals))) {
      const stored = parseStored(key, textOf(value) ?? "");
      if (!stored) count("entry-invalid");
      else if (key === own) announced = stored;
      else journals.push(stored);
    }
    return { journals, announced };
  }

  /** Removes journals of `dead` writers that have expired or are `unwanted`. */
  async sweep(session: RedisSession, dead: readonly StoredJournal[], isUnwanted: (origin: Origin) => boolean) {
    const { keys } = this.#options;
    for (const journal of dead) {
      const key = keys.journal(journal);
      if (!isUnwanted(journal.origin) && (await session.run("EXISTS", key)) !== 0) continue;
      await session.run("HDEL", keys.journals, originKey(journal.origin));
      await session.run("DEL", key);
    }
  }

  /**
   * Extends the copy's expiry, and writes the copy if it is due or gone.
   *
   * @param announced what Redis says of the place of the own journal
   */
  async keep(session: RedisSession, announced: StoredJournal | undefined): Promise<void> {
    const { keys, limits, clock, origin, count } = this.#options;
    const stored = this.#stored;
    if (stored) {
      const isMine = announced?.version === stored.version && originKey(stored.origin) === originKey(origin());
      const isThere = (await session.run("PEXPIRE", keys.journal(stored), String(limits.journalTtlMs))) === 1;
      if (stored === this.#stored && !(isMine && isThere)) {
        count("republished");
        await this.write(session);
        return;
      }
    }
    if (this.#isChanged && clock.nowMs() >= this.#notBeforeMs) await this.write(session);
  }

  /** Writes a whole copy, after any write in progress. */
  async write(session: RedisSession): Promise<void> {
    await this.#writing;
    this.#writing = this.#write(session).then(
      () => {
        this.#lastFailure = "";
      },
      (error: unknown) => this.#failed(session, String(error)),
    );
    await this.#writing;
  }

  /** What fails again for the same reason is counted, and no news. */
  #failed(session: RedisSession, error: string): void {
    this.#isChanged = true;
    this.#options.count("store-failed");
    if (session.isEnded) return;
    if (error !== this.#lastFailure) this.#options.logger.warn("journal not stored in Redis", { error });
    this.#lastFailure = error;
  }

  async #write(session: RedisSession): Promise<void> {
    const { documents, keys, limits, clock } = this.#options;
    const before = this.#stored;
    const origin = this.#options.origin();
    const version = Math.max((before?.version ?? 0) + 1, Math.floor(clock.wallMs()));
    const stored = { origin, version };
    const key = keys.journal(stored);
    this.#isChanged = false;
    this.#notBeforeMs = clock.nowMs() + limits.storeMs;
    let bytes = 0;
    try {
      for (const name of this.#ownNames()) {
        for (const update of documents.diff(name, emptyStateVector, limits.pieceBytes)) {
          const piece = encodeStoredPiece(update);
          await session.run("RPUSH", key, piece);
          // Set from the first piece on, so that the copy expires even if its writer dies before it is complete.
          if (bytes === 0) await session.run("PEXPIRE", key, String(limits.journalTtlMs));
          bytes += piece.length;
        }
      }
      await session.run("HSET", keys.journals, originKey(origin), String(version));
    } catch (error) {
      // Unneeded copies would make it worse for a Redis that is out of memory.
      await session.run("DEL", key).catch(() => {});
      throw error;
    }
    this.#stored = stored;
    this.#notBeforeMs = Math.max(this.#notBeforeMs, clock.nowMs() + (bytes / limits.storeBytesPerS) * 1_000);
    if (!before) return;
    if (originKey(before.origin) !== originKey(origin))
      await session.run("HDEL", keys.journals, originKey(before.origin));
    await session.run("DEL", keys.journal(before));
  }

  /**
   * Reads the journals of writers that are gone into the documents, each once.
   *
   * @param stored all that there are
   * @param isGone whether a journal's writer is not alive
   */
  async load(
    session: RedisSession,
    stored: readonly StoredJournal[],
    isGone: (journal: StoredJournal) => boolean,
  ): Promise<void> {
    const { limits, count, keys, logger } = this.#options;
    const there = new Set(stored.map((journal) => keys.journal(journal)));
    for (const key of this.#loaded) if (!there.has(key)) this.#loaded.delete(key);
    for (const journal of stored.filter(isGone)) {
      if (this.#loaded.has(keys.journal(journal))) continue;
      if (this.#loaded.size >= limits.maxSources) {
        count("too-many-sources");
        return;
      }
      this.#loaded.add(keys.journal(journal));
      const key = keys.journal(journal);
      try {
        let from = 0;
        for (let isMore = true; isMore && from < limits.maxPieces; from += readPieces) {
          const pieces = listOf(await session.run("LRANGE", key, String(from), String(from + readPieces - 1)));
          for (const piece of pieces) this.#apply(piece);
          isMore = pieces.length === readPieces;
        }
      } catch (error) {
        if (session.isEnded) throw error;
        const isInvalid = error instanceof RangeError || error instanceof EspalierError;
        count(isInvalid ? "entry-invalid" : "store-failed");
        logger.warn("stored journal unreadable", { journal: originKey(journal.origin), error: String(error) });
      }
    }
  }

  #apply(piece: unknown): void {
    if (!Buffer.isBuffer(piece)) throw new RangeError("a piece of a journal is not a byte string");
    const outcome = this.#options.documents.apply(decodeStoredPiece(piece, this.#options.limits.maxPieceBytes));
    if (outcome === "gap") throw new RangeError("a piece of a journal is missing");
  }

  /** The own journal, and the documents that all routers write. */
  #ownNames(): string[] {
    const own = originKey(this.#options.origin());
    const isOwn = (of: Origin | undefined): boolean => of === undefined || originKey(of) === own;
    return this.#options.documents
      .list()
      .filter(({ origin }) => isOwn(origin))
      .map(({ name }) => name);
  }
}

function parseStored(key: string, value: string): StoredJournal | undefined {
  const match = /^(.{1,512})@(\d{1,16})$/s.exec(key);
  const [epoch, version] = [Number(match?.[2]), Number(value)];
  if (!match || !Number.isSafeInteger(epoch) || !Number.isSafeInteger(version)) return undefined;
  return { origin: { router: asRouterId(match[1]!), epoch }, version };
}

const pieceVersion = 1;
/** UTF-8 bytes of a journal's name. */
const maxNameBytes = 512;
const storedPiece = versioned(
  pieceVersion,
  struct({ name: name(maxNameBytes), from: varint(), to: varint(), bytes: rest() }),
);

export const storedPieceLayout = storedPiece.layout;

/** A part of a document as stored in Redis. */
export function encodeStoredPiece(update: DocumentUpdate): Uint8Array<ArrayBuffer> {
  return storedPiece.encode(update, update.bytes.length + update.name.length + 32);
}

/** @throws RangeError for bytes that are no part of a document, and for more than `maxBytes` */
export function decodeStoredPiece(piece: Uint8Array, maxBytes: number): DocumentUpdate {
  if (piece.length > maxBytes) throw new RangeError(`${piece.length} bytes, maximum ${maxBytes}`);
  const update = storedPiece.decode(piece);
  if (update.to < update.from) throw new RangeError(`a piece from ${update.from} to ${update.to}`);
  return update;
}
