import {
  type Cancel,
  type Clock,
  chainRoot,
  createBlockHasher,
  createHasherDigests,
  type HttpClient,
  type Logger,
  type Meter,
  type Random,
  type Scheduler,
  type Startable,
  startTogether,
  type TargetIndex,
} from "@espalier/core";
import { type EngineRecord, engineKindOf, type Fleet, type Target } from "@espalier/engines";
import type { PrefixIndex } from "@espalier/prefix-index";
import {
  type BindingStore,
  createCacheMeters,
  createLocalPlacements,
  createPrefixKnowledge,
  createRecentPrompts,
  type KnownPool,
  type PoolReach,
  type PrefixKnowledge,
} from "@espalier/routing";
import type { FeedQuality, PlacementWriter } from "@espalier/shared-tree";
import { createLocalHost, createLocalOutput, type FeedHost } from "@espalier/shared-tree";
import {
  createSharedBinds,
  createWorkSlices,
  createZmqTransport,
  type EventTransport,
} from "@espalier/shared-tree/events";
import { createTokenizerPool } from "@espalier/tokenizer";
import type { CompiledConfig } from "../config/index.ts";
import { EngineFeeds, type PoolTarget, reachOf } from "./engine-feeds.ts";
import { MediaLearner } from "./media/media-learner.ts";
import { createMediaRows } from "./media/media-rows.ts";
import { createMediaSightings } from "./media/media-sightings.ts";
import { PromptReader } from "./prompt-reader.ts";

/** All that the router knows about engines' prefix caches. */
export interface PrefixParts extends Startable {
  readonly knowledge: PrefixKnowledge;
  readonly reader: PromptReader;
  /** Undefined when KV events are switched off. */
  readonly feeds: EngineFeeds | undefined;
  /** Open files of event sockets. */
  readonly openFiles: number;
  /** Confidence in the known contents of a target's cache. */
  feedQualityOf(target: TargetIndex): FeedQuality;
}

/** Prefix knowledge that is shared with other routers. */
export interface PrefixSharing {
  readonly placements: PlacementWriter;
  /** Set when one router reads an engine's events for all; undefined when each router reads them itself. */
  readonly host: FeedHost | undefined;
  /** Undefined for targets whose events this router reads only for itself. */
  feedQualityOf(target: TargetIndex): FeedQuality | undefined;
  /** The target left this router's fleet. */
  forget(target: Target): void;
}

