import {
  backoffDelayMs,
  type Cancel,
  type Clock,
  type Logger,
  type Meter,
  type Random,
  type Scheduler,
  type Startable,
  silentLogger,
  silentMeter,
  systemRandom,
} from "@espalier/core";
import { type EventDecoder, type NumberedMessage, readSequence } from "@espalier/engine-model/kv-events";
import type { EventTransport, OpenSocket, SubscriberMode, SubscriberObserver } from "./event-transport.ts";
import { completeFeedLimits, type FeedLimits } from "./feed-limits.ts";
import { FeedRecord } from "./feed-record.ts";
import type { FeedReason, FeedSink, FeedState } from "./feed-state.ts";
import { MessageQueue } from "./message-queue.ts";
import { ReplayAllowance, type ReplayGate, type ReplayOutcome, type ReplayOwner, ReplayRun } from "./replay-run.ts";
import { type FollowerHost, MessageApplier, StreamFollower } from "./stream-follower.ts";
import type { SliceWorker, WorkSlices } from "./work-slices.ts";

/** Endpoints of one target's events. */
export interface FeedEndpoints {
  readonly endpoint: string;
  readonly mode: SubscriberMode;
  /** Prefix of the topics to receive; in mode `bind` on a shared socket, the exact topic. */
  readonly topic: string;
  /** Where the engine replays its history, if it does. */
  readonly replayEndpoint: string | undefined;
}

interface KvFeedOptions {
  /** Key of the target in logs and metrics. */
  readonly key: string;
  /** Undefined when the target publishes no events: the feed is then `off`. */
  readonly endpoints: FeedEndpoints | undefined;
  readonly sink: FeedSink;
  /** Keeps no state between messages, so the feeds of a process may share one. */
  readonly decoder: EventDecoder;
  readonly transport: EventTransport;
  /** Shared by the feeds of a process. */
  readonly slices: WorkSlices;
  /** Shared by the feeds of a process. */
  readonly replayGate: ReplayGate;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random?: Random;
  readonly logger?: Logger;
  readonly meter?: Meter;
  readonly limits?: Partial<FeedLimits>;
}

/** Reads the KV events of one target in order. */
export interface KvFeed extends Startable {
  readonly state: FeedState;
  readonly reason: FeedReason;
  /** Why its endpoint cannot be used; undefined while it can. */
  readonly failure: string | undefined;
  /** @param lacksParents whether blocks follow others that the engine never announced: then it is not complete */
  setLacksParents(lacksParents: boolean): void;
  /** Plain JSON for the admin API. */
  describe(): KvFeedDescription;
}

export type KvFeedDescription = ReturnType<FeedRecord["describe"]> & {
  readonly endpoint: string | null;
  readonly replayEndpoint: string | null;
  readonly mode: SubscriberMode | null;
  readonly topic: string | null;
  /** The highest number of the current epoch. */
  readonly lastSequence: number | null;
  readonly pendingMessages: number;
  readonly pendingBytes: number;
};

/**
 * Reads the KV events of one target (an engine's rank). Passes decoded batches to a sink in order, each at most once
 * per epoch. Fetches missed messages from the engine's history or reports them as a hole. Detects restarts of the
 * engine by numbers and checksums.
 *
 * @throws RangeError for limits that are not positive whole numbers
 */
export function createKvFeed(options: KvFeedOptions): KvFeed {
  return new Feed(options);
}

type ReplayCause = "first-connection" | "reconnected" | "filling-gap" | "new-epoch" | "overflow" | "quiet-check";

/** Joins the socket, the message queue, replays and the stream follower into one feed. */
class Feed implements KvFeed, SubscriberObserver, SliceWorker, FollowerHost, ReplayOwner {
  readonly #options: KvFeedOptions;
  readonly #limits: FeedLimits;
  readonly #logger: Logger;
  readonly #record: FeedRecord;
  readonly #queue: MessageQueue;
  readonly #follower: StreamFollower;
  readonly #allowance: ReplayAllowance;
  readonly #backlog: BacklogWatch;
  #socket: OpenSocket | undefined;
  #isPaused = false;
  #hasUnread = false;
  #connection: "none" | "up" | "down" = "none";
  /** Set when the feed receives nothing: before the start and after the end. */
  #offReason: FeedReason | undefined = "not-started";
  #replay: ReplayRun | undefined;
  #replayCause: ReplayCause = "first-connection";
  #isHistoryEmpty = false;
  #cancelQuietCheck: Cancel = () => {};
  #cancelReopen: Cancel = () => {};
  failure: string | undefined;
  #lacksParents = false;
  /** How often the endpoint could not be used, since the last connection. */
  #failures = 0;
  #wasHeard = false;
  #wasChecked = false;

