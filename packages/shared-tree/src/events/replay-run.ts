import type { Cancel, Clock, Scheduler } from "@espalier/core";
import { type NumberedMessage, readReplayAnswer } from "@espalier/engine-model/kv-events";
import type { EventTransport, OpenSocket } from "./event-transport.ts";
import type { FeedLimits } from "./feed-limits.ts";
import { MessageQueue } from "./message-queue.ts";

/**
 * `complete`: everything from the requested number on, or the suffix that exists. `empty`: the engine has nothing from
 * that number on. `failed`: no answer, or answers that break off repeatedly.
 */
export type ReplayOutcome = "complete" | "empty" | "failed";

/** The feed that a replay is for. */
export interface ReplayOwner {
  /** The number to request: the last one accepted, so that the answer proves to be of the same epoch. */
  replayStart(): number;
  /**
   * One message, contiguous with the one before it in the same answer. The owner may stop the run.
   *
   * @param isFirst whether it is the first of an answer, which may be beyond the requested number
   */
  replayed(message: NumberedMessage, isFirst: boolean): void;
  /** @param error why no socket could be opened */
  replayEnded(outcome: ReplayOutcome, error?: unknown): void;
  requestWork(): void;
}

interface ReplayRunOptions {
  readonly transport: EventTransport;
  readonly endpoint: string;
  readonly gate: ReplayGate;
  readonly scheduler: Scheduler;
  readonly limits: FeedLimits;
  readonly owner: ReplayOwner;
}

/** Stands for the end marker in the queue of answers. */
const endMarker: NumberedMessage = { sequence: -1, payload: new Uint8Array(0) };

/** Most consecutive requests without any answer. */
const maxSilentRequests = 2;

/**
 * Fetches an engine's history. A ROUTER at its high-water mark drops answers silently, even the end marker. After a
 * hole or a stall, the run requests again from the last good message on.
 */
export class ReplayRun {
  readonly #options: ReplayRunOptions;
  readonly #answers: MessageQueue;
  #release: (() => void) | undefined;
  #socket: OpenSocket | undefined;
  #cancelIdle: Cancel = () => {};
  #cancelTotal: Cancel = () => {};
  #isOver = false;
  #requests = 0;
  #silentRequests = 0;
  /** Start of the present request. */
  #asked = 0;
  #previous: number | undefined;
  #isPaused = false;

  constructor(options: ReplayRunOptions) {
    const { pendingMessages, pendingBytes } = options.limits;
    this.#options = options;
    this.#answers = new MessageQueue({ maxMessages: pendingMessages, maxBytes: pendingBytes });
  }

  get pendingBytes(): number {
    return this.#answers.bytes;
  }

  begin(): void {
    const release = this.#options.gate.acquire(() => this.#enter());
    if (!release) this.#finish("failed");
    else if (this.#isOver) release();
    else this.#release = release;
  }

  /** Ends the run without notifying the owner. */
  stop(): void {
    this.#isOver = true;
    this.#cancelIdle();
    this.#cancelTotal();
    this.#closeSocket();
    this.#release?.();
    this.#release = undefined;
  }

  /** Handles one answer. Returns false when none waits. */
  step(): boolean {
    const message = this.#answers.shift();
    if (!message || this.#isOver) return false;
    if (this.#isPaused && this.#answers.count === 0) {
      this.#isPaused = false;
      this.#socket?.resume();
    }
    if (message === endMarker) this.#finish(this.#previous === undefined ? "empty" : "complete");
    else this.#take(message);
    return !this.#isOver && this.#answers.count > 0;
  }

  #enter(): void {
    if (this.#isOver) return;
    this.#cancelTotal = this.#options.scheduler.after(this.#options.limits.replayTotalMs, () => this.#finish("failed"));
    this.#request();
  }

  #request(): void {
    const { transport, endpoint, owner } = this.#options;
    const request = ++this.#requests;
    const isCurrent = (): boolean => !this.#isOver && request === this.#requests;
    this.#asked = owner.replayStart();
    this.#previous = undefined;
    this.#isPaused = false;
    this.#armIdle();
    const onFrames = (frames: readonly Uint8Array[]): void => {
      if (isCurrent()) this.#receive(frames);
    };
    try {
      const socket = transport.openReplay({ endpoint, start: this.#asked, onFrames });
      if (isCurrent()) this.#socket = socket;
      else socket.close();
    } catch (error) {
      this.#finish("failed", error);
    }
  }

  #receive(frames: readonly Uint8Array[]): void {
    this.#armIdle();
    const answer = readReplayAnswer(frames);
    if (answer.kind === "malformed") return;
    // An answer that does not fit leaves a hole, which is requested again.
    this.#answers.push(answer.kind === "end" ? endMarker : answer);
    if (this.#answers.isHigh && !this.#isPaused) {
      this.#isPaused = true;
      this.#socket?.pause();
    }
    this.#options.owner.requestWork();
  }

  #take(message: NumberedMessage): void {
    const { sequence } = message;
    const previous = this.#previous;
    if (sequence < this.#asked || (previous !== undefined && sequence <= previous)) return;
    if (previous !== undefined && sequence > previous + 1) {
      this.#resume();
      return;
    }
    this.#previous = sequence;
    this.#silentRequests = 0;
    this.#options.owner.replayed(message, previous === undefined);
  }

  #armIdle(): void {
    this.#cancelIdle();
    this.#cancelIdle = this.#options.scheduler.after(this.#options.limits.replayIdleMs, () => {
      if (this.#answers.count > 0) this.#armIdle();
      else this.#stalled();
    });
  }

