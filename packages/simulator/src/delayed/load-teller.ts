import type { Cancel, Clock, Scheduler, Startable } from "@espalier/common";
import type { LoadGauge } from "@espalier/replication";
import { createLoadPublisher, type RoutingTarget } from "@espalier/routing";
import { nextSecondMs } from "./delivery-times.ts";
import type { LoadChannel } from "./load-channel.ts";

/** Tells the others what one router has in flight. When it stops, the others hear that it has nothing any more. */
export interface LoadTeller extends Startable {
  changed(target: RoutingTarget): void;
}

export interface LoadTellerOptions {
  readonly router: number;
  readonly channel: LoadChannel;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

const idle: LoadGauge = { inFlight: 0, pendingPrefillTokens: 0, decodeTokens: 0, pendingWorkMs: 0, activeTokens: 0 };

/** Every change, at once. */
export function createDirectTeller(options: LoadTellerOptions): LoadTeller {
  const book = new ToldLoads(options);
  return {
    changed: (target) => book.tell(target),
    async start() {},
    stop: async () => book.end(),
  };
}

/** As routers of a mesh do. */
export function createMeshTeller(options: LoadTellerOptions, targets: readonly RoutingTarget[]): LoadTeller {
  const book = new ToldLoads(options);
  const byKey = new Map(targets.map((target) => [target.key, target]));
  const plane = {
    set(key: string): void {
      const target = byKey.get(key);
      if (target) book.tell(target);
    },
  };
  const publisher = createLoadPublisher(plane, options.scheduler);
  return {
    changed(target) {
      if (!book.hasEnded) publisher.changed(target);
    },
    start: () => publisher.start(),
    async stop() {
      await publisher.stop();
      book.end();
    },
  };
}

/** What has changed, at each whole second. */
export function createGossipTeller(options: LoadTellerOptions): LoadTeller {
  const { clock, scheduler } = options;
  const book = new ToldLoads(options);
  const changed = new Set<RoutingTarget>();
  let cancel: Cancel | undefined;
  const tellAll = (): void => {
    cancel = undefined;
    for (const target of changed) book.tell(target);
    changed.clear();
  };
  return {
    changed(target) {
      if (book.hasEnded) return;
      changed.add(target);
      cancel ??= scheduler.after(nextSecondMs(clock.nowMs()) - clock.nowMs(), tellAll);
    },
    async start() {},
    async stop() {
      cancel?.();
      book.end();
    },
  };
}

/** Nothing. */
export const silentTeller: LoadTeller = {
  changed() {},
  async start() {},
  async stop() {},
};

/** What a router has told of its targets, so that it can take it back. */
class ToldLoads {
  hasEnded = false;
  readonly #options: LoadTellerOptions;
  readonly #busy = new Set<number>();

  constructor(options: LoadTellerOptions) {
    this.#options = options;
  }

  tell({ index, load }: RoutingTarget): void {
    if (this.hasEnded) return;
    const { router, channel } = this.#options;
    const { inFlight, pendingPrefillTokens, decodeTokens, pendingWorkMs, activeTokens } = load;
    if (inFlight === 0) this.#busy.delete(index);
    else this.#busy.add(index);
    const gauge = { inFlight, pendingPrefillTokens, decodeTokens, pendingWorkMs, activeTokens };
    channel.send({ router, target: index, ...gauge });
  }

  end(): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    const { router, channel } = this.#options;
    for (const target of this.#busy) channel.send({ router, target, ...idle });
    this.#busy.clear();
  }
}
