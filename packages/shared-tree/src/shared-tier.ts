import {
  asTargetIndex,
  type Clock,
  type Logger,
  type Meter,
  type RouterId,
  type Scheduler,
  type Startable,
  startTogether,
  type TargetIndex,
} from "@espalier/core";
import type { Backend } from "@espalier/mesh";
import { type PrefixIndex, type Tier, type TierName, tierNames } from "@espalier/prefix-index";
import { epochId } from "./facts/engine-epoch.ts";
import type { TargetSlots } from "./facts/target-slots.ts";
import type { FeedQuality } from "./feeds/feed-claim.ts";
import { joinedBackend, Ownership } from "./feeds/ownership.ts";
import { createReachability, createSharedHost, type SharedHost } from "./feeds/shared-host.ts";
import type { SharedLoad } from "./load/load-sums.ts";
import type { PlacementLog } from "./placements/placement-log.ts";
import { createReplica, type Replica } from "./replica/replica.ts";
import { createTombstones } from "./replica/tombstones.ts";

export interface SharedTierOptions {
  readonly router: RouterId;
  /** Where this router is; undefined if that is not said. */
  readonly region?: string | undefined;
  /** The tier fills it. */
  readonly index: PrefixIndex;
  readonly slots: TargetSlots;
  /** Creates the backend that carries the replica's state between routers. */
  readonly createBackend: (replica: Replica) => Backend;
  /** TTL of a placement that no events will confirm. */
  readonly placementTtlMs: number;
  /**
   * Targets of this router's fleet; undefined before discovery. Targets outside the fleet are forgotten; if absent,
   * none are.
   */
  readonly fleetTargets?: () => Iterable<string> | undefined;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  readonly meter: Meter;
}

/**
 * Everything that a router shares with others: the replica, its backend, feed ownership, and what decisions read of
 * them.
 */
export interface SharedTier extends Startable {
  readonly replica: Replica;
  readonly backend: Backend;
  readonly ownership: Ownership;
  /** Here one router reads an engine's events for all. */
  readonly host: SharedHost;
  readonly placements: PlacementWriter;
  readonly load: SharedLoad;
  /**
   * Whether this router owns the target's feed. Each feed has one owner, so this also divides the targets among the
   * routers.
   */
  isOwn(target: TargetIndex): boolean;
  /** The present quality of a target. */
  feedQualityOf(target: TargetIndex): FeedQuality;
  /** Stops taking new work, so that other routers take over its feeds. */
  setDraining(): void;
  /** Calls the listener when any router notices that a target's process was restarted. */
  onNewEpoch(listener: (slot: number) => void): void;
}

/** Sends nothing before `start`. */
export function createSharedTier(options: SharedTierOptions): SharedTier {
  const { index, slots, clock, scheduler, logger, meter } = options;
  const replica = createReplica(options);
  const { feeds } = replica;
  const backend = options.createBackend(replica);
  const ownership = new Ownership({
    ...{ clock, scheduler, meter, logger },
    self: () => replica.ports.origin,
    region: options.region,
    members: () => backend.members(),
    feeds,
    onRole: (target) => host.roleChanged(target),
  });
  const host = createSharedHost({
    ...{ feeds, ownership, openFeed: (target, tellAll) => replica.openFeed(target, tellAll) },
    reachability: createReachability(
      scheduler,
      gathered(scheduler, () => {
        const unreachable = [...feeds.all()].flatMap(({ target, isUnreachable }) => (isUnreachable ? [target] : []));
        ownership.setUnreachable(unreachable);
        backend.setUnreachable(unreachable);
      }),
    ),
    blocksOf: (target) => blocksByTier(index, slots.find(target)),
  });
  const { fleetTargets } = options;
  const tombstones = !fleetTargets
    ? []
    : [
        createTombstones({
          ...{ replica, slots, clock, scheduler },
          present: () => {
            const inFleet = fleetTargets();
            return inFleet && new Set([...inFleet, ...host.targets()]);
          },
          onForget(target) {
            const slot = slots.find(target);
            if (slot >= 0) index.placements.clear(slot);
          },
        }),
      ];
  return {
    ...startTogether([replica, joinedBackend({ backend, replica, ownership, scheduler }), ...tombstones]),
    replica,
    backend,
    ownership,
    host,
    placements: createSharedPlacements(replica.placements, slots),
    load: replica.load.shared,
    isOwn: (target) => feeds.at(target)?.role === "owner",
    feedQualityOf: (target) => feeds.qualityAt(target),
    setDraining() {
      ownership.setDraining(true);
      backend.setDraining(true);
    },
    onNewEpoch: (listener) => watchEpochs(replica, (target) => listener(slots.find(target))),
  };
}

