import type { Cancel, Clock, Scheduler, Startable } from "@espalier/common";
import type { LoadGauge, SharedLoad } from "@espalier/replication";
import { createLoadPublisher, type RoutingTarget } from "@espalier/routing";
import { type DeliveryTimes, DueQueue, nextSecondMs } from "./delivery.ts";

/** One router's load of one target, as it tells it. */
interface LoadReport extends LoadGauge {
  readonly router: number;
  readonly target: number;
}

interface LoadColumns {
  readonly inFlight: Float64Array;
  readonly pendingPrefillTokens: Float64Array;
  readonly decodeTokens: Float64Array;
  readonly pendingWorkMs: Float64Array;
  readonly activeTokens: Float64Array;
  readonly sentWorkMs: Float64Array;
  readonly computedMs: Float64Array;
  readonly pendingSinceMs: Float64Array;
}

function loadColumns(targets: number): LoadColumns {
  const column = (): Float64Array => new Float64Array(targets);
  return {
    inFlight: column(),
    pendingPrefillTokens: column(),
    decodeTokens: column(),
    pendingWorkMs: column(),
    activeTokens: column(),
    sentWorkMs: column(),
    computedMs: column().fill(Number.NEGATIVE_INFINITY),
    pendingSinceMs: column().fill(Number.POSITIVE_INFINITY),
  };
}

/**
 * What every router knows of the load that the others have sent: sums that change by what a report changes, for all
 * routers but the one it is of. Loads are whole numbers below 2^53, so that what was added and taken out leaves zero.
 */
export class LoadBoard {
  readonly #clock: Clock;
  readonly #sinceMs: number;
  /** By router: what the others were told of it, and when they last heard of each target. */
  readonly #told: readonly LoadColumns[];
  readonly #heardMs: readonly Float64Array[];
  /** By router: what the others have sent. */
  readonly #others: readonly LoadColumns[];

  constructor(size: { readonly routers: number; readonly targets: number }, clock: Clock) {
    const { routers, targets } = size;
    this.#clock = clock;
    this.#sinceMs = clock.nowMs();
    this.#told = Array.from({ length: routers }, () => loadColumns(targets));
    this.#heardMs = Array.from({ length: routers }, () => new Float64Array(targets));
    this.#others = Array.from({ length: routers }, () => loadColumns(targets));
  }

  /** A report has reached all other routers. */
  heard(report: LoadReport): void {
    const { router, target } = report;
    const told = this.#told[router]!;
    const inFlight = report.inFlight - told.inFlight[target]!;
    const pending = report.pendingPrefillTokens - told.pendingPrefillTokens[target]!;
    const decode = report.decodeTokens - told.decodeTokens[target]!;
    const work = report.pendingWorkMs - told.pendingWorkMs[target]!;
    const active = report.activeTokens - told.activeTokens[target]!;
    told.inFlight[target]! += inFlight;
    told.pendingPrefillTokens[target]! += pending;
    told.decodeTokens[target]! += decode;
    told.pendingWorkMs[target]! += work;
    told.activeTokens[target]! += active;
    const nowMs = this.#clock.nowMs();
    this.#heardMs[router]![target] = nowMs;
    for (let other = 0; other < this.#others.length; other++) {
      if (other === router) continue;
      const sums = this.#others[other]!;
      sums.inFlight[target]! += inFlight;
      sums.pendingPrefillTokens[target]! += pending;
      sums.decodeTokens[target]! += decode;
      sums.pendingWorkMs[target]! += work;
      sums.activeTokens[target]! += active;
      if (work > 0) sums.sentWorkMs[target]! += work;
      if (work < 0) sums.computedMs[target] = nowMs;
      if (sums.pendingWorkMs[target] === 0) sums.pendingSinceMs[target] = Number.POSITIVE_INFINITY;
      else if (sums.pendingSinceMs[target] === Number.POSITIVE_INFINITY) sums.pendingSinceMs[target] = nowMs;
    }
  }

  /** What a router knows that the others have sent. */
  seenBy(router: number): SharedLoad {
    const originCount = this.#told.length - 1;
    const ageMs = (target: number): number => this.#ageMs(router, target);
    return { ...this.#others[router]!, sinceMs: this.#sinceMs, originCount, ageMs };
  }

  #ageMs(router: number, target: number): number {
    let oldestMs = Number.POSITIVE_INFINITY;
    for (let other = 0; other < this.#told.length; other++) {
      if (other === router || this.#told[other]!.inFlight[target] === 0) continue;
      oldestMs = Math.min(oldestMs, this.#heardMs[other]![target]!);
    }
    return oldestMs === Number.POSITIVE_INFINITY ? 0 : this.#clock.nowMs() - oldestMs;
  }
}

/** What a router knows that nobody tells of load. */
export function createUnsharedLoad(): SharedLoad {
  return { ...loadColumns(0), sinceMs: 0, originCount: 0, ageMs: () => 0 };
}

/** Brings reports of load to the board when they are due, all that are due at a moment together. */
export class LoadChannel {
  readonly #board: LoadBoard;
  readonly #loadDueMs: DeliveryTimes["loadDueMs"];
  readonly #clock: Clock;
  readonly #scheduler: Scheduler;
  readonly #queue = new DueQueue<LoadReport>();
  #isArmed = false;

  constructor(
    board: LoadBoard,
    options: { readonly times: DeliveryTimes; readonly clock: Clock; readonly scheduler: Scheduler },
  ) {
    this.#board = board;
    this.#loadDueMs = options.times.loadDueMs;
    this.#clock = options.clock;
    this.#scheduler = options.scheduler;
  }

  send(report: LoadReport): void {
    const nowMs = this.#clock.nowMs();
    const dueMs = this.#loadDueMs(nowMs);
    if (dueMs <= nowMs) {
      this.#board.heard(report);
      return;
    }
    this.#queue.push(dueMs, report);
    this.#arm();
  }

  #arm(): void {
    if (this.#isArmed || this.#queue.size === 0) return;
    this.#isArmed = true;
    this.#scheduler.after(this.#queue.nextDueMs - this.#clock.nowMs(), () => {
      this.#isArmed = false;
      const nowMs = this.#clock.nowMs();
      while (this.#queue.nextDueMs <= nowMs) this.#board.heard(this.#queue.take());
      this.#arm();
    });
  }
}

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
