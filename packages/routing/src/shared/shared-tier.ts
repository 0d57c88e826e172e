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
} from "@espalier/common";
import { type Backend, joinedBackend, Ownership } from "@espalier/mesh";
import { type PrefixIndex, type Tier, type TierName, tierNames } from "@espalier/prefix-index";
import {
  createReplica,
  lifeId,
  type PlacementLog,
  type Replica,
  type SharedLoad,
  type TargetSlots,
} from "@espalier/replication";
import type { FeedStanding, PlacementWriter } from "../prefix/prefix-knowledge.ts";
import type { PromptBlocks } from "../prefix/prompt-blocks.ts";
import { createLoadPublisher, type LoadPublisher } from "./load-publisher.ts";
import { createReachWatch, createSharedHost, type SharedHost } from "./shared-host.ts";
import { createGoneTargets } from "./tombstones.ts";

export interface SharedTierOptions {
  readonly router: RouterId;
  /** Filled by the tier. */
  readonly index: PrefixIndex;
  readonly slots: TargetSlots;
  /** Makes what carries the replica's state to and from other routers. */
  readonly createBackend: (replica: Replica) => Backend;
  /** How long a guess is believed that no events will confirm. */
  readonly placementTtlMs: number;
  /** Targets of this router's fleet, undefined before it has one. What nobody has is forgotten; nothing is when absent. */
  readonly fleetTargets?: () => Iterable<string> | undefined;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** All that a router shares with the others: replica, backend, ownership of feeds, and what decisions read of them. */
export interface SharedTier extends Startable {
  readonly replica: Replica;
  readonly backend: Backend;
  readonly ownership: Ownership;
  /** Where the events of engines are read by one router for all. */
  readonly host: SharedHost;
  readonly publisher: LoadPublisher;
  readonly placements: PlacementWriter;
  readonly load: SharedLoad;
  /** Whether this router reads the target's feed for all: each has one reader, so this shares targets out among routers. */
  isOwn(target: TargetIndex): boolean;
  /** What the facts of a target are worth now. */
  standingOf(target: TargetIndex): FeedStanding;
  /** Takes no new work from here on, so others take over its feeds. */
  setDraining(): void;
  /** Told when a target runs anew, whoever noticed. */
  onNewLife(listener: (slot: number) => void): void;
}

/** Nothing is sent before `start`. */
export function createSharedTier(options: SharedTierOptions): SharedTier {
  const { index, slots, clock, scheduler, logger, meter } = options;
  const replica = createReplica(options);
  const owned = new Uint8Array(slots.capacity);
  const backend = options.createBackend(replica);
  const ownership = new Ownership({
    ...{ clock, scheduler, meter, logger },
    self: () => replica.ports.origin,
    members: () => backend.members(),
    claims: (target) => replica.claimsOf(target),
    onRole: (target, role) => {
      const slot = slots.find(target);
      if (slot >= 0) owned[slot] = role === "owner" ? 1 : 0;
      host.setRole(target, role);
    },
  });
  const host = createSharedHost({
    replica,
    ownership: () => ownership,
    reach: createReachWatch(
      scheduler,
      gathered(scheduler, (targets) => {
        ownership.setUnreachable(targets);
        backend.setUnreachable(targets);
      }),
    ),
    blocksOf: (target) => blocksByTier(index, slots.find(target)),
  });
  const publisher = createLoadPublisher(replica.load, scheduler);
  const standings = createStandings(replica, slots);
  const { fleetTargets } = options;
  const gone = !fleetTargets
    ? []
    : [
        createGoneTargets({
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
    ...startTogether([replica, joinedBackend({ backend, replica, ownership, scheduler }), publisher, ...gone]),
    replica,
    backend,
    ownership,
    host,
    publisher,
    placements: createSharedPlacements(replica.placements, slots),
    load: replica.load.shared,
    isOwn: (target) => owned[target] === 1,
    standingOf: (target) => standings.of(target),
    setDraining() {
      ownership.setDraining(true);
      backend.setDraining(true);
    },
    onNewLife: (listener) => watchLives(replica, (target) => listener(slots.find(target))),
  };
}

/** A fleet may lose many engines at once, and each change of what is out of reach has all feeds' readers named anew. */
const gatherMs = 10;

/** Tells the last value, a little later. */
function gathered<Value>(scheduler: Scheduler, listener: (value: Value) => void): (value: Value) => void {
  let last: { readonly value: Value } | undefined;
  return (value) => {
    const isFirst = last === undefined;
    last = { value };
    if (!isFirst) return;
    scheduler.after(gatherMs, () => {
      const { value: told } = last!;
      last = undefined;
      listener(told);
    });
  };
}

/** What was guessed of an engine does not hold once it runs anew. */
function watchLives(replica: Replica, listener: (target: string) => void): void {
  const lives = new Map<string, string>();
  replica.fold.onChange((target) => {
    const life = replica.fold.state(target)?.life;
    if (!life) {
      lives.delete(target);
      return;
    }
    const before = lives.get(target);
    const now = lifeId(life);
    lives.set(target, now);
    if (before !== undefined && before !== now) listener(target);
  });
}

function blocksByTier(index: PrefixIndex, slot: number): Readonly<Record<TierName, number>> {
  const counts = tierNames.map((name, inTier) => [name, slot < 0 ? 0 : index.factBlockCount(slot, inTier as Tier)]);
  return Object.fromEntries(counts) as Record<TierName, number>;
}

/**
 * Guesses that all routers are told of. What this router guesses is in its own index at once. Of an engine that has left
 * meanwhile, nothing is told.
 */
export function createSharedPlacements(log: PlacementLog, slots: TargetSlots): PlacementWriter {
  const place = (
    index: TargetIndex,
    { chain, blockCount }: PromptBlocks,
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

/** What facts of targets are worth, for decisions: asked for every candidate of every request. */
interface Standings {
  of(target: TargetIndex): FeedStanding;
}

/** Remembers what the replica says until it may have changed. */
export function createStandings(
  replica: Pick<Replica, "qualityOf" | "onClaims">,
  slots: Pick<TargetSlots, "keyOf" | "find">,
): Standings {
  /** By slot, with the key of the target that it was then. */
  const known: ({ readonly key: string; readonly standing: FeedStanding } | undefined)[] = [];
  replica.onClaims((target) => {
    const slot = slots.find(target);
    if (slot >= 0) known[slot] = undefined;
  });
  return {
    of(target) {
      const key = slots.keyOf(target);
      if (key === undefined) return "none";
      let entry = known[target];
      if (entry?.key !== key) {
        entry = { key, standing: replica.qualityOf(key) };
        known[target] = entry;
      }
      return entry.standing;
    },
  };
}

/**
 * Gives targets the numbers by which the prefix index and the shared load know them. Targets beyond those have numbers
 * that nothing is known of.
 */
export function createTargetIndices(slots: TargetSlots): (targetKey: string) => TargetIndex {
  let beyond = slots.capacity;
  return (targetKey) => {
    const slot = slots.slotOf(targetKey);
    return asTargetIndex(slot >= 0 ? slot : beyond++);
  };
}
