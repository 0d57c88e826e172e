import { crc32 } from "node:zlib";
import type { Cancel, Logger, Scheduler } from "@espalier/core";
import type { EventDecoder, NumberedMessage } from "@espalier/engine-model/kv-events";
import { type EngineEventBatch, eventKind } from "@espalier/prefix-index";
import type { FeedLimits } from "./feed-limits.ts";
import type { FeedRecord } from "./feed-record.ts";
import type { FeedReason, FeedSink, NewEpochReason } from "./feed-state.ts";
import { ReorderBuffer } from "./message-queue.ts";

/** Most replays that end without passing a hole before the hole is accepted. */
const maxFruitlessReplays = 2;
/** Most messages of one epoch that are taken for leftovers of the one before. */
const maxStaleMessages = 64;

/** What the follower needs from its feed. */
export interface FollowerHost {
  /** Whether the engine can be asked for its history now. */
  readonly canReplay: boolean;
  /** Puts live messages back before the queued ones. */
  putBack(messages: readonly NumberedMessage[]): void;
  beginReplay(cause: "filling-gap" | "new-epoch"): void;
  /** Something that the state depends on has changed. */
  settle(): void;
  /** Live messages may be handled now. */
  requestWork(): void;
}

interface FollowerOptions {
  readonly host: FollowerHost;
  readonly applier: MessageApplier;
  readonly record: FeedRecord;
  readonly sink: FeedSink;
  readonly scheduler: Scheduler;
  readonly limits: FeedLimits;
  readonly logger: Logger;
}

/**
 * Follows the numbers of one engine's messages: which is next, which are missing, and when a new process sends them.
 */
export class StreamFollower {
  readonly #options: FollowerOptions;
  readonly #tracker: SequenceTracker;
  readonly #reorder: ReorderBuffer;
  #cancelWait: Cancel | undefined;
  /** Whether the connection was lost since the last message: a new process may be publishing. */
  #isUnverified = false;
  #holeReason: FeedReason | undefined;
  /** Whether the engine has replayed messages in this epoch, so that it keeps a history. */
  #hasHistory = false;
  #fruitlessReplays = 0;
  #hasReplayFailed = false;
  #staleMessages = 0;

  constructor(options: FollowerOptions) {
    const { reorderMessages, reorderBytes, rememberedMessages } = options.limits;
    this.#options = options;
    this.#tracker = new SequenceTracker(rememberedMessages);
    this.#reorder = new ReorderBuffer({ maxMessages: reorderMessages, maxBytes: reorderBytes });
  }

  /** The highest number of the current epoch; -1 before the first. */
  get last(): number {
    return this.#tracker.last;
  }

  get isUnverified(): boolean {
    return this.#isUnverified;
  }

  /** Why knowledge of the current epoch is incomplete; undefined when it is complete. */
  get holeReason(): FeedReason | undefined {
    return this.#holeReason;
  }

  get hasReplayFailed(): boolean {
    return this.#hasReplayFailed;
  }

  /** Messages buffered ahead of a missing one. */
  get reorderedCount(): number {
    return this.#reorder.count;
  }

