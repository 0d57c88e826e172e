import type { Cancel, Clock, Logger, Scheduler } from "@espalier/common";
import { type DocumentUpdate, type Origin, originKey, type ReplicatedDocuments } from "@espalier/replication";
import { encodeStreamEntry, writeBlob } from "./blob.ts";
import type { CountIncident, RedisKeys } from "./redis-keys.ts";
import type { RedisLimits } from "./redis-limits.ts";
import { isWrongType, pause, type RedisSession } from "./redis-session.ts";

/** Entries that are on their way to Redis at the same time. */
const maxInFlight = 64;
/** Before what failed is tried anew while the connection stands, for instance because Redis is out of memory. */
const repairDelayMs = 1_000;
const settlePollMs = 5;

interface Queued {
  readonly id: number;
  readonly bytes: Uint8Array;
  /** It was sent before, and the answer was lost. */
  isResent: boolean;
}

export interface StreamWriterOptions {
  readonly documents: Pick<ReplicatedDocuments, "list" | "diff">;
  readonly origin: () => Origin;
  readonly keys: RedisKeys;
  readonly limits: RedisLimits;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  readonly count: CountIncident;
  /** The stream stands under another name now. */
  readonly onAnnounced: () => void;
}

/** Writes the own documents to Redis: every change to a stream, and now and then everything to a blob. */
export class StreamWriter {
  readonly #options: StreamWriterOptions;
  #session: RedisSession | undefined;
  #origin: Origin;
  /** 0 while nothing was published. */
  #incarnation = 0;
  #lastId = 0;
  #writtenId = 0;
  #queue: Queued[] = [];
  #queuedBytes = 0;
  #sentBytes = 0;
  #sinceBlobBytes = 0;
  #sinceBlobEntries = 0;
  #blobBytes = 0;
  #isPublished = false;
  /** Something was dropped or spoiled since the latest publication began. */
  #isSpoiled = false;
  #isFlushing = false;
  #isWritingBlob = false;
  #cancelRepair: Cancel | undefined;

  constructor(options: StreamWriterOptions) {
    this.#options = options;
    this.#origin = options.origin();
  }

