import type { Clock, Scheduler } from "@espalier/common";
import type { SimRequest } from "../clients/workload.ts";
import { createNodeTime, type NodeTime } from "../time/node-time.ts";
import type { FrontOutcome } from "./sim-front.ts";
import type { SimRouter } from "./sim-router.ts";

type Ended = (outcome: FrontOutcome) => void;

/** The place of one router: its process comes and goes, its number and its address stay. */
export class RouterSeat {
  readonly number: number;
  readonly id: string;
  readonly address: string;
  /** Requests that wait in the socket of a process that is stopped. */
  readonly #waiting = new Set<Ended>();
  /** Of the process that runs, or ran last. */
  time: NodeTime;
  router: SimRouter | undefined;
  lives = 0;
  /** It says goodbye: what runs is answered, and nothing new is taken. */
  isLeaving = false;

  constructor(number: number, world: { readonly clock: Clock; readonly scheduler: Scheduler }) {
    this.number = number;
    this.id = `router-${number}`;
    this.address = `127.${1 + (number >> 16)}.${(number >> 8) & 255}.${number & 255}:7000`;
    this.time = createNodeTime(world);
  }

  /** Whether a client that resolves the tier's name may be given this router. */
  get isServing(): boolean {
    return this.router !== undefined && !this.isLeaving && this.router.view.waitingFor.length === 0;
  }

  /** A process that nothing runs in yet. */
  begin(): void {
    this.time = this.time.next();
    this.lives++;
    this.isLeaving = false;
  }

  handle(request: SimRequest, ended: Ended): void {
    if (!this.time.isPaused) {
      this.router?.handle(request, ended);
      return;
    }
    this.#waiting.add(ended);
    this.time.scheduler.after(0, () => {
      if (this.#waiting.delete(ended)) this.router?.handle(request, ended);
    });
  }

  /** The process is gone. */
  end(nowMs: number): void {
    const { router } = this;
    this.router = undefined;
    router?.die();
    for (const ended of this.#waiting) ended(refused(nowMs, "the router went away"));
    this.#waiting.clear();
    this.time.kill();
    void router?.stop();
  }
}

/** A request that nobody answered. */
export function refused(endMs: number, error: string): FrontOutcome {
  return {
    ...{ firstTokenMs: Number.NaN, endMs, cachedTokens: Number.NaN, error },
    ...{ engine: -1, predictedTokens: 0, isSpill: false },
  };
}
