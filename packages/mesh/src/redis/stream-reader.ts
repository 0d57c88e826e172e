import { type Cancel, type Clock, EspalierError, type Logger, type Scheduler } from "@espalier/common";
import { type DocumentUpdate, type Origin, originKey, type ReplicatedDocuments } from "@espalier/replication";
import { decodeStreamEntry, readBlob } from "./blob.ts";
import type { Placed } from "./directory.ts";
import type { CountIncident, RedisKeys } from "./redis-keys.ts";
import type { RedisLimits } from "./redis-limits.ts";
import { isWrongType, listOf, pairsOf, type RedisReply, type RedisSession, textOf } from "./redis-session.ts";

/** A blob is read again for the sake of a hole at most this often. */
const reloadIntervalMs = 1_000;

/** A journal's stream as it is followed. */
interface Source {
  readonly origin: Origin;
  readonly incarnation: number;
  readonly streamKey: string;
  /** Where the next read goes on, and the number of the last entry of the writer. */
  cursor: string;
  lastId: number;
  needsBlob: boolean;
  blobReadMs: number;
  /** Its blob and then its stream were read to the end once. */
  isCaughtUp: boolean;
  isDropped: boolean;
}

/** What is known of what came from one origin. */
export interface SourceStats {
  receivedBytes: number;
  /** How long the latest entry took from the writer's wall clock to this router's; NaN before the first. */
  lagMs: number;
}

export interface StreamReaderOptions {
  readonly documents: Pick<ReplicatedDocuments, "apply">;
  readonly keys: RedisKeys;
  readonly limits: RedisLimits;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  readonly count: CountIncident;
  /** A hole that the blob does not fill: its writer should publish anew. */
  readonly onHole: (origin: Origin) => void;
}

/** Reads the journals of all other routers, dead ones' too, and applies what it reads. */
export class StreamReader {
  readonly #options: StreamReaderOptions;
  readonly #sources = new Map<string, Source>();
  readonly #stats = new Map<string, SourceStats>();
  #session: RedisSession | undefined;
  #cancelRetry: Cancel | undefined;

  constructor(options: StreamReaderOptions) {
    this.#options = options;
  }

  /** Says which journals there are. */
  setSources(found: ReadonlyMap<string, Placed>): void {
    const { keys, limits, count } = this.#options;
    for (const key of [...this.#sources.keys()]) {
      if (found.has(key)) continue;
      this.#sources.delete(key);
      this.#stats.delete(key);
    }
    let isNew = false;
    for (const [key, { origin, incarnation }] of found) {
      const known = this.#sources.get(key);
      if (known?.incarnation === incarnation) continue;
      if (!known && this.#sources.size >= limits.maxSources) {
        count("too-many-sources");
        continue;
      }
      this.#sources.set(key, makeSource(origin, incarnation, keys));
      if (!known) this.#stats.set(key, { receivedBytes: 0, lagMs: Number.NaN });
      isNew = true;
    }
    if (isNew) this.#session?.unblock();
  }

  attach(session: RedisSession): void {
    this.#session = session;
    this.#run(session);
  }

  detach(): void {
    this.#session = undefined;
    this.#cancelRetry?.();
  }

  /** Origins that were not read to the end since they were found. */
  get unread(): readonly string[] {
    return [...this.#sources].filter(([, source]) => !source.isCaughtUp && !source.isDropped).map(([key]) => key);
  }

  /** Origins that the replica does not want any more. */
  get dropped(): readonly Origin[] {
    return [...this.#sources.values()].filter(({ isDropped }) => isDropped).map(({ origin }) => origin);
  }

  stats(origin: Origin): SourceStats | undefined {
    return this.#stats.get(originKey(origin));
  }

  #run(from: RedisSession): void {
    const { scheduler, limits, logger } = this.#options;
    this.#follow(from).catch((error: unknown) => {
      if (this.#session !== from || from.isEnded) return;
      logger.warn("reading from Redis failed", { error: error instanceof Error ? error.message : "unknown" });
      this.#cancelRetry = scheduler.after(limits.renewMs, () => this.#run(from));
    });
  }

  async #follow(from: RedisSession): Promise<void> {
    const { clock } = this.#options;
    while (this.#session === from && !from.isEnded) {
      for (const source of [...this.#sources.values()]) {
        const isDue = clock.nowMs() - source.blobReadMs >= reloadIntervalMs;
        if (source.needsBlob && isDue && !source.isDropped) await this.#reload(from, source);
      }
      try {
        await this.#read(from);
      } catch (error) {
        if (!isWrongType(error)) throw error;
        await this.#removeForeignStreams(from);
      }
    }
  }

  /** The first reading of a blob, or one because the replica found a gap; a second gap at once asks the writer. */
  async #reload(from: RedisSession, source: Source): Promise<void> {
    const isFirst = source.blobReadMs === Number.NEGATIVE_INFINITY;
    await this.#loadBlob(from, source);
    if (!isFirst && source.needsBlob) this.#options.onHole(source.origin);
  }

