import type { Clock } from "@espalier/common";
import { createPrefixIndex, createPrefixMatches, type PrefixIndex, type PrefixMatches } from "@espalier/prefix-index";
import { createLocalPlacements, type PlacementWriter, type PrefixStore, type PromptBlocks } from "@espalier/routing";
import type { SimEngine } from "../fleet/sim-engine.ts";
import { type OwnPlacement, PendingPlacements } from "./pending-placements.ts";
import type { SharedKnowledge } from "./shared-knowledge.ts";

/** Told of a chain that this router or another one has placed at a target. */
export type PlacedByRouter = (target: number, chain: Uint32Array, blockCount: number, isOwn: boolean) => void;

/** What one router knows and guesses, and where its guesses go. */
export interface RouterStore {
  readonly index: PrefixStore;
  readonly placements: PlacementWriter;
  /** What targets have told of their blocks. */
  readonly facts: PrefixIndex;
  /** Sets who is told of every guess, the router's own and those of others when they arrive. */
  onPlaced(listener: PlacedByRouter): void;
  /** Reclaims memory. */
  maintain(): void;
}

/** The parts of an index that a private one visits once a second. */
const upkeepSteps = 10_000;

/** Guesses reach everybody at once: one router, or several that see all. */
export function createCommonStore(shared: SharedKnowledge, clock: Clock): RouterStore {
  const { index } = shared;
  return {
    index: {
      match(words, blockCount, nowMs, out) {
        shared.catchUp();
        index.match(words, blockCount, nowMs, out);
      },
      forgetTarget(target) {
        shared.catchUp();
        index.forgetTarget(target);
      },
      placements: {
        blockCount: (target) => index.placements.blockCount(target),
        setCapacity: (target, blocks) => index.placements.setCapacity(target, blocks),
        clear(target) {
          shared.catchUp();
          index.placements.clear(target);
        },
      },
    },
    placements: afterNews(createLocalPlacements(index, clock), shared),
    facts: index,
    onPlaced: (listener) =>
      index.setPlacedListener((...[target, chain, count]) => listener(target, chain, count, true)),
    maintain: () => shared.maintain(),
  };
}

/** Guesses reach nobody else, and where `shared` is left out nothing is known but them. */
export function createPrivateStore(
  engines: readonly SimEngine[],
  clock: Clock,
  shared: SharedKnowledge | undefined,
): RouterStore {
  // There are no facts in it.
  const own = createPrefixIndex({ maxTargets: engines.length, maxBlocks: 1 });
  const maintain = (): void => {
    shared?.maintain();
    own.maintain(clock.nowMs(), upkeepSteps);
  };
  const placements = createLocalPlacements(own, clock);
  const onPlaced = (listener: PlacedByRouter): void =>
    own.setPlacedListener((...[target, chain, count]) => listener(target, chain, count, true));
  if (!shared) {
    // Metrics tell that an engine runs anew.
    for (const engine of engines) engine.onLife(() => own.placements.clear(engine.number));
    return { index: own, placements, facts: own, onPlaced, maintain };
  }
  shared.onForget((target) => own.placements.clear(target));
  const guesses = createPrefixMatches(engines.length);
  return {
    index: {
      match(words, blockCount, nowMs, out) {
        shared.catchUp();
        shared.index.match(words, blockCount, nowMs, out);
        own.match(words, blockCount, nowMs, guesses);
        addGuesses(guesses, out);
      },
      // What engines tell all routers is not for one of them to forget.
      forgetTarget: (target) => own.placements.clear(target),
      placements: own.placements,
    },
    placements: afterNews(placements, shared),
    facts: shared.index,
    onPlaced,
    maintain,
  };
}

/** Guesses reach the others after a while. */
export function createDelayedStore(router: number, shared: SharedKnowledge, clock: Clock): RouterStore {
  const pending = new PendingPlacements();
  shared.attach(router, pending);
  let placed: PlacedByRouter = () => {};
  const add = (
    kind: OwnPlacement["kind"],
    target: number,
    { chain }: PromptBlocks,
    { blockCount, ttlMs }: { readonly blockCount: number; readonly ttlMs: number },
  ): void => {
    if (blockCount * 2 > chain.length) throw new RangeError(`${chain.length} words are no ${blockCount} blocks`);
    if (blockCount <= 0) return;
    const placement = { router, target, kind, chain, blockCount, atMs: clock.nowMs(), ttlMs };
    pending.add(placement);
    if (kind !== "refute") placed(target, chain, blockCount, true);
    shared.place(placement);
  };
  // The shared copy is not for one router to clear: it hears of engines' lives by itself.
  const forget = (target: number): void => pending.forget(target);
  const { index } = shared;
  return {
    index: {
      match(words, blockCount, nowMs, out) {
        shared.catchUp();
        index.match(words, blockCount, nowMs, out);
        pending.apply(words, blockCount, nowMs, out);
      },
      forgetTarget: forget,
      placements: {
        blockCount: (target) => index.placements.blockCount(target),
        setCapacity: (target, blocks) => index.placements.setCapacity(target, blocks),
        clear: forget,
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
      shared.onBelieved(router, (target, words, blockCount) => listener(target, words, blockCount, false));
    },
    maintain: () => shared.maintain(),
  };
}

/** What engines have told is older than what is guessed now. */
function afterNews(placements: PlacementWriter, shared: SharedKnowledge): PlacementWriter {
  return {
    place(target, prompt, ttlMs) {
      shared.catchUp();
      placements.place(target, prompt, ttlMs);
    },
    confirm(target, prompt, ttlMs) {
      shared.catchUp();
      placements.confirm(target, prompt, ttlMs);
    },
    refute(target, prompt, fromBlock) {
      shared.catchUp();
      placements.refute(target, prompt, fromBlock);
    },
  };
}

/** Adds a router's own guesses to facts that have none beside them. */
function addGuesses(guesses: PrefixMatches, out: PrefixMatches): void {
  for (let index = 0; index < guesses.count; index++) {
    const target = guesses.targets[index]!;
    if (out.isListed[target] === 0) {
      out.isListed[target] = 1;
      out.targets[out.count++] = target;
    }
    out.placedBlocks[target] = guesses.placedBlocks[target]!;
    out.placementAgeMs[target] = guesses.placementAgeMs[target]!;
    out.confirmedBlocks[target] = guesses.confirmedBlocks[target]!;
  }
}
