import type { Cancel, Scheduler } from "@espalier/common";
import type { EventTransport, OpenSocket } from "./event-transport.ts";
import type { FeedLimits } from "./feed-limits.ts";
import { MessageQueue, type NumberedMessage } from "./message-queue.ts";
import { readReplayAnswer } from "./replay-frames.ts";
import type { ReplayGate } from "./replay-gate.ts";

/**
 * `complete`: everything from the number asked for on, or the suffix that exists. `empty`: the engine has nothing from
 * that number on. `failed`: no answer, or answers that break off again and again.
 */
export type ReplayOutcome = "complete" | "empty" | "failed";

/** Whoever wants a replay. */
export interface ReplayOwner {
  /** The number to ask for: the last one that was accepted, so that the answer proves to be of the same life. */
  replayStart(): number;
  /**
   * One message, contiguous with the one before it in the same answer. It may stop the run.
   *
   * @param isFirst whether it is the first of an answer, which may be beyond what was asked for
   */
  replayed(message: NumberedMessage, isFirst: boolean): void;
  replayEnded(outcome: ReplayOutcome): void;
  requestWork(): void;
}

export interface ReplayRunOptions {
  readonly transport: EventTransport;
  readonly endpoint: string;
  readonly gate: ReplayGate;
  readonly scheduler: Scheduler;
  readonly limits: FeedLimits;
  readonly owner: ReplayOwner;
}

/** Stands for the end marker in the queue of answers. */
const endMarker: NumberedMessage = { sequence: -1, payload: new Uint8Array(0) };

/** Requests that may go without any answer, one after the other. */
const maxSilentRequests = 2;

/**
 * Fetches an engine's history. A ROUTER at its high-water mark drops answers silently, even the end marker: a hole or a
 * stall makes the run ask again from the last good message on.
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
  /** Of the present request. */
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

  /** Ends the run without telling the owner. */
  stop(): void {
    this.#isOver = true;
    this.#cancelIdle();
    this.#cancelTotal();
    this.#closeSocket();
    this.#release?.();
    this.#release = undefined;
  }

  /** Handles one answer. Gives false when none waits. */
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
    const socket = transport.openReplay({ endpoint, start: this.#asked, onFrames });
    if (isCurrent()) this.#socket = socket;
    else socket.close();
  }

  #receive(frames: readonly Uint8Array[]): void {
    this.#armIdle();
    const answer = readReplayAnswer(frames);
    if (answer.kind === "malformed") return;
    // What finds no room leaves a hole, and a hole is asked for again.
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

  #finish(outcome: ReplayOutcome): void {
    if (this.#isOver) return;
    this.stop();
    this.#options.owner.replayEnded(outcome);
  }
}