interface PrefixPartsOptions {
  readonly config: Pick<CompiledConfig, "tokenizers" | "tokenize" | "prefix" | "kvEvents">;
  readonly fleet: Fleet;
  /** Empty; created for `maxKnownTargets`. */
  readonly index: PrefixIndex;
  /** Undefined when nothing is shared with other routers. */
  readonly sharing: PrefixSharing | undefined;
  /** What routers tell each other of images, audio and videos. */
  readonly bindings: BindingStore;
  /** The fleet does not use their target indices. None by default. */
  readonly pools?: readonly PoolTarget[];
  /** Most event sockets that are read at once; not bounded by default. */
  readonly maxEventSockets?: () => number;
  /** Whether to listen for engines that connect to the router; if not, their feeds are off. True by default. */
  readonly mayBindEvents?: boolean;
  readonly http: HttpClient;
  /** For lookups on behalf of clients' prompts. */
  readonly lookups: HttpClient;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** How often index sizes are exported and expired entries swept. */
const upkeepMs = 1_000;
/** Steps of index maintenance per run: less than a millisecond of work. */
const upkeepSteps = 10_000;
/** Most milliseconds that feeds take per turn of the event loop. */
const sliceMs = 4;

export function createPrefixParts(options: PrefixPartsOptions): PrefixParts {
  const { config, fleet, index, sharing, clock, scheduler, random, logger, meter } = options;
  const { tokenize, kvEvents, tokenizers } = config;
  const { blockSize, seed, placementTtlMs, placementTokens } = config.prefix;
  const meters = createCacheMeters(meter);
  const recent = createRecentPrompts();
  const reach = createFleetPoolReach(fleet, options.pools ?? []);
  const feedQualityOf = (target: TargetIndex): FeedQuality =>
    sharing?.feedQualityOf(target) ?? feeds?.feedQualityOf(target) ?? "none";
  const knowledge = createPrefixKnowledge({
    clock,
    index,
    recent,
    meters,
    placementTtlMs,
    placementTokens,
    pools: reach,
    placements: sharing?.placements ?? createLocalPlacements(index, clock),
    feedQualityOf,
    onPlaced: (target) => feeds?.attach(target),
  });
  const host = sharing?.host ?? localHost(index, knowledge);
  const slices = createWorkSlices({ clock, scheduler, sliceMs });
  const sockets = createZmqTransport(slices, options.maxEventSockets);
  const digests = createHasherDigests({
    hasher: createBlockHasher(),
    root: (adapter, cacheSalt) => chainRoot({ seed, adapter, cacheSalt, blockSize, unit: "tokens" }),
  });
  const sightings = createMediaSightings(options.bindings, clock);
  const media =
    kvEvents.mode === "off"
      ? undefined
      : new MediaLearner({
          ...{ sightings, index, feedQualityOf, digests, blockSize, clock },
          rows: createMediaRows(options.bindings),
        });
  const feeds =
    kvEvents.mode === "off"
      ? undefined
      : new EngineFeeds({
          ...options,
          recent,
          blockSize,
          slices,
          digests,
          sightings,
          host,
          listen: kvEvents.listen,
          maxReplays: kvEvents.maxReplays,
          transport: options.mayBindEvents === false ? withoutBinds(sockets) : createSharedBinds(sockets, logger),
        });
  const reader = new PromptReader({
    ...{ ...options, http: options.lookups, tokenizers, ...tokenize },
    meters,
    media,
    seed,
    blockSize,
    pool: createTokenizerPool({ threads: tokenize.threads, scheduler, random, logger }),
    ...enginesOf(fleet),
  });
  const upkeep = createUpkeep(scheduler, () => {
    knowledge.renew();
    media?.tick();
    index.maintain(clock.nowMs(), upkeepSteps);
    meters.size(index.factCount, index.placements.placedBlocks, index.byteLength);
  });
  const unsubscribe = forgetWithFleet(options, knowledge);
  const parts = startTogether([reader, upkeep, ...(feeds ? [feeds] : [])]);
  return {
    knowledge,
    reader,
    feeds,
    get openFiles() {
      return sockets.openFiles;
    },
    feedQualityOf,
    start: parts.start,
    async stop() {
      unsubscribe();
      reach.stop();
      await parts.stop();
    },
  };
}

/** What tokenizers need to know about a model's engines. */
function enginesOf(fleet: Fleet) {
  return {
    engineUrl: (model: string) => fleet.pool(model).find(({ usable }) => usable)?.engine.url,
    engineKind(model: string) {
      const [first] = fleet.pool(model);
      return first && engineKindOf(first.engine);
    },
  };
}

/** Writes each target's events into this router's index. */
function localHost(index: PrefixIndex, knowledge: PrefixKnowledge): FeedHost {
  const output = {
    index,
    forget: (target: TargetIndex) => knowledge.forget(target),
    forgetPlacements: (target: TargetIndex) => knowledge.forgetPlacements(target),
  };
  return createLocalHost((target) => createLocalOutput(output, target.index));
}

/** Forgets engines that are gone, restarted or asleep, or whose caches are void. */
function forgetWithFleet({ fleet, sharing }: PrefixPartsOptions, knowledge: PrefixKnowledge): () => void {
  return fleet.onChange((change, engine) => {
    if (change === "gone") {
      for (const target of engine.targets) {
        knowledge.forgetPlacements(target.index);
        if (sharing) sharing.forget(target);
        else knowledge.forget(target.index);
      }
    }
    // The feed drops announced blocks itself; it may already know the new epoch. Sleep releases the cache.
    if (change === "restarted" || change === "emptied" || change === "asleep") {
      for (const { index, exclusion } of engine.targets) {
        if (change !== "asleep" || exclusion === "asleep") knowledge.forgetPlacements(index);
      }
    }
  });
}

const withoutBinds = (sockets: EventTransport): EventTransport => ({
  ...sockets,
  openSubscriber(options) {
    if (options.mode === "bind") throw new Error("engines connect to the router");
    return sockets.openSubscriber(options);
  },
});

function createUpkeep(scheduler: Scheduler, task: () => void): Startable {
  let cancel: Cancel = () => {};
  return {
    async start() {
      cancel = scheduler.every(upkeepMs, task);
    },
    async stop() {
      cancel();
    },
  };
}

/** Which KV pools the engines of a fleet can fetch from, by models and labels. */
export interface FleetPoolReach extends PoolReach {
  /** Stops following the fleet. */
  stop(): void;
}

const none: readonly KnownPool[] = [];

export function createFleetPoolReach(
  fleet: Pick<Fleet, "engines" | "onChange">,
  pools: readonly PoolTarget[],
): FleetPoolReach {
  const byTarget: (readonly KnownPool[] | undefined)[] = [];
  const reaches = pools.map(({ config }) => reachOf(config));
  const look = (engine: EngineRecord): void => {
    const reached = pools.filter((_, at) => reaches[at]!(engine));
    for (const { index } of engine.targets) byTarget[index] = reached;
  };
  for (const engine of fleet.engines) look(engine);
  const unsubscribe = fleet.onChange((change, engine) => {
    if (change === "gone") for (const { index } of engine.targets) byTarget[index] = undefined;
    else if (change === "added" || change === "spec" || change === "models") look(engine);
  });
  return {
    poolsOf: (target) => byTarget[target] ?? none,
    stop: unsubscribe,
  };
}
