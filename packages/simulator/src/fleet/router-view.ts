import {
  asRouterId,
  asTargetIndex,
  type Clock,
  type Logger,
  type Meter,
  type Random,
  type Scheduler,
  type Startable,
  silentLogger,
  silentMeter,
  type TargetIndex,
  type Transport,
} from "@espalier/core";
import { createMesh, type ReplicaPorts } from "@espalier/mesh";
import { createPrefixIndex, type PrefixIndex } from "@espalier/prefix-index";
import type { FleetUsage } from "@espalier/routing";
import {
  createCacheMeters,
  createLoadPublisher,
  createPrefixKnowledge,
  createRecentPrompts,
  createSessionBindings,
  type KnowledgeOptions,
  type LoadPublisher,
  MemoryWatch,
  type PrefixKnowledge,
  type RoutingTarget,
  type SessionBindings,
} from "@espalier/routing";
import {
  createSharedTier,
  createTargetSlots,
  type EventReading,
  type FeedOutput,
  type HostedFeed,
  type NoteChannel,
  type Replica,
  type SharedLoad,
  type SharedTier,
} from "@espalier/shared-tree";
import { blockTokens } from "../clients/workload.ts";
import type { EventSource, SimEngine } from "./sim-engine.ts";
import type { SimPool } from "./sim-pool.ts";

/** One router's view of caches and load, and how it shares its own decisions. */
export interface RouterView extends Startable {
  readonly knowledge: PrefixKnowledge;
  /** What other routers have in flight, by the index of a target. */
  readonly sharedLoad: SharedLoad;
  readonly sessions: SessionBindings;
  /** Tenant usage at other routers. */
  readonly usage: FleetUsage;
  /** Starts watching what engines have in memory. Must be called at most once. */
  watchMemory(): MemoryWatch;
  /** Carries shared estimates; undefined when routers share none. */
  readonly notes: NoteChannel | undefined;
  /** Whether this router owns a target; see `SharedTier`. */
  isOwn(target: TargetIndex): boolean;
  /** Called when the router's own load on a target has changed. */
  loadChanged(target: RoutingTarget): void;
  /** Called before the router ends: others take over its targets. */
  setDraining(): void;
  /** Whether it has received everything that the running engines have published. */
  readonly isSettled: boolean;
  /** What it is waiting for before it is ready. */
  readonly waitingFor: readonly string[];
}

/** Bounds of placements that no events confirm; the defaults of `prefix.placement-ttl` and `prefix.placement-tokens`. */
const knowledgeDefaults = { placementTtlMs: 10 * 60_000, placementTokens: 524_288 } as const;

/** What a router knows of caches. */
export function createKnowledge({
  meter,
  ...own
}: Pick<KnowledgeOptions, "clock" | "index" | "placements" | "feedQualityOf" | "pools"> & {
  readonly meter: Meter;
}): PrefixKnowledge {
  const meters = createCacheMeters(meter);
  return createPrefixKnowledge({ ...knowledgeDefaults, ...own, recent: createRecentPrompts(), meters, onPlaced() {} });
}

interface RealViewOptions {
  /** The same after every restart of the router. */
  readonly router: string;
  readonly engines: readonly SimEngine[];
  /** A pool that all engines use; none when absent. */
  readonly pool?: SimPool | undefined;
  /** Regions of this router and of an engine; undefined when all is equally near. */
  readonly region?: string | undefined;
  readonly regionOf?: (engine: number) => string | undefined;
  readonly transport: Transport;
  /** Seed addresses. */
  readonly seeds: readonly string[];
  /** Creates this router's subscription to an engine or the pool. */
  readonly readEngine: (engine: EventSource, output: FeedOutput) => EventReading;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger?: Logger;
  readonly meter?: Meter;
  /** Wraps the carrier of the replica's state. */
  readonly wrapPorts?: (ports: ReplicaPorts) => ReplicaPorts;
}

/** Runs the same upkeep as the server. */
const upkeepMs = 1_000;

const upkeepSteps = 10_000;

/** Settings that all routers of the fleet share. */
const cluster = { cluster: "simulated", fleetSeed: "simulated", blockSizeTokens: blockTokens } as const;