  async #loadBlob(from: RedisSession, source: Source): Promise<void> {
    const { keys, limits, clock, count } = this.#options;
    const key = keys.blob(source.origin, source.incarnation);
    source.needsBlob = false;
    source.blobReadMs = clock.nowMs();
    const apply = (update: DocumentUpdate, sizeBytes: number): void => {
      this.#received(source, sizeBytes);
      this.#apply(source, update);
    };
    try {
      const coveredId = await readBlob({ session: from, key, limits, apply });
      if (coveredId === undefined || coveredId <= source.lastId) return;
      source.lastId = coveredId;
      source.cursor = `${coveredId}-0`;
    } catch (error) {
      if (isWrongType(error)) await this.#removeForeign(from, key);
      else if (error instanceof RangeError) count("entry-invalid");
      else throw error;
    }
  }

  async #read(from: RedisSession): Promise<void> {
    const { keys, limits } = this.#options;
    const read = [...this.#sources.values()].filter((source) => !source.isDropped);
    const streams = read.map(({ streamKey }) => streamKey).concat(keys.nothing);
    const cursors = read.map(({ cursor }) => cursor).concat("0-0");
    const how = ["COUNT", String(limits.readCount), "BLOCK", String(limits.renewMs)];
    const reply = await from.runBlocking(limits.renewMs, "XREAD", ...how, "STREAMS", ...streams, ...cursors);
    const entriesOf = new Map(listOf(reply).map((stream) => [textOf(listOf(stream)[0]), listOf(listOf(stream)[1])]));
    for (const source of read) {
      const entries = entriesOf.get(source.streamKey) ?? [];
      for (const entry of entries) {
        const [id, fields] = listOf(entry);
        await this.#takeEntry(from, source, textOf(id) ?? "", fields ?? null);
      }
      source.isCaughtUp ||= entries.length < limits.readCount;
    }
  }

  /** Takes an entry of a stream: the next one, one again, or one behind a hole. */
  async #takeEntry(from: RedisSession, source: Source, id: string, fields: RedisReply): Promise<void> {
    const { clock, limits, count } = this.#options;
    const bytes = pairsOf(fields).find(([name]) => name === "u")?.[1];
    const number = Number(/^(\d+)-0$/.exec(id)?.[1] ?? Number.NaN);
    try {
      if (!Buffer.isBuffer(bytes) || !Number.isSafeInteger(number)) throw new RangeError("no entry of a router");
      const { update, sentMs } = decodeStreamEntry(bytes, limits.maxEntryBytes);
      if (number > source.lastId + 1) await this.#fillHole(from, source, number);
      source.lastId = Math.max(source.lastId, number);
      this.#received(source, bytes.length, Math.max(0, clock.wallMs() - sentMs));
      this.#apply(source, update);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      count("entry-invalid");
    } finally {
      source.cursor = id;
    }
  }

  async #fillHole(from: RedisSession, source: Source, number: number): Promise<void> {
    this.#options.count("gap");
    await this.#loadBlob(from, source);
    if (source.lastId + 1 < number) this.#options.onHole(source.origin);
  }

  #apply(source: Source, update: DocumentUpdate): void {
    const { documents, count, logger } = this.#options;
    try {
      const outcome = documents.apply(update);
      if (outcome === "gap") {
        count("gap");
        source.needsBlob = true;
      } else if (outcome === "dropped") {
        source.isDropped = true;
      }
    } catch (error) {
      if (!(error instanceof EspalierError)) throw error;
      count("update-refused");
      logger.warn("an update from Redis was refused", { origin: originKey(source.origin), error: error.message });
    }
  }

  #received({ origin }: Source, sizeBytes: number, lagMs?: number): void {
    const stats = this.#stats.get(originKey(origin));
    if (!stats) return;
    stats.receivedBytes += sizeBytes;
    stats.lagMs = lagMs ?? stats.lagMs;
  }

  async #removeForeignStreams(from: RedisSession): Promise<void> {
    for (const { streamKey } of [...this.#sources.values()]) {
      const type = textOf(await from.run("TYPE", streamKey));
      if (type !== "stream" && type !== "none") await this.#removeForeign(from, streamKey);
    }
  }

  async #removeForeign(from: RedisSession, key: string): Promise<void> {
    const { count, logger } = this.#options;
    count("key-of-other-type");
    logger.warn("another program wrote to a key of the router in Redis; it is removed", { key });
    await from.run("DEL", key);
  }
}

function makeSource(origin: Origin, incarnation: number, keys: RedisKeys): Source {
  return {
    origin,
    incarnation,
    streamKey: keys.stream(origin, incarnation),
    cursor: "0-0",
    lastId: 0,
    needsBlob: true,
    blobReadMs: Number.NEGATIVE_INFINITY,
    isCaughtUp: false,
    isDropped: false,
  };
}