/** A fleet may lose many engines at once, and each change of reachability reassigns all feed readers. */
const gatherMs = 10;

/** Debounces: calls the listener `gatherMs` after the first call. */
function gathered(scheduler: Scheduler, listener: () => void): () => void {
  let isDue = false;
  return () => {
    if (isDue) return;
    isDue = true;
    scheduler.after(gatherMs, () => {
      isDue = false;
      listener();
    });
  };
}

/** A restart of an engine's process voids its placements. */
function watchEpochs(replica: Replica, listener: (target: string) => void): void {
  const epochs = new Map<string, string>();
  replica.fold.onChange((target) => {
    const epoch = replica.fold.state(target)?.epoch;
    if (!epoch) {
      epochs.delete(target);
      return;
    }
    const before = epochs.get(target);
    const now = epochId(epoch);
    epochs.set(target, now);
    if (before !== undefined && before !== now) listener(target);
  });
}

function blocksByTier(index: PrefixIndex, slot: number): Readonly<Record<TierName, number>> {
  const counts = tierNames.map((name, inTier) => [name, slot < 0 ? 0 : index.factBlockCount(slot, inTier as Tier)]);
  return Object.fromEntries(counts) as Record<TierName, number>;
}

/** A prompt whose blocks are placed. */
export interface PlacedPrompt {
  /** Chain hashes of its full blocks, two words each, low word first. */
  readonly chain: Uint32Array;
  readonly blockCount: number;
}

/** Where placements go: to this router's index, and to other routers if there are any. */
export interface PlacementWriter {
  place(target: TargetIndex, prompt: PlacedPrompt, ttlMs: number): void;
  /** The engine itself reported that it holds the prompt. */
  confirm(target: TargetIndex, prompt: PlacedPrompt, ttlMs: number): void;
  /** The engine does not hold the prompt's blocks from `fromBlock` on. */
  refute(target: TargetIndex, prompt: PlacedPrompt, fromBlock: number): void;
}

/**
 * Publishes placements to all routers and adds them to this router's index at once. Publishes nothing for an engine
 * that has left meanwhile.
 */
export function createSharedPlacements(log: PlacementLog, slots: TargetSlots): PlacementWriter {
  const place = (
    index: TargetIndex,
    { chain, blockCount }: PlacedPrompt,
    ttlMs: number,
    isConfirmed: boolean,
  ): void => {
    const target = slots.keyOf(index);
    if (target !== undefined) log.place(target, chain, blockCount, { ttlMs, isConfirmed });
  };
  return {
    place: (index, prompt, ttlMs) => place(index, prompt, ttlMs, false),
    confirm: (index, prompt, ttlMs) => place(index, prompt, ttlMs, true),
    refute(index, { chain, blockCount }, from) {
      const target = slots.keyOf(index);
      if (target !== undefined) log.refute(target, chain, { from, blockCount });
    },
  };
}

/**
 * Gives targets the indices that the prefix index and the shared load use. Nothing is kept for indices beyond the
 * capacity.
 */
export function createTargetIndices(slots: TargetSlots): (targetKey: string) => TargetIndex {
  let beyond = slots.capacity;
  return (targetKey) => {
    const slot = slots.slotOf(targetKey);
    return asTargetIndex(slot >= 0 ? slot : beyond++);
  };
}
