import type { Cancel, Clock, Random, Scheduler } from "@espalier/common";
import type { ConnectionEnd } from "./transport.ts";
import { drainMarkBytes } from "./transport-limits.ts";

/** How fast a direction between two addresses is. */
export interface PipeSpeed {
  /** One way. */
  readonly delayMs: number;
  /** Added to the delay of each frame, evenly from 0; frames keep their order. */
  readonly jitterMs: number;
  /** Bytes that leave in a millisecond; what does not leave waits with the sender. */
  readonly bytesPerMs: number;
}

export interface PipeDeps {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  speed(): PipeSpeed;
  /** Nothing leaves and nothing arrives now. */
  isCut(): boolean;
  deliver(item: PipeItem): void;
  drained(): void;
}

export type PipeItem = { readonly frame: Uint8Array } | { readonly end: ConnectionEnd };

/** One direction of a connection in memory: a frame leaves at the pace of the wire and arrives after its delay. */
export class MemoryPipe {
  readonly #deps: PipeDeps;
  readonly #waiting: PipeItem[] = [];
  readonly #flying: { readonly item: PipeItem; readonly dueMs: number }[] = [];
  #isAboveMark = false;
  #cancelLeaving: Cancel | undefined;
  #cancelArrival: Cancel | undefined;
  #isClosed = false;
  bufferedBytes = 0;

  constructor(deps: PipeDeps) {
    this.#deps = deps;
  }

  send(item: PipeItem): void {
    if (this.#isClosed) return;
    this.#waiting.push(item);
    this.bufferedBytes += sizeOf(item);
    this.resume();
    if (this.bufferedBytes >= drainMarkBytes) this.#isAboveMark = true;
  }

  /** Goes on after a cut. */
  resume(): void {
    this.#leave();
    this.#awaitArrival();
  }

  /** Forgets what has not left. */
  discard(): void {
    this.#cancelLeaving?.();
    this.#cancelLeaving = undefined;
    this.#waiting.length = 0;
    this.bufferedBytes = 0;
  }

  /** Nothing leaves or arrives any more. */
  close(): void {
    this.#isClosed = true;
    this.discard();
    this.#cancelArrival?.();
    this.#flying.length = 0;
  }

  #leave(): void {
    while (!this.#cancelLeaving && !this.#isClosed && !this.#deps.isCut()) {
      const [item] = this.#waiting;
      if (!item) return;
      const takesMs = sizeOf(item) / this.#deps.speed().bytesPerMs;
      if (takesMs > 0) {
        this.#cancelLeaving = this.#deps.scheduler.after(takesMs, () => {
          this.#cancelLeaving = undefined;
          this.#depart();
          this.#leave();
        });
        return;
      }
      this.#depart();
    }
  }

  #depart(): void {
    const item = this.#waiting.shift();
    if (!item) return;
    const { delayMs, jitterMs } = this.#deps.speed();
    const dueMs = this.#deps.clock.nowMs() + delayMs + jitterMs * this.#deps.random.float();
    this.#flying.push({ item, dueMs: Math.max(dueMs, this.#flying.at(-1)?.dueMs ?? 0) });
    this.bufferedBytes -= sizeOf(item);
    this.#awaitArrival();
    if (this.#isAboveMark && this.bufferedBytes < drainMarkBytes) {
      this.#isAboveMark = false;
      this.#deps.drained();
    }
  }

  #awaitArrival(): void {
    const next = this.#flying[0];
    if (!next || this.#cancelArrival || this.#isClosed || this.#deps.isCut()) return;
    const inMs = Math.max(0, next.dueMs - this.#deps.clock.nowMs());
    this.#cancelArrival = this.#deps.scheduler.after(inMs, () => {
      this.#cancelArrival = undefined;
      if (this.#deps.isCut()) return;
      this.#flying.shift();
      this.#deps.deliver(next.item);
      this.#awaitArrival();
    });
  }
}

const sizeOf = (item: PipeItem): number => ("frame" in item ? item.frame.length : 0);