  /** One message from the engine's stream. */
  live(message: NumberedMessage): void {
    const checksum = crc32(message.payload);
    switch (this.#tracker.relate(message.sequence, checksum)) {
      case "next":
        this.#acceptLive(message, checksum);
        break;
      case "same":
        this.#isUnverified = false;
        this.#options.record.count("duplicates");
        break;
      case "changed":
        this.#startEpoch(message.sequence === this.last ? "payload-changed" : "restarted", message);
        break;
      case "unknown":
        this.#handleUnknown(message);
        break;
      case "ahead":
        if (this.#isUnverified) this.#startEpoch("unverified", message);
        else if (this.#isOfEarlierEpoch(message)) this.#options.record.count("duplicates");
        else this.#hold(message);
    }
    this.#options.host.settle();
  }

  /** One message of the engine's history. The first of an answer may be beyond the requested number. */
  replayed(message: NumberedMessage, isFirst: boolean): void {
    const { sequence, payload } = message;
    const checksum = crc32(payload);
    const relation = this.#tracker.relate(sequence, checksum);
    this.#hasHistory = true;
    if (relation === "changed") {
      this.#startEpoch("restarted");
      return;
    }
    if (relation === "same") this.#isUnverified = false;
    if (relation === "same" || relation === "unknown") return;
    // The history lacks the last accepted message, so nothing proves that it is the same process.
    if (isFirst && this.#isUnverified) this.#endEpoch("unverified");
    if (sequence > this.last + 1) this.#addHole(sequence - 1, "history-truncated");
    this.#accept(message, checksum);
  }

  /** A replay ended. */
  replayEnded(outcome: "complete" | "empty" | "failed"): void {
    this.#fruitlessReplays += 1;
    this.#hasReplayFailed = outcome === "failed";
    // An engine that keeps a history but does not know its own last message is a new process.
    const isUnknownToEngine = outcome === "empty" && this.last >= 0;
    if (isUnknownToEngine && (this.#isUnverified || this.#hasHistory)) this.#startEpoch("restarted");
  }

  connectionLost(): void {
    this.#dropReordered();
    this.#isUnverified = this.last >= 0;
  }

  /** Stops waiting for missing messages and puts the buffered ones back among the live messages. */
  releaseReordered(): void {
    this.#cancelWait?.();
    this.#cancelWait = undefined;
    if (this.#reorder.count > 0) this.#options.host.putBack(this.#reorder.takeAll());
  }

  /**
   * A message that was queued while the engine restarted has a high number and an old time. At most `maxStaleMessages`
   * are taken for such, since an engine's clock may be set back.
   */
  #isOfEarlierEpoch({ payload }: NumberedMessage): boolean {
    if (this.#staleMessages >= maxStaleMessages || !this.#options.applier.isOlder(payload)) return false;
    this.#staleMessages += 1;
    return true;
  }

  #handleUnknown(message: NumberedMessage): void {
    if (this.#isUnverified) this.#startEpoch("unverified", message);
    // A replay overtakes queued messages: those are old, a restarted engine's are new.
    else if (this.#options.applier.isNewer(message.payload)) this.#startEpoch("restarted", message);
    else this.#options.record.count("duplicates");
  }

  #acceptLive(message: NumberedMessage, checksum: number): void {
    this.#isUnverified = false;
    this.#accept(message, checksum);
    this.#options.record.published(this.#options.applier.timestampS);
    // Messages that this one completes are handled after it, in slices: there may be many.
    if (this.#reorder.has(this.last + 1)) this.releaseReordered();
  }

  #accept(message: NumberedMessage, checksum: number): void {
    this.#tracker.accept(message.sequence, checksum);
    this.#fruitlessReplays = 0;
    if (this.#options.applier.apply(message, checksum)) return;
    const { sequence } = message;
    this.#holeReason = "message-refused";
    this.#options.record.gap({ from: sequence, to: sequence, reason: "message-refused" });
  }

  #hold(message: NumberedMessage): void {
    const { host, record } = this.#options;
    const added = this.#reorder.add(message);
    if (added === "duplicate") record.count("duplicates");
    else if (added === "full") {
      host.putBack([message]);
      this.#resolveGap();
    } else if (this.last < 0 && !host.canReplay) this.#declareGap();
    else if (!this.#cancelWait) this.#awaitMissing();
  }

  #awaitMissing(): void {
    const { scheduler, limits, host } = this.#options;
    this.#cancelWait = scheduler.after(limits.reorderWaitMs, () => {
      this.#resolveGap();
      host.settle();
      host.requestWork();
    });
  }

  #resolveGap(): void {
    this.#cancelWait?.();
    this.#cancelWait = undefined;
    const { host } = this.#options;
    if (host.canReplay && this.#fruitlessReplays < maxFruitlessReplays) host.beginReplay("filling-gap");
    else this.#declareGap();
  }

  #declareGap(): void {
    const message = this.#reorder.takeLowest();
    if (!message) return;
    const reason = this.last < 0 ? "joined-late" : this.#hasReplayFailed ? "replay-failed" : "gap";
    this.#addHole(message.sequence - 1, reason);
    this.#acceptLive(message, crc32(message.payload));
    this.releaseReordered();
  }

  /** @param to the last missing number */
  #addHole(to: number, reason: FeedReason): void {
    this.#holeReason = reason;
    this.#options.record.gap({ from: this.last + 1, to, reason });
  }

  /** @param message the first message of the new epoch */
  #startEpoch(reason: NewEpochReason, message?: NumberedMessage): void {
    const { host } = this.#options;
    this.#endEpoch(reason);
    if (message) host.putBack([message]);
    if (host.canReplay) host.beginReplay("new-epoch");
  }

  #endEpoch(reason: NewEpochReason): void {
    const { record, sink, applier, logger } = this.#options;
    logger.info("engine behind a KV event feed restarted", { reason, last: this.last });
    this.#dropReordered();
    this.#tracker.reset();
    applier.reset();
    this.#isUnverified = false;
    this.#holeReason = undefined;
    this.#hasHistory = false;
    this.#fruitlessReplays = 0;
    this.#staleMessages = 0;
    record.newEpoch();
    sink.newEpoch(reason);
  }

  #dropReordered(): void {
    this.#cancelWait?.();
    this.#cancelWait = undefined;
    this.#reorder.takeAll();
  }
}

