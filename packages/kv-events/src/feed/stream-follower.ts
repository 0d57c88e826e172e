import { crc32 } from "node:zlib";
import type { Cancel, Logger, Scheduler } from "@espalier/common";
import type { FeedLimits } from "./feed-limits.ts";
import type { FeedRecord } from "./feed-record.ts";
import type { FeedSink } from "./feed-sink.ts";
import type { FeedReason, NewLifeReason } from "./feed-state.ts";
import type { MessageApplier } from "./message-applier.ts";
import type { NumberedMessage } from "./message-queue.ts";
import { ReorderBuffer } from "./reorder-buffer.ts";
import { SequenceTracker } from "./sequence-tracker.ts";

/** Replays that end without getting past a hole before it is given up. */
const maxFruitlessReplays = 2;
/** Messages of one life that are taken for leftovers of the one before. */
const maxStaleMessages = 64;

/** What the follower asks of the feed around it. */
export interface FollowerHost {
  /** Whether the engine can be asked for its history now. */
  readonly canReplay: boolean;
  /** Puts live messages back before those that wait. */
  putBack(messages: readonly NumberedMessage[]): void;
  beginReplay(cause: "filling-gap" | "new-life"): void;
  /** Something changed that the state depends on. */
  settle(): void;
  /** Live messages may be handled now. */
  requestWork(): void;
}

export interface FollowerOptions {
  readonly host: FollowerHost;
  readonly applier: MessageApplier;
  readonly record: FeedRecord;
  readonly sink: FeedSink;
  readonly scheduler: Scheduler;
  readonly limits: FeedLimits;
  readonly logger: Logger;
}

/** Follows the numbers of one engine's messages: what is next, what is missing, and when it is another process. */
export class StreamFollower {
  readonly #options: FollowerOptions;
  readonly #tracker: SequenceTracker;
  readonly #reorder: ReorderBuffer;
  #cancelWait: Cancel | undefined;
  /** The connection was lost since the last message: it may be another process that speaks now. */
  #isDoubtful = false;
  #holeReason: FeedReason | undefined;
  /** The engine has answered a replay with messages in this life, so it keeps a history. */
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

  /** The highest number of the present life, -1 before the first. */
  get last(): number {
    return this.#tracker.last;
  }

  get isDoubtful(): boolean {
    return this.#isDoubtful;
  }

  /** Why the present life is not known completely; undefined when it is. */
  get holeReason(): FeedReason | undefined {
    return this.#holeReason;
  }

  get hasReplayFailed(): boolean {
    return this.#hasReplayFailed;
  }

  /** Messages that wait for a missing one. */
  get heldCount(): number {
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
        this.#isDoubtful = false;
        this.#options.record.count("duplicates");
        break;
      case "changed":
        this.#startLife(message.sequence === this.last ? "payload-changed" : "restarted", message);
        break;
      case "unknown":
        this.#judgeUnknown(message);
        break;
      case "ahead":
        if (this.#isDoubtful) this.#startLife("unverified", message);
        else if (this.#isOfAnEarlierLife(message)) this.#options.record.count("duplicates");
        else this.#hold(message);
    }
    this.#options.host.settle();
  }

  /** One message of the engine's history; the first of an answer may be beyond what was asked for. */
  replayed(message: NumberedMessage, isFirst: boolean): void {
    const { sequence, payload } = message;
    const checksum = crc32(payload);
    const relation = this.#tracker.relate(sequence, checksum);
    this.#hasHistory = true;
    if (relation === "changed") {
      this.#startLife("restarted");
      return;
    }
    if (relation === "same") this.#isDoubtful = false;
    if (relation === "same" || relation === "unknown") return;
    // The last message that was accepted is not in the history: nothing shows that it is the same process.
    if (isFirst && this.#isDoubtful) this.#endLife("unverified");
    if (sequence > this.last + 1) this.#addHole(sequence - 1, "history-truncated");
    this.#accept(message, checksum);
  }

  /** A replay ended. */
  replayEnded(outcome: "complete" | "empty" | "failed"): void {
    this.#fruitlessReplays += 1;
    this.#hasReplayFailed = outcome === "failed";
    // An engine that keeps a history and does not know its own last message is another process.
    const isUnknownToEngine = outcome === "empty" && this.last >= 0;
    if (isUnknownToEngine && (this.#isDoubtful || this.#hasHistory)) this.#startLife("restarted");
  }

  connectionLost(): void {
    this.#forgetHeld();
    this.#isDoubtful = this.last >= 0;
  }

  /** Gives up waiting for what is missing; what came early goes back among the live messages. */
  releaseHeld(): void {
    this.#cancelWait?.();
    this.#cancelWait = undefined;
    if (this.#reorder.count > 0) this.#options.host.putBack(this.#reorder.takeAll());
  }

  /**
   * A message that waited in a queue while the engine was restarted has a high number and an old time. So many at most are
   * taken for such: the clock of an engine may be set back.
   */
  #isOfAnEarlierLife({ payload }: NumberedMessage): boolean {
    if (this.#staleMessages >= maxStaleMessages || !this.#options.applier.isOlder(payload)) return false;
    this.#staleMessages += 1;
    return true;
  }

  #judgeUnknown(message: NumberedMessage): void {
    if (this.#isDoubtful) this.#startLife("unverified", message);
    // A replay overtakes messages that wait in queues on the way: those are old, a restarted engine's are new.
    else if (this.#options.applier.isNewer(message.payload)) this.#startLife("restarted", message);
    else this.#options.record.count("duplicates");
  }

  #acceptLive(message: NumberedMessage, checksum: number): void {
    this.#isDoubtful = false;
    this.#accept(message, checksum);
    this.#options.record.published(this.#options.applier.timestampS);
    // What this completes is handled after it, in slices: it may be much.
    if (this.#reorder.has(this.last + 1)) this.releaseHeld();
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
    if (added === "held") record.count("duplicates");
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
    this.releaseHeld();
  }

  /** @param to the last number that is missing */
  #addHole(to: number, reason: FeedReason): void {
    this.#holeReason = reason;
    this.#options.record.gap({ from: this.last + 1, to, reason });
  }

  /** @param message the first that is known of the new life */
  #startLife(reason: NewLifeReason, message?: NumberedMessage): void {
    const { host } = this.#options;
    this.#endLife(reason);
    if (message) host.putBack([message]);
    if (host.canReplay) host.beginReplay("new-life");
  }

  #endLife(reason: NewLifeReason): void {
    const { record, sink, applier, logger } = this.#options;
    logger.info("the engine behind a feed of KV events is another process", { reason, last: this.last });
    this.#forgetHeld();
    this.#tracker.reset();
    applier.reset();
    this.#isDoubtful = false;
    this.#holeReason = undefined;
    this.#hasHistory = false;
    this.#fruitlessReplays = 0;
    this.#staleMessages = 0;
    record.newLife();
    sink.newLife(reason);
  }

  #forgetHeld(): void {
    this.#cancelWait?.();
    this.#cancelWait = undefined;
    this.#reorder.takeAll();
  }
}