  /** Takes an own change. */
  add(update: DocumentUpdate): void {
    const { clock, limits, count } = this.#options;
    const bytes = encodeStreamEntry({ update, sentMs: clock.wallMs() });
    const isFull =
      this.#queue.length >= limits.maxQueuedUpdates || this.#queuedBytes + bytes.length > limits.maxQueuedBytes;
    if (isFull) {
      if (!this.#isSpoiled) count("queue-full");
      this.#clearQueue();
      this.#fail(new RangeError("too much waits"), "writing in time");
      return;
    }
    this.#queue.push({ id: ++this.#lastId, bytes, isResent: false });
    this.#queuedBytes += bytes.length;
    this.#sinceBlobBytes += bytes.length;
    this.#sinceBlobEntries++;
    void this.#flush();
  }

  attach(session: RedisSession): void {
    this.#session = session;
    if (this.#isPublished) void this.#flush();
    else void this.#publish();
  }

  detach(): void {
    this.#session = undefined;
    this.#cancelRepair?.();
    this.#cancelRepair = undefined;
  }

  /** Begins anew under another incarnation, after the stream was lost or spoiled. */
  republish(): void {
    this.#isPublished = false;
    this.#isSpoiled = true;
    void this.#publish();
  }

  /**
   * Looks whether what was written is still there, and lets it live longer.
   *
   * @param announced what `origins` holds for the own origin
   */
  async check(announced: string | undefined): Promise<void> {
    const { keys, limits, logger } = this.#options;
    const to = this.#session;
    if (!to || !this.#isPublished || this.#isWritingBlob) return;
    const mine = this.#incarnation;
    const mustHaveStream = this.#writtenId > 0;
    const ttl = String(limits.journalTtlMs);
    const [hasStream, hasBlob] = await Promise.all([
      to.run("PEXPIRE", keys.stream(this.#origin, mine), ttl),
      to.run("PEXPIRE", keys.blob(this.#origin, mine), ttl),
    ]);
    if (!this.#isPublished || this.#incarnation !== mine) return;
    const isThere = announced === String(mine) && hasBlob === 1 && (hasStream === 1 || !mustHaveStream);
    if (isThere && originKey(this.#origin) === originKey(this.#options.origin())) return;
    logger.info("the own journal is not in Redis any more; it is published again", { origin: originKey(this.#origin) });
    this.#isPublished = false;
    await this.#publish();
  }

  /** Waits until everything is in Redis, and so long at most. */
  async settle(timeoutMs: number): Promise<void> {
    const { clock, scheduler } = this.#options;
    const untilMs = clock.nowMs() + timeoutMs;
    const isSettled = (): boolean => this.#isPublished && this.#queue.length === 0;
    while (!isSettled() && this.#session && clock.nowMs() < untilMs) await pause(scheduler, settlePollMs);
  }

  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  get sentBytes(): number {
    return this.#sentBytes;
  }

  #clearQueue(): void {
    this.#queue = [];
    this.#queuedBytes = 0;
  }

  #fail(error: unknown, what: string): void {
    const session = this.#session;
    const isAway = !session || session.isEnded;
    // What waits for Redis to come back is not lost, unless there was no room for it.
    if (isAway && !(error instanceof RangeError)) return;
    this.#isPublished = false;
    this.#isSpoiled = true;
    if (isAway) return;
    const why = error instanceof Error ? error.message : "unknown";
    this.#options.logger.warn(`${what} failed; all is published again`, { error: why });
    this.#repairSoon();
  }

  #repairSoon(): void {
    this.#cancelRepair ??= this.#options.scheduler.after(repairDelayMs, () => {
      this.#cancelRepair = undefined;
      if (!this.#isPublished) void this.#publish();
    });
  }

  /** All of the own documents under a new incarnation, then its announcement. */
  async #publish(): Promise<void> {
    const to = this.#session;
    if (!to || to.isEnded || this.#isWritingBlob) return;
    const { clock, keys, count, onAnnounced } = this.#options;
    const before = { origin: this.#origin, incarnation: this.#incarnation };
    this.#begin(Math.max(before.incarnation + 1, Math.floor(clock.wallMs())));
    this.#isWritingBlob = true;
    try {
      await this.#writeBlob(to, 0);
      await to.run("HSET", keys.origins, originKey(this.#origin), String(this.#incarnation));
      if (before.incarnation > 0) {
        await this.#removeOld(to, before.origin, before.incarnation);
        count("republished");
      }
      this.#isPublished = !this.#isSpoiled;
      onAnnounced();
    } catch (error) {
      if (isWrongType(error)) {
        count("key-of-other-type");
        await to.run("DEL", keys.origins).catch(() => {});
      }
      this.#fail(error, "publishing");
    } finally {
      this.#isWritingBlob = false;
    }
    if (this.#isPublished) void this.#flush();
    else if (this.#session && this.#session !== to) void this.#publish();
    else this.#repairSoon();
  }

  #begin(incarnation: number): void {
    this.#origin = this.#options.origin();
    this.#incarnation = incarnation;
    this.#isPublished = false;
    this.#isSpoiled = false;
    this.#clearQueue();
    this.#lastId = 0;
    this.#writtenId = 0;
    this.#sinceBlobBytes = 0;
    this.#sinceBlobEntries = 0;
  }

  async #removeOld(to: RedisSession, origin: Origin, incarnation: number): Promise<void> {
    const { keys } = this.#options;
    if (originKey(origin) !== originKey(this.#origin)) await to.run("HDEL", keys.origins, originKey(origin));
    await to.run("DEL", keys.stream(origin, incarnation), keys.blob(origin, incarnation));
  }

  async #writeBlob(session: RedisSession, coveredId: number): Promise<void> {
    const { keys, documents, limits, clock } = this.#options;
    const origin = this.#origin;
    const key = keys.blob(origin, this.#incarnation);
    const wallMs = (): number => clock.wallMs();
    this.#blobBytes = await writeBlob({ session, key, documents, origin, coveredId, limits, wallMs });
    this.#sentBytes += this.#blobBytes;
  }

  async #flush(): Promise<void> {
    const to = this.#session;
    if (!to || this.#isFlushing || !this.#isPublished) return;
    this.#isFlushing = true;
    const mine = this.#incarnation;
    const isCurrent = (): boolean => this.#isPublished && !to.isEnded && this.#incarnation === mine;
    try {
      while (this.#queue.length > 0 && isCurrent()) {
        const batch = this.#queue.slice(0, maxInFlight);
        const outcomes = await Promise.allSettled(batch.map((item) => this.#send(to, item)));
        const failed = outcomes.find((outcome) => outcome.status === "rejected");
        if (failed && this.#incarnation === mine) this.#fail(failed.reason, "an append");
        if (failed || !isCurrent()) break;
        this.#queue.splice(0, batch.length);
        this.#writtenId = batch.at(-1)!.id;
        for (const { bytes } of batch) this.#queuedBytes -= bytes.length;
      }
    } finally {
      this.#isFlushing = false;
    }
    const isStanding = this.#session !== undefined && !this.#session.isEnded;
    if (this.#isPublished && this.#queue.length > 0 && isStanding) void this.#flush();
    else void this.#renewBlob();
  }

  async #send(to: RedisSession, item: Queued): Promise<void> {
    const wasSent = item.isResent;
    item.isResent = true;
    try {
      const key = this.#options.keys.stream(this.#origin, this.#incarnation);
      await to.run("XADD", key, `${item.id}-0`, "u", item.bytes);
      // The first makes the stream, which must go even when its writer does not live to the next look.
      if (item.id === 1) await to.run("PEXPIRE", key, String(this.#options.limits.journalTtlMs));
      this.#sentBytes += item.bytes.length;
    } catch (error) {
      // The answer to the first sending was lost, and not the entry.
      if (!(wasSent && error instanceof Error && error.message.includes("equal or smaller"))) throw error;
    }
  }

  /**
   * Replaces the blob when the stream has grown, and trims the stream to what the blob does not cover. The latest entry
   * that it covers stays, so that who missed those before it sees the hole, though nothing more may come for long.
   */
  async #renewBlob(): Promise<void> {
    const { limits, keys } = this.#options;
    const to = this.#session;
    const isLong =
      this.#sinceBlobBytes > Math.max(limits.blobAfterBytes, this.#blobBytes) ||
      this.#sinceBlobEntries > limits.blobAfterEntries;
    if (!to || !this.#isPublished || this.#isWritingBlob || !isLong) return;
    this.#isWritingBlob = true;
    const coveredId = this.#lastId;
    this.#sinceBlobBytes = 0;
    this.#sinceBlobEntries = 0;
    try {
      await this.#writeBlob(to, coveredId);
      const key = keys.stream(this.#origin, this.#incarnation);
      await to.run("XTRIM", key, "MINID", "~", `${coveredId}-0`);
    } catch (error) {
      this.#fail(error, "writing a blob");
    } finally {
      this.#isWritingBlob = false;
    }
    if (!this.#isPublished && this.#session) this.#repairSoon();
  }
}