/** Decodes messages, passes them on and counts. A failure affects one message only. */
export class MessageApplier {
  readonly #decoder: EventDecoder;
  readonly #sink: FeedSink;
  readonly #record: FeedRecord;
  readonly #logger: Logger;
  #timestampS = Number.NaN;

  constructor(options: { decoder: EventDecoder; sink: FeedSink; record: FeedRecord; logger: Logger }) {
    this.#decoder = options.decoder;
    this.#sink = options.sink;
    this.#record = options.record;
    this.#logger = options.logger;
  }

  /** The engine's clock in the latest message passed on, Unix seconds; NaN for none. */
  get timestampS(): number {
    return this.#timestampS;
  }

  /** @returns whether the message was passed on; if not, it is a hole */
  apply(message: NumberedMessage, checksum: number): boolean {
    try {
      return this.#handOn(message, checksum);
    } catch (error) {
      this.#record.refuse("failed");
      this.#logger.error("KV event message not processed", { sequence: message.sequence, error });
      return false;
    }
  }

  /** Whether the engine sent this message after the latest one passed on, or the order is unknown. */
  isNewer(payload: Uint8Array): boolean {
    const before = this.#timestampS;
    const report = this.#decoder.decode(payload);
    return report.refused !== undefined || !(this.#decoder.batch.timestampS <= before);
  }

  /** Whether the engine sent this message before the latest one passed on. */
  isOlder(payload: Uint8Array): boolean {
    const before = this.#timestampS;
    const report = this.#decoder.decode(payload);
    return report.refused === undefined && this.#decoder.batch.timestampS < before;
  }

  /** Forgets the latest timestamp. */
  reset(): void {
    this.#timestampS = Number.NaN;
  }

  #handOn({ sequence, payload }: NumberedMessage, checksum: number): boolean {
    const report = this.#decoder.decode(payload);
    this.#record.count("undecoded_events", report.unknownEvents + report.malformedEvents);
    if (report.refused !== undefined) {
      this.#record.refuse(report.refused);
      return false;
    }
    const { batch } = this.#decoder;
    this.#timestampS = batch.timestampS;
    this.#sink.batch(batch, sequence, checksum);
    this.#countEvents(batch);
    return true;
  }

  #countEvents({ count, kind, hashStart }: EngineEventBatch): void {
    let stored = 0;
    let removed = 0;
    for (let event = 0; event < count; event++) {
      const hashes = hashStart[event + 1]! - hashStart[event]!;
      if (kind[event] === eventKind.stored) stored += hashes;
      else if (kind[event] === eventKind.removed) removed += hashes;
    }
    this.#record.count("messages");
    this.#record.count("events", count);
    this.#record.count("blocks_stored", stored);
    this.#record.count("blocks_removed", removed);
  }
}

/**
 * How a message relates to the accepted ones. `next`: in order. `ahead`: messages before it are missing. `same`: it was
 * accepted before. `changed`: its number was accepted with other bytes. `unknown`: its number is behind, and its
 * checksum is not remembered.
 */
type SequenceRelation = "next" | "ahead" | "same" | "changed" | "unknown";

/** Stands for "nothing remembered"; a checksum of 0 is stored as 1. */
const nothing = 0;

/** The position in a stream of numbered messages, with the checksums of the latest ones. */
export class SequenceTracker {
  readonly #checksums: Uint32Array;
  #last = -1;

  /** @param remembered how many of the latest numbers keep their checksum, 4 bytes each */
  constructor(remembered: number) {
    this.#checksums = new Uint32Array(remembered);
  }

  /** The highest accepted number; -1 before the first. */
  get last(): number {
    return this.#last;
  }

  relate(sequence: number, checksum: number): SequenceRelation {
    if (sequence === this.#last + 1) return "next";
    if (sequence > this.#last) return "ahead";
    const size = this.#checksums.length;
    const kept = sequence > this.#last - size ? this.#checksums[sequence % size]! : nothing;
    if (kept === nothing) return "unknown";
    return kept === stored(checksum) ? "same" : "changed";
  }

  /** Accepts a number beyond the last. Numbers in between are not remembered. */
  accept(sequence: number, checksum: number): void {
    const size = this.#checksums.length;
    if (sequence - this.#last > size) this.#checksums.fill(nothing);
    else for (let at = this.#last + 1; at < sequence; at++) this.#checksums[at % size] = nothing;
    this.#checksums[sequence % size] = stored(checksum);
    this.#last = sequence;
  }

  reset(): void {
    this.#checksums.fill(nothing);
    this.#last = -1;
  }
}

const stored = (checksum: number): number => checksum >>> 0 || 1;