  #stalled(): void {
    if (this.#previous === undefined) this.#silentRequests += 1;
    // Asked again, the engine repeated the last message and had nothing after it: only its end marker is missing.
    const isOnlyEndMissing = this.#previous !== undefined && this.#previous === this.#asked;
    if (isOnlyEndMissing) this.#finish("complete");
    else if (this.#silentRequests >= maxSilentRequests) this.#finish("failed");
    else this.#resume();
  }

  #resume(): void {
    this.#closeSocket();
    if (this.#requests >= this.#options.limits.replayRequests) this.#finish("failed");
    else this.#request();
  }

  #closeSocket(): void {
    this.#socket?.close();
    this.#socket = undefined;
    this.#answers.clear();
  }

  #finish(outcome: ReplayOutcome, error?: unknown): void {
    if (this.#isOver) return;
    this.stop();
    this.#options.owner.replayEnded(outcome, error);
  }
}

/** Most waiting feeds. More would mean a defect, since each feed waits at most once. */
const maxWaiting = 16_384;

/** Limits concurrent replays over all feeds: each makes an engine send up to its whole history. */
export interface ReplayGate {
  /**
   * Calls `enter` once a slot is free, perhaps immediately. If `enter` throws, its slot is free again.
   *
   * @returns frees the slot or stops waiting for one; undefined when too many wait
   */
  acquire(enter: () => void): (() => void) | undefined;
}

/** @param limit concurrent replays */
export function createReplayGate(limit = 8): ReplayGate {
  const waiting = new Set<() => void>();
  let running = 0;

  const admit = (): void => {
    for (const enter of waiting) {
      if (running >= limit) return;
      waiting.delete(enter);
      running += 1;
      enter();
    }
  };
  return {
    acquire(enter) {
      if (waiting.size >= maxWaiting) return undefined;
      let isOver = false;
      const release = (): void => {
        if (isOver) return;
        isOver = true;
        if (waiting.delete(entry)) return;
        running -= 1;
        admit();
      };
      // A separate closure per call: two callers may pass the same function.
      const entry = (): void => {
        try {
          enter();
        } catch (error) {
          release();
          throw error;
        }
      };
      waiting.add(entry);
      admit();
      return release;
    },
  };
}

/** Most replays that one feed may start within a window. */
const maxStarts = 8;
const windowMs = 10_000;

/**
 * Decides when a feed may request another replay. A disordered stream (two publishers under one name, an engine that
 * keeps crashing) would otherwise request them without end.
 */
export class ReplayAllowance {
  readonly #clock: Clock;
  readonly #cooldownMs: number;
  readonly #startsMs: number[] = [];
  #notBeforeMs = Number.NEGATIVE_INFINITY;

  /** @param cooldownMs how long to wait after a failed replay */
  constructor(clock: Clock, cooldownMs: number) {
    this.#clock = clock;
    this.#cooldownMs = cooldownMs;
  }

  get isOpen(): boolean {
    const nowMs = this.#clock.nowMs();
    while (this.#startsMs.length > 0 && this.#startsMs[0]! <= nowMs - windowMs) this.#startsMs.shift();
    return nowMs >= this.#notBeforeMs && this.#startsMs.length < maxStarts;
  }

  started(): void {
    this.#startsMs.push(this.#clock.nowMs());
  }

  failed(): void {
    this.#notBeforeMs = this.#clock.nowMs() + this.#cooldownMs;
  }

  /** A new connection may lead to another process, so an earlier failure no longer counts. */
  reconnected(): void {
    this.#notBeforeMs = Number.NEGATIVE_INFINITY;
  }
}
