import type { Cancel, Clock, Scheduler, Startable } from "@espalier/core";
import { createLoadPublisher, gaugeOf, type RoutingTarget } from "@espalier/routing";
import {
  type GaugeColumns,
  idleGauge,
  type LoadGauge,
  mapGauge,
  replaceInSums,
  type SharedLoad,
} from "@espalier/shared-tree";
import { ArrivalQueue, type Arrivals, nextSecondMs } from "./delivery.ts";

/** One router's load on one target, as it broadcasts it. */
interface LoadReport extends LoadGauge {
  readonly router: number;
  readonly target: number;
}

interface LoadColumns extends GaugeColumns {
  readonly sentWorkMs: Float64Array;
  readonly computedMs: Float64Array;
  readonly pendingSinceMs: Float64Array;
}

function loadColumns(targets: number): LoadColumns {
  const column = (): Float64Array => new Float64Array(targets);
  return {
    ...mapGauge(idleGauge, column),
    sentWorkMs: column(),
    computedMs: column().fill(Number.NEGATIVE_INFINITY),
    pendingSinceMs: column().fill(Number.POSITIVE_INFINITY),
  };
}

/**
 * For every router of a region the sum of the load that the others have sent. A report changes the sums of all routers but
 * its own.
 * Loads are whole numbers below 2^53, so additions and subtractions cancel exactly.
 */
export class LoadTable {
  readonly #clock: Clock;
  readonly #sinceMs: number;
  readonly #linkDelayMs: (router: number) => number;
  /** By router: its last reports, and when they arrived at the others. */
  readonly #reported: readonly LoadColumns[];
  readonly #receivedMs: readonly Float64Array[];
  /** By router: the sum over the others. */
  readonly #others: readonly LoadColumns[];

  /** @param linkDelayMs one way from a router to those that read this table, as they have measured it */
  constructor(
    size: { readonly routers: number; readonly targets: number },
    clock: Clock,
    linkDelayMs: (router: number) => number,
  ) {
    const { routers, targets } = size;
    this.#linkDelayMs = linkDelayMs;
    this.#clock = clock;
    this.#sinceMs = clock.nowMs();
    this.#reported = Array.from({ length: routers }, () => loadColumns(targets));
    this.#receivedMs = Array.from({ length: routers }, () => new Float64Array(targets));
    this.#others = Array.from({ length: routers }, () => loadColumns(targets));
  }

  /** A report has reached all other routers that read this table. */
  receive(report: LoadReport): void {
    const { router, target } = report;
    const reported = this.#reported[router]!;
    const was = mapGauge(reported, (column) => column[target]!);
    const work = report.pendingWorkMs - was.pendingWorkMs;
    replaceInSums(reported, target, was, report);
    const nowMs = this.#clock.nowMs();
    this.#receivedMs[router]![target] = nowMs;
    for (let other = 0; other < this.#others.length; other++) {
      if (other === router) continue;
      const sums = this.#others[other]!;
      replaceInSums(sums, target, was, report);
      if (work > 0) sums.sentWorkMs[target]! += work;
      const atMs = nowMs - this.#linkDelayMs(router);
      if (work < 0) sums.computedMs[target] = atMs;
      if (sums.pendingWorkMs[target] === 0) sums.pendingSinceMs[target] = Number.POSITIVE_INFINITY;
      else if (sums.pendingSinceMs[target] === Number.POSITIVE_INFINITY) sums.pendingSinceMs[target] = atMs;
    }
  }