  constructor(options: KvFeedOptions) {
    const { key, clock, scheduler, sink, decoder, logger = silentLogger, meter = silentMeter } = options;
    const limits = completeFeedLimits(options.limits ?? {});
    const record = new FeedRecord({ clock, meter, key, sink });
    this.#options = options;
    this.#limits = limits;
    this.#record = record;
    this.#logger = logger.child({ feed: key });
    this.#queue = new MessageQueue({ maxMessages: limits.pendingMessages, maxBytes: limits.pendingBytes });
    this.#allowance = new ReplayAllowance(clock, limits.replayCooldownMs);
    const { behindMs } = limits;
    this.#backlog = new BacklogWatch({ clock, scheduler, behindMs, onChange: () => this.settle() });
    const applier = new MessageApplier({ decoder, sink, record, logger: this.#logger });
    this.#follower = new StreamFollower({ host: this, applier, record, sink, scheduler, limits, logger: this.#logger });
  }

  get state(): FeedState {
    return this.#record.state;
  }

  get reason(): FeedReason {
    return this.#record.reason;
  }

  async start(): Promise<void> {
    const { endpoints, scheduler } = this.#options;
    if (!endpoints) this.#turnOff("no-endpoint");
    else this.#open(endpoints);
    if (endpoints?.replayEndpoint === undefined) return;
    this.#cancelQuietCheck = scheduler.every(this.#limits.quietCheckMs, () => this.#checkQuiet());
  }

  async stop(): Promise<void> {
    this.#turnOff("stopped");
    this.#cancelQuietCheck();
    this.#record.remove();
  }

  setLacksParents(lacksParents: boolean): void {
    if (lacksParents === this.#lacksParents) return;
    this.#lacksParents = lacksParents;
    this.settle();
  }

  describe(): KvFeedDescription {
    const { endpoints } = this.#options;
    const last = this.#follower.last;
    return {
      ...this.#record.describe(),
      endpoint: endpoints?.endpoint ?? null,
      replayEndpoint: endpoints?.replayEndpoint ?? null,
      mode: endpoints?.mode ?? null,
      topic: endpoints?.topic ?? null,
      lastSequence: last < 0 ? null : last,
      pendingMessages: this.#queue.count + this.#follower.reorderedCount,
      pendingBytes: this.#queue.bytes + (this.#replay?.pendingBytes ?? 0),
    };
  }

  onMessage(frames: readonly Uint8Array[]): void {
    if (this.#offReason) return;
    this.#record.received();
    this.#wasHeard = true;
    this.#wasChecked = false;
    const [, sequenceFrame, payload] = frames;
    const sequence = sequenceFrame && readSequence(sequenceFrame);
    if (frames.length !== 3 || sequence === undefined || payload === undefined) {
      this.#record.refuse("frames");
      return;
    }
    if (this.#connection === "none") this.onUp();
    // This message answers the check.
    if (this.#replayCause === "quiet-check") this.#abandonReplay();
    if (!this.#queue.push({ sequence, payload })) this.#overflow({ sequence, payload });
    if (this.#queue.isHigh && !this.#replay && !this.#isPaused) {
      this.#isPaused = true;
      this.#socket?.pause();
    }
    this.requestWork();
    this.#watchBacklog();
  }

  onBacklog(hasBacklog: boolean): void {
    this.#hasUnread = hasBacklog;
    this.#watchBacklog();
  }

  onUp(): void {
    if (this.#offReason || this.#connection === "up") return;
    const cause = this.#connection === "none" ? "first-connection" : "reconnected";
    this.#connection = "up";
    this.#failures = 0;
    this.#wasHeard = true;
    this.#wasChecked = false;
    this.#allowance.reconnected();
    if (this.canReplay) this.beginReplay(cause);
    this.settle();
    this.requestWork();
  }

  onDown(): void {
    if (this.#offReason || this.#connection !== "up") return;
    this.#connection = "down";
    this.#abandonReplay();
    this.#queue.clear();
    this.#unpause();
    this.#follower.connectionLost();
    this.#watchBacklog();
    this.settle();
  }

  onFailed(error: unknown): void {
    const { endpoints, scheduler, random = systemRandom } = this.#options;
    if (this.#offReason || !endpoints) return;
    if (this.#failures === 0) this.#logger.warn("endpoint of a KV event feed unusable", { error, ...endpoints });
    this.failure = error instanceof Error ? error.message : String(error);
    this.#record.count("open_failures");
    this.#turnOff("endpoint-unusable");
    // A taken port may become free, a name resolvable, and a file descriptor too.
    const backoff = { firstDelayMs: this.#limits.reopenMs, maxDelayMs: this.#limits.maxReopenMs };
    const delayMs = backoffDelayMs(this.#failures++, backoff, random);
    this.#cancelReopen = scheduler.after(delayMs, () => this.#open(endpoints));
  }

  step(): boolean {
    try {
      return this.#work();
    } catch (error) {
      // A defect of ours. Feeds take turns, so the caller may be another feed's socket, which would be blamed.
      this.#record.refuse("failed");
      this.#logger.error("KV event message not processed", { error });
      return true;
    }
  }

  #work(): boolean {
    if (this.#replay?.step()) return true;
    if (this.#replay || this.#connection !== "up") return false;
    const message = this.#queue.shift();
    if (this.#queue.count === 0) this.#unpause();
    if (message) this.#follower.live(message);
    this.#watchBacklog();
    return this.#replay === undefined && this.#queue.count > 0;
  }

  requestWork(): void {
    this.#options.slices.request(this);
  }

  get canReplay(): boolean {
    return this.#options.endpoints?.replayEndpoint !== undefined && this.#allowance.isOpen;
  }

  putBack(messages: readonly NumberedMessage[]): void {
    this.#queue.putBack(messages);
  }

  beginReplay(cause: ReplayCause): void {
    const endpoint = this.#options.endpoints?.replayEndpoint;
    if (endpoint === undefined) return;
    const { transport, replayGate: gate, scheduler } = this.#options;
    this.#abandonReplay();
    this.#follower.releaseReordered();
    this.#unpause();
    this.#allowance.started();
    this.#replayCause = cause;
    this.#isHistoryEmpty = false;
    this.#replay = new ReplayRun({ transport, endpoint, gate, scheduler, limits: this.#limits, owner: this });
    this.settle();
    this.#replay.begin();
  }

  replayStart(): number {
    return Math.max(0, this.#follower.last);
  }

  replayed(message: NumberedMessage, isFirst: boolean): void {
    this.#follower.replayed(message, isFirst);
  }

  replayEnded(outcome: ReplayOutcome, error?: unknown): void {
    this.#replay = undefined;
    this.#record.replayEnded(outcome);
    if (outcome === "failed") {
      this.#allowance.failed();
      this.#logger.warn("KV event replay failed", { cause: this.#replayCause, error });
    }
    this.#isHistoryEmpty = outcome === "empty" && this.#follower.last < 0;
    this.#follower.replayEnded(outcome);
    this.settle();
    this.requestWork();
  }

  settle(): void {
    this.#record.enter(...this.#currentState());
  }

  #currentState(): [FeedState, FeedReason] {
    const { last, isUnverified, holeReason, hasReplayFailed } = this.#follower;
    if (this.#offReason) return ["off", this.#offReason];
    if (this.#connection === "none") return ["stale", "connecting"];
    if (this.#connection === "down") return ["stale", "socket-lost"];
    if (this.#replay && this.#replayCause !== "quiet-check") return ["replaying", this.#replayCause];
    if (isUnverified) return ["stale", "unverified"];
    if (this.#backlog.isBehind) return ["stale", "behind"];
    const lack = holeReason ?? (this.#lacksParents ? "unknown-parents" : undefined);
    if (last >= 0) return lack ? ["partial", lack] : ["live", "complete"];
    if (this.#isHistoryEmpty) return ["live", "nothing-published"];
    return ["partial", hasReplayFailed ? "replay-failed" : "nothing-received"];
  }

  /** Drops a message when the queue is full: a replay delivers it again, or the next message reveals the hole. */
  #overflow(message: NumberedMessage): void {
    this.#record.count("resyncs");
    this.#queue.clear();
    this.#queue.push(message);
    // A replay in progress continues: restarting it each time would never finish.
    if (!this.#replay && this.canReplay) this.beginReplay("overflow");
  }

  /**
   * Asks an engine that fell silent, once, whether its last messages were lost: no later message would reveal the hole.
   */
  #checkQuiet(): void {
    const { last, isUnverified, reorderedCount } = this.#follower;
    const isOpenQuestion = isUnverified || (last < 0 && !this.#isHistoryEmpty);
    const isQuiet = !this.#wasHeard && (!this.#wasChecked || isOpenQuestion);
    this.#wasHeard = false;
    if (!isQuiet || this.#connection !== "up" || this.#replay || reorderedCount > 0 || !this.canReplay) return;
    this.#wasChecked = true;
    this.beginReplay("quiet-check");
  }

  #watchBacklog(): void {
    this.#backlog.update(!this.#offReason && (this.#hasUnread || this.#queue.count > 0));
  }

  #abandonReplay(): void {
    if (!this.#replay) return;
    this.#replay.stop();
    this.#replay = undefined;
    this.#record.replayEnded("abandoned");
  }

  #unpause(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#socket?.resume();
  }

  #open({ endpoint, mode, topic }: FeedEndpoints): void {
    this.#offReason = undefined;
    this.#connection = "none";
    this.failure = undefined;
    this.settle();
    try {
      const socket = this.#options.transport.openSubscriber({ endpoint, mode, topic, observer: this });
      if (this.#offReason) socket.close();
      else this.#socket = socket;
    } catch (error) {
      this.onFailed(error);
    }
  }

  #turnOff(reason: FeedReason): void {
    this.#offReason = reason;
    this.#cancelReopen();
    this.#abandonReplay();
    this.#follower.connectionLost();
    this.#queue.clear();
    this.#isPaused = false;
    this.#hasUnread = false;
    this.#backlog.stop();
    this.#options.slices.forget(this);
    this.#socket?.close();
    this.#socket = undefined;
    this.settle();
  }
}

interface BacklogWatchOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** How long unread messages may wait before the reader is behind. */
  readonly behindMs: number;
  /** `isBehind` has changed. */
  readonly onChange: () => void;
}

/**
 * Reports that a reader is behind: for longer than `behindMs` it has not reached the end of what has arrived. Uses only
 * our own clock, since an engine's may jump. It cannot see messages that wait at the publisher, but while there are
 * any, the local backlog does not end either.
 */
export class BacklogWatch {
  readonly #options: BacklogWatchOptions;
  #sinceMs: number | undefined;
  /** One timer for many short backlogs: it checks again when it fires. */
  #cancelTimer: Cancel | undefined;
  #isBehind = false;

  constructor(options: BacklogWatchOptions) {
    this.#options = options;
  }

  get isBehind(): boolean {
    return this.#isBehind;
  }

  /** @param hasBacklog whether anything received is still unread */
  update(hasBacklog: boolean): void {
    if (hasBacklog) this.#begin();
    else this.#end();
  }

  stop(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#end();
  }

  #begin(): void {
    if (this.#sinceMs !== undefined) return;
    const { clock, behindMs } = this.#options;
    this.#sinceMs = clock.nowMs();
    if (!this.#cancelTimer) this.#lookAfter(behindMs);
  }

  #end(): void {
    this.#sinceMs = undefined;
    this.#set(false);
  }

  #lookAfter(delayMs: number): void {
    this.#cancelTimer = this.#options.scheduler.after(delayMs, () => this.#look());
  }

  #look(): void {
    this.#cancelTimer = undefined;
    if (this.#sinceMs === undefined) return;
    const { clock, behindMs } = this.#options;
    const leftMs = this.#sinceMs + behindMs - clock.nowMs();
    if (leftMs > 0) this.#lookAfter(leftMs);
    else this.#set(true);
  }

  #set(isBehind: boolean): void {
    if (isBehind === this.#isBehind) return;
    this.#isBehind = isBehind;
    this.#options.onChange();
  }
}
