import type { Cancel, Clock, Scheduler, Startable } from "@espalier/core";
import { createLoadPublisher, gaugeOf, type LoadPublisher, type RoutingTarget } from "@espalier/routing";
import { idleGauge, isIdle, type LoadGauge, LoadSums, type SharedLoad } from "@espalier/shared-tree";
import type { Sharing } from "../run.ts";
import { nextSecondMs } from "./delivery.ts";

/** One router's load on one target, as it broadcasts it. */
export interface LoadReport {
  readonly router: number;
  readonly target: number;
  readonly gauge: LoadGauge;
}

interface Reported {
  gauge: LoadGauge;
  /** As `LoadSums` has those who add to it. */
  readonly by: { heardMs: number; readonly linkDelayMs: number };
}

/**
 * For every router of a region the sum of the load that the others have sent. A report changes the sums of all routers but
 * its own.
 */
export class LoadTable {
  readonly #clock: Clock;
  readonly #linkDelayMs: (router: number) => number;
  /** By router and target: the last report. */
  readonly #reported: readonly Map<number, Reported>[];
  /** By router: the sum over the others. */
  readonly #sums: readonly LoadSums[];

  /** @param linkDelayMs one way from a router to those that read this table, as they have measured it */
  constructor(
    { routers, targets }: { readonly routers: number; readonly targets: number },
    clock: Clock,
    linkDelayMs: (router: number) => number,
  ) {
    this.#clock = clock;
    this.#linkDelayMs = linkDelayMs;
    this.#reported = Array.from({ length: routers }, () => new Map());
    const delaysMs = this.#reported.map((_, router) => linkDelayMs(router));
    const sumMs = delaysMs.reduce((sum, delayMs) => sum + delayMs, 0);
    this.#sums = delaysMs.map((delayMs) => {
      const sums = new LoadSums(targets, () => clock.nowMs());
      sums.originCount = routers - 1;
      sums.linkDelayMs = (sumMs - delayMs) / Math.max(1, routers - 1);
      return sums;
    });
  }

  /** A report has reached all other routers that read this table. */
  receive({ router, target, gauge }: LoadReport): void {
    const reported = this.#reported[router]!;
    const last = reported.get(target) ?? {
      gauge: idleGauge,
      by: { heardMs: 0, linkDelayMs: this.#linkDelayMs(router) },
    };
    const was = last.gauge;
    last.by.heardMs = this.#clock.nowMs();
    last.gauge = gauge;
    reported.set(target, last);
    const [wasIdle, nowIdle] = [isIdle(was), isIdle(gauge)];
    if (wasIdle && nowIdle) return;
    for (let reader = 0; reader < this.#sums.length; reader++) {
      if (reader === router) continue;
      const sums = this.#sums[reader]!;
      if (wasIdle) sums.add(target, gauge, last.by);
      else if (nowIdle) sums.remove(target, was, last.by);
      else sums.replace(target, was, gauge, last.by);
    }
  }

  /** The load of the other routers, as one router sees it. */
  seenBy(router: number): SharedLoad {
    return this.#sums[router]!;
  }
}

/** Broadcasts the load of one router. On stop it broadcasts that nothing is in flight any more. */
export interface LoadBroadcaster extends Startable {
  changed(target: RoutingTarget): void;
}

interface LoadBroadcasterOptions {
  /** The targets of the router. */
  readonly targets: readonly RoutingTarget[];
  /** Sends what the router has at a target, by number, to the others. */
  readonly send: (target: number, gauge: LoadGauge) => void;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** Broadcasts as routers of a mesh do, at each whole second for `gossip-1s`, or every change at once for `oracle`. */
export function createLoadBroadcaster(sharing: Sharing, options: LoadBroadcasterOptions): LoadBroadcaster {
  const { targets, send, scheduler } = options;
  const numbers = new Map(targets.map(({ key, index }) => [key, index]));
  /** What was broadcast, so that it can be withdrawn. */
  const busy = new Set<number>();
  let hasEnded = false;
  const plane = {
    set(key: string, gauge: LoadGauge): void {
      const target = numbers.get(key);
      if (target === undefined || hasEnded) return;
      if (isIdle(gauge)) busy.delete(target);
      else busy.add(target);
      send(target, gauge);
    },
  };
  const publisher =
    sharing === "mesh" ? createLoadPublisher(plane, scheduler) : createSimplePublisher(plane, sharing, options);
  return {
    changed(target) {
      if (!hasEnded) publisher.changed(target);
    },
    start: () => publisher.start(),
    async stop() {
      if (hasEnded) return;
      await publisher.stop();
      hasEnded = true;
      for (const target of busy) send(target, idleGauge);
    },
  };
}

/** Publishes every change, at once or with the others of its second. */
function createSimplePublisher(
  plane: Parameters<typeof createLoadPublisher>[0],
  sharing: Sharing,
  { clock, scheduler }: LoadBroadcasterOptions,
): LoadPublisher {
  const changed = new Set<RoutingTarget>();
  let cancel: Cancel | undefined;
  const publish = (): void => {
    cancel = undefined;
    for (const { key, load } of changed) plane.set(key, gaugeOf(load));
    changed.clear();
  };
  return {
    changed(target) {
      changed.add(target);
      if (sharing === "oracle") publish();
      else cancel ??= scheduler.after(nextSecondMs(clock.nowMs()) - clock.nowMs(), publish);
    },
    async start() {},
    stop: async () => cancel?.(),
  };
}

/** Broadcasts nothing. */
export const silentBroadcaster: LoadBroadcaster = {
  changed() {},
  async start() {},
  async stop() {},
};
