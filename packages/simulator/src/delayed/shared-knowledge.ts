import type { Clock } from "@espalier/common";
import type { BlockChanges } from "@espalier/engine-model";
import { createPrefixIndex, type PrefixIndex } from "@espalier/prefix-index";
import { blockMoveOf, type SimEngine } from "../fleet/sim-engine.ts";
import { type DeliveryTimes, DueQueue } from "./delivery.ts";
import type { OwnPlacement, PendingPlacements } from "./pending-placements.ts";

export interface SharedKnowledgeOptions {
  /** By number. */
  readonly engines: readonly SimEngine[];
  readonly times: DeliveryTimes;
  readonly clock: Clock;
}

/** What an engine has told, on its way to the routers. */
interface EngineNews {
  readonly target: number;
  readonly atMs: number;
  /** Undefined when a life of the engine began or ended. */
  readonly changes: BlockChanges | undefined;
}

/** How often memory of what expired is reclaimed, and how many parts of the index are looked at each time. */
const upkeepMs = 1_000;
const upkeepSteps = 10_000;

/**
 * The one index that stands for those of all routers: it holds what has reached everybody. What is due is taken in when
 * somebody looks, in the order in which it came due, and so at no cost in timers.
 */
export class SharedKnowledge {
  readonly index: PrefixIndex;
  readonly #options: SharedKnowledgeOptions;
  readonly #news = new DueQueue<EngineNews>();
  readonly #placements = new DueQueue<OwnPlacement>();
  readonly #pending: (PendingPlacements | undefined)[] = [];
  readonly #believers: ((target: number, chain: Uint32Array, blockCount: number) => void)[] = [];
  readonly #forgetListeners: ((target: number) => void)[] = [];
  /** By target: when the life began or ended that is known of. Guesses from before it do not hold. */
  readonly #lifeMs: Float64Array;
  #maintainedMs = 0;

  constructor(options: SharedKnowledgeOptions) {
    const { engines } = options;
    this.#options = options;
    this.index = createPrefixIndex({ maxTargets: engines.length });
    this.#lifeMs = new Float64Array(engines.length).fill(Number.NEGATIVE_INFINITY);
    if (!options.times.factsDueMs) return;
    for (const engine of engines) {
      engine.onMessage(({ changes }) => this.#send(engine.number, changes));
      engine.onLife(() => this.#send(engine.number, undefined));
    }
  }

  /** Told when a target runs anew as far as the routers know: nothing that was guessed of it before holds. */
  onForget(listener: (target: number) => void): void {
    this.#forgetListeners.push(listener);
  }

  /** @param pending of this router, told when what it has guessed has reached the others */
  attach(router: number, pending: PendingPlacements): void {
    this.#pending[router] = pending;
  }

  /** Sets who is told of what other routers than this one have guessed, when it arrives. */
  onBelieved(router: number, listener: (target: number, chain: Uint32Array, blockCount: number) => void): void {
    this.#believers[router] = listener;
  }

  /** Sends a guess to the other routers. */
  place(placement: OwnPlacement): void {
    this.#placements.push(this.#options.times.placementsDueMs(placement.atMs), placement);
    this.catchUp();
  }

  /** Takes in everything that has arrived by now. */
  catchUp(): void {
    const nowMs = this.#options.clock.nowMs();
    for (;;) {
      const newsMs = this.#news.nextDueMs;
      const placementMs = this.#placements.nextDueMs;
      if (newsMs > nowMs && placementMs > nowMs) return;
      if (newsMs <= placementMs) this.#hear(this.#news.take());
      else this.#believe(this.#placements.take());
    }
  }

  /** Reclaims memory, not more often than once a second whoever asks. */
  maintain(): void {
    const nowMs = this.#options.clock.nowMs();
    if (nowMs - this.#maintainedMs < upkeepMs) return;
    this.#maintainedMs = nowMs;
    this.catchUp();
    this.index.maintain(nowMs, upkeepSteps);
  }

  #send(target: number, changes: BlockChanges | undefined): void {
    const { clock, times } = this.#options;
    const atMs = clock.nowMs();
    this.#news.push(times.factsDueMs!(atMs), { target, atMs, changes });
    this.catchUp();
  }

  #hear({ target, atMs, changes }: EngineNews): void {
    if (!changes) {
      this.index.forgetTarget(target);
      this.#lifeMs[target] = atMs;
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

  #believe(placement: OwnPlacement): void {
    const { router, target, kind, chain, blockCount, atMs, ttlMs } = placement;
    this.#pending[router]?.arrived();
    if (atMs < this.#lifeMs[target]!) return;
    if (kind !== "refute") this.#tellOthers(placement);
    if (kind === "refute") this.index.refute(target, chain, { from: blockCount - 1, blockCount, nowMs: atMs });
    else if (kind === "confirm") this.index.confirm(target, chain, blockCount, { nowMs: atMs, ttlMs });
    else this.index.place(target, chain, blockCount, { nowMs: atMs, ttlMs });
  }

  #tellOthers({ router, target, chain, blockCount }: OwnPlacement): void {
    for (const [other, listener] of this.#believers.entries()) {
      if (other !== router) listener?.(target, chain, blockCount);
    }
  }
}
