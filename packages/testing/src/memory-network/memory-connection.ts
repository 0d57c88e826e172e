import {
  type Cancel,
  type Clock,
  type Connection,
  type ConnectionEnd,
  type ConnectionObserver,
  drainMarkBytes,
  maxUntrustedBytes,
  type Random,
  type Scheduler,
} from "@espalier/common";

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

export interface MemoryEndDeps {
  readonly scheduler: Scheduler;
  readonly remote: string;
  readonly maxFrameBytes: number;
  /** Of the direction away from this end. */
  readonly pipe: Omit<PipeDeps, "deliver" | "drained">;
  onSent(bytes: number): void;
  onEnded(end: MemoryEnd): void;
}

/** One end of a connection in memory. */
export class MemoryEnd implements Connection {
  readonly remote: string;
  readonly #deps: MemoryEndDeps;
  readonly #out: MemoryPipe;
  #observer: ConnectionObserver | undefined;
  #peer: MemoryEnd | undefined;
  #isTrusted = false;
  #untrustedBytes = 0;
  #state: "open" | "closing" | "ended" = "open";

  constructor(deps: MemoryEndDeps) {
    this.#deps = deps;
    this.remote = deps.remote;
    this.#out = new MemoryPipe({
      ...deps.pipe,
      deliver: (item) => this.#peer?.receive(item),
      drained: () => {
        if (this.#state === "open") this.#observer?.drained();
      },
    });
  }

  /** Ties two ends together. */
  static join(one: MemoryEnd, other: MemoryEnd): void {
    one.#peer = other;
    other.#peer = one;
  }

  observe(observer: ConnectionObserver): void {
    this.#observer = observer;
  }

  get bufferedBytes(): number {
    return this.#out.bufferedBytes;
  }

  trust(): void {
    this.#isTrusted = true;
  }

  send(frame: Uint8Array): void {
    if (this.#state !== "open") return;
    this.#deps.onSent(frame.length);
    this.#out.send({ frame });
  }

  close(code: number, reason: string): void {
    this.#finish({ kind: "closed", code, reason });
  }

  terminate(): void {
    this.#out.discard();
    this.#finish({ kind: "reset", code: 1006, reason: "terminated" });
  }

  /** As a process that is gone: its own observer hears nothing, the other end hears a reset when it can be reached. */
  vanish(): void {
    this.#out.discard();
    this.#observer = undefined;
    this.#finish({ kind: "reset", code: 1006, reason: "the process is gone" });
  }

  /** Both directions can go on after a cut. */
  resume(): void {
    this.#out.resume();
    if (this.#peer) this.#peer.#out.resume();
  }

  receive(item: PipeItem): void {
    if (this.#state !== "open") return;
    if ("end" in item) {
      this.#state = "closing";
      this.#out.close();
      this.#end(item.end);
      return;
    }
    if (!this.#isTrusted) this.#untrustedBytes += item.frame.length;
    if (item.frame.length > this.#deps.maxFrameBytes || this.#untrustedBytes > maxUntrustedBytes) {
      this.#out.send({ end: { kind: "closed", code: 1009, reason: "" } });
      this.#state = "closing";
      this.#end({ kind: "error", code: 1009, reason: "too many bytes" });
      return;
    }
    this.#observer?.frame(item.frame);
  }

  #finish(end: ConnectionEnd): void {
    if (this.#state !== "open") return;
    this.#state = "closing";
    this.#out.send({ end });
    this.#deps.scheduler.after(0, () => this.#end(end));
  }

  #end(end: ConnectionEnd): void {
    if (this.#state === "ended") return;
    this.#state = "ended";
    this.#deps.onEnded(this);
    this.#observer?.closed(end);
  }
}
