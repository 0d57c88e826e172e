import type { Clock } from "@espalier/core";
import type { BlockChanges } from "@espalier/engine-model";
import { createPrefixIndex, type PrefixIndex } from "@espalier/prefix-index";
import { TimerHeap } from "@espalier/testing";
import { blockMoveOf, type EventSource } from "../fleet/sim-engine.ts";
import { type Arrivals, dueMs } from "./delivery.ts";
import type { OwnPlacement, PendingPlacements } from "./pending-placements.ts";

export interface SharedKnowledgeOptions {
  /** By number; a pool follows the engines. */
  readonly engines: readonly EventSource[];
  readonly arrivals: Arrivals;
  readonly clock: Clock;
}

/** How often the memory of expired entries is reclaimed, and how many parts of the index are visited each time. */
const upkeepMs = 1_000;
const upkeepSteps = 10_000;

/**
 * One index that serves all routers of a region: it has what has reached all of them. Due messages are applied on access, in the order of
 * their arrival times, so no timers are needed.
 */
export class SharedKnowledge {
  readonly index: PrefixIndex;
  readonly #options: SharedKnowledgeOptions;
  /** In transit from engines, and from routers. */
  readonly #updates = new TimerHeap();
  readonly #placements = new TimerHeap();
  readonly #pending: (PendingPlacements | undefined)[] = [];
  readonly #placementListeners: ((target: number, chain: Uint32Array, blockCount: number) => void)[] = [];
  readonly #forgetListeners: ((target: number) => void)[] = [];
  /** By target: when its known epoch began or ended. Older placements are invalid. */
  readonly #epochMs: Float64Array;
  #maintainedMs = 0;

  constructor(options: SharedKnowledgeOptions) {
    const { engines, arrivals } = options;
    this.#options = options;
    this.index = createPrefixIndex({ maxTargets: engines.length });
    this.#epochMs = new Float64Array(engines.length).fill(Number.NEGATIVE_INFINITY);
    const hasEvents = arrivals.times[0]!.factsDueMs !== undefined;
    for (const engine of engines) {
      if (hasEvents) engine.onMessage(({ changes }) => this.#send(engine.number, changes));
      engine.onEpoch(() => this.#send(engine.number, undefined));
    }
  }

  /** Whether all routers know of a placement at once. */
  get isInstant(): boolean {
    return this.#options.arrivals.times.every(({ placementsDueMs }) => placementsDueMs(0) === 0);
  }

  /** Called when the routers learn that a target was restarted, which invalidates its placements. */
  onForget(listener: (target: number) => void): void {
    this.#forgetListeners.push(listener);
  }

  /** @param pending of this router, notified when its placements reach the others */
  attach(router: number, pending: PendingPlacements): void {
    this.#pending[router] = pending;
  }

  /** Sets the listener for placements of other routers, called when they arrive. */
  onPlacement(router: number, listener: (target: number, chain: Uint32Array, blockCount: number) => void): void {
    this.#placementListeners[router] = listener;
  }

  /** Sends a placement to the other routers of this region. */
  place(placement: OwnPlacement): void {
    const atMs = dueMs(this.#options.arrivals, "placementsDueMs", placement.router, placement.atMs);
    this.#placements.add(atMs, () => this.#applyPlacement(placement));
    this.catchUp();
  }

  /** Applies everything that has arrived by now. */
  catchUp(): void {
    const nowMs = this.#options.clock.nowMs();
    for (;;) {
      const first = this.#updates.nextDueMs <= this.#placements.nextDueMs ? this.#updates : this.#placements;
      const apply = first.take(nowMs);
      if (!apply) return;
      apply();
    }
  }

  /** Reclaims memory, at most once a second. */
  maintain(): void {
    const nowMs = this.#options.clock.nowMs();
    if (nowMs - this.#maintainedMs < upkeepMs) return;
    this.#maintainedMs = nowMs;
    this.catchUp();
    this.index.maintain(nowMs, upkeepSteps);
  }

  /** @param changes undefined when the engine started or stopped, which metrics show where there are no events */
  #send(target: number, changes: BlockChanges | undefined): void {
    const { clock, arrivals } = this.#options;
    const atMs = clock.nowMs();
    const { factsDueMs } = arrivals.times[arrivals.engines[target] ?? 0]!;
    this.#updates.add(factsDueMs?.(atMs) ?? atMs, () => this.#applyUpdate(target, atMs, changes));
    this.catchUp();
  }

  #applyUpdate(target: number, atMs: number, changes: BlockChanges | undefined): void {
    if (!changes) {
      this.index.forgetTarget(target);
      this.#epochMs[target] = atMs;
      for (const listener of this.#forgetListeners) listener(target);
      return;
    }
    const { runs, kinds, ends, words } = changes;
    for (let run = 0, from = 0; run < runs; run++) {
      const to = ends[run]!;
      const move = blockMoveOf(kinds[run]!);
      if (move?.isStored) this.index.storeFacts(target, move.tier, words, from, to);
      else if (move) this.index.removeFacts(target, move.tier, words, from, to);
      else this.index.clearFacts(target);
      from = to;
    }
  }

  #applyPlacement(placement: OwnPlacement): void {
    const { router, target, kind, chain, blockCount, atMs, ttlMs } = placement;
    this.#pending[router]?.arrived();
    if (atMs < this.#epochMs[target]!) return;
    if (kind !== "refute") this.#notifyOthers(placement);
    if (kind === "refute") this.index.refute(target, chain, { from: blockCount - 1, blockCount, nowMs: atMs });
    else if (kind === "confirm") this.index.confirm(target, chain, blockCount, { nowMs: atMs, ttlMs });
    else this.index.place(target, chain, blockCount, { nowMs: atMs, ttlMs });
  }

  #notifyOthers({ router, target, chain, blockCount }: OwnPlacement): void {
    for (const [other, listener] of this.#placementListeners.entries()) {
      if (other !== router) listener?.(target, chain, blockCount);
    }
  }
}
