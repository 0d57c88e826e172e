import type { Scheduler } from "@espalier/common";
import { MemoryPipe, type PipeDeps, type PipeItem } from "./memory-pipe.ts";
import type { Connection, ConnectionEnd, ConnectionObserver } from "./transport.ts";
import { maxUntrustedBytes } from "./transport-limits.ts";

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
