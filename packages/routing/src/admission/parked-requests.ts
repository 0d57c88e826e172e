import type { Cancel, Clock, Scheduler } from "@espalier/core";
import type { AdmissionTarget } from "./admission-request.ts";
import type { AdmissionSettings } from "./settings.ts";
import type { WaitingRequest } from "./waiting-request.ts";

/** How often parked requests are checked again. */
export const recheckEveryMs = 250;
/** Most requests that one check looks at, in order of arrival. */
export const maxRechecked = 64;

interface ParkedRequestsOptions<Target extends AdmissionTarget> {
  /** The queue's bounds, which apply to parked requests separately. */
  readonly settings: Pick<AdmissionSettings, "maxQueued" | "maxQueuedBytes">;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Whether a released request would only be queued. */
  readonly isBusy: () => boolean;
  /** A request is no longer parked. */
  readonly released: (request: WaitingRequest<Target>) => void;
}

/**
 * Parks requests of classes with a max cold wait while they would evict cache blocks that are expected to be reused.
 * Parked requests are not in the queue, so they delay no other request. After the max cold wait a request is released
 * in any case.
 */
export class ParkedRequests<Target extends AdmissionTarget> {
  readonly #options: ParkedRequestsOptions<Target>;
  /** In order of arrival. */
  readonly #parked = new Set<WaitingRequest<Target>>();
  #cancel: Cancel | undefined;
  #sizeBytes = 0;

  constructor(options: ParkedRequestsOptions<Target>) {
    this.#options = options;
  }

  get count(): number {
    return this.#parked.size;
  }

  /**
   * Parks a request that has to wait for memory, unless it has a deadline or the bounds are reached. Reaching the
   * bounds refuses no request.
   *
   * @returns whether it was parked
   */
  park(request: WaitingRequest<Target>): boolean {
    const { settings } = this.#options;
    const { serviceClass, dueMs } = request;
    if (serviceClass.settings.maxColdWaitMs === 0 || dueMs < Number.POSITIVE_INFINITY) return false;
    const sizeBytes = this.#sizeBytes + request.request.sizeBytes;
    if (this.#parked.size >= settings.maxQueued || sizeBytes > settings.maxQueuedBytes || fitsInMemory(request))
      return false;
    request.isWaiting = true;
    this.#parked.add(request);
    this.#sizeBytes = sizeBytes;
    serviceClass.meters.parked(1);
    this.#cancel ??= this.#options.scheduler.every(recheckEveryMs, () => this.#recheck());
    return true;
  }

  /** @returns false when it is not parked */
  remove(request: WaitingRequest<Target>): boolean {
    if (!this.#parked.delete(request)) return false;
    request.isWaiting = false;
    this.#sizeBytes -= request.request.sizeBytes;
    request.serviceClass.meters.parked(-1);
    request.serviceClass.meters.parkedFor(this.#options.clock.nowMs() - request.arrivedMs);
    if (this.#parked.size === 0) {
      this.#cancel?.();
      this.#cancel = undefined;
    }
    return true;
  }

  #recheck(): void {
    const { clock, isBusy, released } = this.#options;
    let checked = 0;
    for (const request of [...this.#parked]) {
      if (!this.#parked.has(request)) continue;
      const isOver = clock.nowMs() - request.arrivedMs >= request.serviceClass.settings.maxColdWaitMs;
      if (!isOver) {
        if (checked >= maxRechecked || isBusy()) return;
        checked += 1;
        if (!fitsInMemory(request)) continue;
      }
      this.remove(request);
      released(request);
    }
  }
}

function fitsInMemory<Target extends AdmissionTarget>({ listener }: WaitingRequest<Target>): boolean {
  return listener.fitsInMemory?.() ?? true;
}