  /** The load of the other routers, as one router sees it. */
  seenBy(router: number): SharedLoad {
    const originCount = this.#reported.length - 1;
    const ageMs = (target: number): number => this.#ageMs(router, target);
    let delaysMs = 0;
    for (let other = 0; other <= originCount; other++) if (other !== router) delaysMs += this.#linkDelayMs(other);
    const linkDelayMs = delaysMs / Math.max(1, originCount);
    return { ...this.#others[router]!, sinceMs: this.#sinceMs, originCount, linkDelayMs, ageMs };
  }

  #ageMs(router: number, target: number): number {
    let oldestMs = Number.POSITIVE_INFINITY;
    for (let other = 0; other < this.#reported.length; other++) {
      if (other === router || this.#reported[other]!.inFlight[target] === 0) continue;
      oldestMs = Math.min(oldestMs, this.#receivedMs[other]![target]!);
    }
    return oldestMs === Number.POSITIVE_INFINITY ? 0 : this.#clock.nowMs() - oldestMs;
  }
}

/** Delivers load reports to the table when they are due; reports due at the same moment arrive together. */
export class LoadChannel {
  readonly #table: LoadTable;
  readonly #arrivals: Arrivals;
  readonly #clock: Clock;
  readonly #scheduler: Scheduler;
  readonly #queue: ArrivalQueue<LoadReport>;
  #armedMs = Number.POSITIVE_INFINITY;
  #cancel: Cancel = () => {};

  constructor(
    table: LoadTable,
    options: { readonly arrivals: Arrivals; readonly clock: Clock; readonly scheduler: Scheduler },
  ) {
    this.#table = table;
    this.#arrivals = options.arrivals;
    this.#queue = new ArrivalQueue(options.arrivals);
    this.#clock = options.clock;
    this.#scheduler = options.scheduler;
  }

  send(report: LoadReport): void {
    const nowMs = this.#clock.nowMs();
    const { times, routers } = this.#arrivals;
    const region = routers[report.router] ?? 0;
    const dueMs = times[region]!.loadDueMs(nowMs);
    if (dueMs <= nowMs) {
      this.#table.receive(report);
      return;
    }
    this.#queue.push(region, dueMs, report);
    this.#arm();
  }

  #arm(): void {
    const dueMs = this.#queue.nextDueMs;
    if (dueMs >= this.#armedMs) return;
    this.#armedMs = dueMs;
    this.#cancel();
    this.#cancel = this.#scheduler.after(dueMs - this.#clock.nowMs(), () => {
      this.#armedMs = Number.POSITIVE_INFINITY;
      const nowMs = this.#clock.nowMs();
      while (this.#queue.nextDueMs <= nowMs) this.#table.receive(this.#queue.take());
      this.#arm();
    });
  }
}

/** Broadcasts the load of one router. On stop it broadcasts that nothing is in flight any more. */
export interface LoadBroadcaster extends Startable {
  changed(target: RoutingTarget): void;
}

export interface LoadBroadcasterOptions {
  readonly router: number;
  /** The channels to the routers of each region. */
  readonly channels: readonly Pick<LoadChannel, "send">[];
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** Broadcasts every change at once. */
export function createDirectBroadcaster(options: LoadBroadcasterOptions): LoadBroadcaster {
  const announced = new AnnouncedLoads(options);
  return {
    changed: (target) => announced.announce(target),
    async start() {},
    stop: async () => announced.end(),
  };
}

/** Broadcasts as routers of a mesh do. */
export function createMeshBroadcaster(
  options: LoadBroadcasterOptions,
  targets: readonly RoutingTarget[],
): LoadBroadcaster {
  const announced = new AnnouncedLoads(options);
  const byKey = new Map(targets.map((target) => [target.key, target]));
  const plane = {
    set(key: string): void {
      const target = byKey.get(key);
      if (target) announced.announce(target);
    },
  };
  const publisher = createLoadPublisher(plane, options.scheduler);
  return {
    changed(target) {
      if (!announced.hasEnded) publisher.changed(target);
    },
    start: () => publisher.start(),
    async stop() {
      await publisher.stop();
      announced.end();
    },
  };
}

/** Broadcasts changes at each whole second. */
export function createGossipBroadcaster(options: LoadBroadcasterOptions): LoadBroadcaster {
  const { clock, scheduler } = options;
  const announced = new AnnouncedLoads(options);
  const changed = new Set<RoutingTarget>();
  let cancel: Cancel | undefined;
  const announceAll = (): void => {
    cancel = undefined;
    for (const target of changed) announced.announce(target);
    changed.clear();
  };
  return {
    changed(target) {
      if (announced.hasEnded) return;
      changed.add(target);
      cancel ??= scheduler.after(nextSecondMs(clock.nowMs()) - clock.nowMs(), announceAll);
    },
    async start() {},
    async stop() {
      cancel?.();
      announced.end();
    },
  };
}

/** Broadcasts nothing. */
export const silentBroadcaster: LoadBroadcaster = {
  changed() {},
  async start() {},
  async stop() {},
};

/** The load that a router has broadcast, so that it can be withdrawn. */
class AnnouncedLoads {
  hasEnded = false;
  readonly #options: LoadBroadcasterOptions;
  readonly #busy = new Set<number>();

  constructor(options: LoadBroadcasterOptions) {
    this.#options = options;
  }

  announce({ index, load }: RoutingTarget): void {
    if (this.hasEnded) return;
    const { router } = this.#options;
    if (load.inFlight === 0 && load.lendingTokens === 0) this.#busy.delete(index);
    else this.#busy.add(index);
    this.#send({ router, target: index, ...gaugeOf(load) });
  }

  end(): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    const { router } = this.#options;
    for (const target of this.#busy) this.#send({ router, target, ...idleGauge });
    this.#busy.clear();
  }

  #send(report: LoadReport): void {
    for (const channel of this.#options.channels) channel.send(report);
  }
}
