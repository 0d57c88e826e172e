import type { Clock } from "@espalier/core";
import { createPrefixIndex, createPrefixMatches, type PrefixIndex, type PrefixMatches } from "@espalier/prefix-index";
import { createLocalPlacements, type PrefixStore } from "@espalier/routing";
import type { PlacementWriter } from "@espalier/shared-tree";
import { type OwnPlacement, PendingPlacements } from "./pending-placements.ts";
import type { SharedKnowledge } from "./shared-knowledge.ts";

/** Receives each chain that this router or another one has placed at a target. */
type PlacedByRouter = (target: number, chain: Uint32Array, blockCount: number, isOwn: boolean) => void;

/** The prefix knowledge of one router: facts and placements, and where its placements go. */
export interface RouterStore {
  readonly index: PrefixStore;
  readonly placements: PlacementWriter;
  /** Blocks that targets have reported. */
  readonly facts: PrefixIndex;
  /** Sets the listener for placements: the router's own, and those of others when they arrive. */
  onPlaced(listener: PlacedByRouter): void;
  /** Reclaims memory. */
  maintain(): void;
}

/** The parts of an index that a private one visits once a second. */
const upkeepSteps = 10_000;

/** Placements stay private. */
export function createPrivateStore(targets: number, clock: Clock, shared: SharedKnowledge): RouterStore {
  // It has no facts.
  const own = createPrefixIndex({ maxTargets: targets, maxBlocks: 1 });
  const ownMatches = createPrefixMatches(targets);
  const placements = createLocalPlacements(own, clock);
  shared.onForget((target) => own.placements.clear(target));
  /** Due updates of engines are older than a new placement. */
  const afterUpdates =
    <Args extends readonly unknown[]>(act: (...args: Args) => void) =>
    (...args: Args): void => {
      shared.catchUp();
      act(...args);
    };
  return {
    index: {
      match(words, blockCount, nowMs, out) {
        shared.catchUp();
        shared.index.match(words, blockCount, nowMs, out);
        own.match(words, blockCount, nowMs, ownMatches);
        addPlacements(ownMatches, out);
      },
      // One router cannot clear facts that all of them share.
      forgetTarget: (target) => own.placements.clear(target),
      placements: own.placements,
    },
    placements: {
      place: afterUpdates(placements.place),
      confirm: afterUpdates(placements.confirm),
      refute: afterUpdates(placements.refute),
    },
    facts: shared.index,
    onPlaced: (listener) => own.setPlacedListener((...[target, chain, count]) => listener(target, chain, count, true)),
    maintain() {
      shared.maintain();
      own.maintain(clock.nowMs(), upkeepSteps);
    },
  };
}

/**
 * Placements reach the others, after a delay or at once.
 *
 * @param elsewhere what the routers of other regions share
 */
export function createDelayedStore(
  router: number,
  shared: SharedKnowledge,
  clock: Clock,
  elsewhere: readonly SharedKnowledge[] = [],
): RouterStore {
  const pending = new PendingPlacements();
  shared.attach(router, pending);
  let placed: PlacedByRouter = () => {};
  const add = (
    kind: OwnPlacement["kind"],
    target: number,
    { chain }: Parameters<PlacementWriter["place"]>[1],
    { blockCount, ttlMs }: { readonly blockCount: number; readonly ttlMs: number },
  ): void => {
    if (blockCount * 2 > chain.length) throw new RangeError(`${chain.length} words are no ${blockCount} blocks`);
    if (blockCount <= 0) return;
    const placement = { router, target, kind, chain, blockCount, atMs: clock.nowMs(), ttlMs };
    pending.add(placement);
    if (kind !== "refute") placed(target, chain, blockCount, true);
    shared.place(placement);
    for (const other of elsewhere) other.place(placement);
  };
  const { index } = shared;
  /** Where others learn of it later, one router cannot clear the shared copy, which follows engine epochs by itself. */
  const forget = (target: number, clear: () => void): void => {
    shared.catchUp();
    if (shared.isInstant) clear();
    else pending.forget(target);
  };
  return {
    index: {
      match(words, blockCount, nowMs, out) {
        shared.catchUp();
        index.match(words, blockCount, nowMs, out);
        pending.apply(words, blockCount, nowMs, out);
      },
      forgetTarget: (target) => forget(target, () => index.forgetTarget(target)),
      placements: {
        blockCount: (target) => index.placements.blockCount(target),
        setCapacity: (target, blocks) => index.placements.setCapacity(target, blocks),
        clear: (target) => forget(target, () => index.placements.clear(target)),
      },
    },
    placements: {
      place: (target, prompt, ttlMs) => add("place", target, prompt, { blockCount: prompt.blockCount, ttlMs }),
      confirm: (target, prompt, ttlMs) => add("confirm", target, prompt, { blockCount: prompt.blockCount, ttlMs }),
      refute(target, prompt, from) {
        if (from >= 0 && from < prompt.blockCount) {
          add("refute", target, prompt, { blockCount: from + 1, ttlMs: 0 });
        }
      },
    },
    facts: index,
    onPlaced(listener) {
      placed = listener;
      shared.onPlacement(router, (target, words, blockCount) => listener(target, words, blockCount, false));
    },
    maintain: () => shared.maintain(),
  };
}

/** Adds a router's own placements to matches that have only facts. */
function addPlacements(ownMatches: PrefixMatches, out: PrefixMatches): void {
  for (let index = 0; index < ownMatches.count; index++) {
    const target = ownMatches.targets[index]!;
    if (out.isListed[target] === 0) {
      out.isListed[target] = 1;
      out.targets[out.count++] = target;
    }
    out.placedBlocks[target] = ownMatches.placedBlocks[target]!;
    out.placementAgeMs[target] = ownMatches.placementAgeMs[target]!;
    out.confirmedBlocks[target] = ownMatches.confirmedBlocks[target]!;
  }
}
