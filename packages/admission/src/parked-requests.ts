import type { Cancel, Clock, Scheduler } from "@espalier/common";
import type { AdmissionTarget } from "./admission-request.ts";
import type { AdmissionSettings } from "./settings.ts";
import type { WaitingRequest } from "./waiting-request.ts";

/** How often those that are held are asked about again. */
export const askAgainMs = 250;
/** So many of them at most, those first that came first. */
export const maxAsked = 64;

export interface HeldRequestsOptions<Target extends AdmissionTarget> {
  /** Bounds of the queue, which are those of who is held as well, each by itself. */
  readonly settings: Pick<AdmissionSettings, "maxQueued" | "maxQueuedBytes">;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Whether requests that are let go would only wait for their turn. */
  readonly isBusy: () => boolean;
  /** A request is held no longer. */
  readonly released: (request: WaitingRequest<Target>) => void;
}

/**
 * Requests of classes with patience, as long as they would drive out of engines' memory what others are expected to come
 * back for. They are not in line, so they hold nobody up; who has waited as long as its class has patience goes in any case.
 */
export class HeldRequests<Target extends AdmissionTarget> {
  readonly #options: HeldRequestsOptions<Target>;
  /** In the order of arrival. */
  readonly #held = new Set<WaitingRequest<Target>>();
  #cancel: Cancel | undefined;
  #sizeBytes = 0;

  constructor(options: HeldRequestsOptions<Target>) {
    this.#options = options;
  }

  get count(): number {
    return this.#held.size;
  }

  /**
   * Holds a request that has to wait for memory. One with a deadline has not, nor one for which there is no place: nobody is
   * refused for being held.
   *
   * @returns whether it is held
   */
  takes(request: WaitingRequest<Target>): boolean {
    const { settings } = this.#options;
    const { line, dueMs } = request;
    if (line.settings.patienceMs === 0 || dueMs < Number.POSITIVE_INFINITY) return false;
    const sizeBytes = this.#sizeBytes + request.request.sizeBytes;
    if (this.#held.size >= settings.maxQueued || sizeBytes > settings.maxQueuedBytes || mayGo(request)) return false;
    request.isWaiting = true;
    this.#held.add(request);
    this.#sizeBytes = sizeBytes;
    line.meters.held(1);
    this.#cancel ??= this.#options.scheduler.every(askAgainMs, () => this.#ask());
    return true;
  }

  /** @returns false when it is not held */
  remove(request: WaitingRequest<Target>): boolean {
    if (!this.#held.delete(request)) return false;
    request.isWaiting = false;
    this.#sizeBytes -= request.request.sizeBytes;
    request.line.meters.held(-1);
    request.line.meters.waitedForMemory(this.#options.clock.nowMs() - request.arrivedMs);
    if (this.#held.size === 0) {
      this.#cancel?.();
      this.#cancel = undefined;
    }
    return true;
  }

  #ask(): void {
    const { clock, isBusy, released } = this.#options;
    let asked = 0;
    for (const request of [...this.#held]) {
      if (!this.#held.has(request)) continue;
      const isOver = clock.nowMs() - request.arrivedMs >= request.line.settings.patienceMs;
      if (!isOver) {
        if (asked >= maxAsked || isBusy()) return;
        asked += 1;
        if (!mayGo(request)) continue;
      }
      this.remove(request);
      released(request);
    }
  }
}

function mayGo<Target extends AdmissionTarget>({ listener }: WaitingRequest<Target>): boolean {
  return listener.mayGo?.() ?? true;
}