/** A view built from the code of real routers: journals, links, membership, ownership, the fold. */
export class RealView implements RouterView {
  readonly index: PrefixIndex;
  readonly tier: SharedTier;
  readonly knowledge: PrefixKnowledge;
  readonly sharedLoad: SharedLoad;
  readonly sessions: SessionBindings;
  readonly usage: FleetUsage;
  readonly notes: NoteChannel;
  readonly #options: RealViewOptions;
  readonly #publisher: LoadPublisher;
  /** The engines, and the pool. */
  readonly #sources: readonly EventSource[];
  #feeds: readonly HostedFeed[] = [];
  #cancelUpkeep = (): void => {};
  #isStopped = false;

  constructor(options: RealViewOptions) {
    const { engines, transport, seeds, clock, scheduler, random, wrapPorts } = options;
    const { logger = silentLogger, meter = silentMeter, region } = options;
    this.#options = options;
    this.#sources = options.pool ? [...engines, options.pool] : engines;
    this.index = createPrefixIndex({ maxTargets: this.#sources.length });
    const slots = createTargetSlots(this.#sources.length);
    for (const { key } of this.#sources) slots.slotOf(key);
    const ports = { clock, scheduler, logger, meter };
    this.tier = createSharedTier({
      ...ports,
      ...{
        router: asRouterId(options.router),
        region,
        index: this.index,
        slots,
        placementTtlMs: knowledgeDefaults.placementTtlMs,
      },
      createBackend: (replica: Replica) => {
        const carried = wrapPorts?.(replica.ports) ?? replica.ports;
        return createMesh({
          ...cluster,
          ...ports,
          random,
          region,
          replica: carried,
          transport,
          seeds,
          security: { kind: "insecure" },
        });
      },
    });
    this.#publisher = createLoadPublisher(this.tier.replica.load, scheduler);
    this.sharedLoad = this.tier.load;
    this.sessions = createSessionBindings(this.tier.replica.bindings);
    this.notes = this.tier.replica.notes;
    this.usage = this.tier.replica.usage.of(cluster.cluster);
    this.knowledge = createKnowledge({
      ...{ clock, meter, index: this.index, placements: this.tier.placements },
      feedQualityOf: (target) => this.tier.feedQualityOf(target),
      ...(options.pool && { pools: options.pool.reach }),
    });
    this.tier.onNewEpoch((slot) => this.knowledge.forgetPlacements(asTargetIndex(slot)));
  }

  get waitingFor(): readonly string[] {
    return this.tier.backend.waitingFor;
  }

  get isSettled(): boolean {
    return this.#sources.every(({ isUp, number }) => {
      return !isUp || this.tier.feedQualityOf(asTargetIndex(number)) === "complete";
    });
  }

  watchMemory(): MemoryWatch {
    const { index, tier } = this;
    const watch = new MemoryWatch({
      clock: this.#options.clock,
      index,
      feedQualityOf: (slot) => tier.feedQualityOf(slot),
    });
    index.setPlacedListener((target, words, blockCount, { by = 0 }) => watch.sent(target, words, blockCount, by === 0));
    return watch;
  }

  isOwn(target: TargetIndex): boolean {
    return this.tier.isOwn(target);
  }

  setDraining(): void {
    this.tier.setDraining();
  }

  loadChanged(target: RoutingTarget): void {
    this.#publisher.changed(target);
  }

  async start(): Promise<void> {
    const { readEngine, scheduler, clock, regionOf } = this.#options;
    this.#cancelUpkeep = scheduler.every(upkeepMs, () => {
      this.knowledge.renew();
      this.index.maintain(clock.nowMs(), upkeepSteps);
    });
    await this.tier.start();
    await this.#publisher.start();
    // The process may have ended in the meantime.
    if (this.#isStopped) return;
    this.#feeds = this.#sources.map((engine) =>
      this.tier.host.open(
        { index: asTargetIndex(engine.number), key: engine.key, region: regionOf?.(engine.number) },
        (output) => readEngine(engine, output),
      ),
    );
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancelUpkeep();
    for (const feed of this.#feeds) await feed.stop();
    await this.#publisher.stop();
    await this.tier.stop();
  }
}
