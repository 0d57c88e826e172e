import { asRouterId, type Random } from "@espalier/core";
import { createHybridClock, type Origin, originKey } from "@espalier/mesh";
import { createPrefixIndex, createPrefixMatches, type PrefixIndex } from "@espalier/prefix-index";
import { type CountingMeter, createCountingMeter, createVirtualTime, type VirtualTime } from "@espalier/testing";
import { type EngineEpoch, epochId } from "../../src/facts/engine-epoch.ts";
import type { FeedDeclaration } from "../../src/facts/feed-declaration.ts";
import { createTargetSlots, type TargetSlots } from "../../src/facts/target-slots.ts";
import { type Bindings, createBindings } from "../../src/placements/bindings.ts";
import { type PlacementJournal, PlacementLog } from "../../src/placements/placement-log.ts";

export interface JournalItem {
  readonly number: number;
  readonly bytes: Uint8Array;
  untilMs: number;
}

/** A journal in memory: items until they expire, the newest ones when there is no room for all. */
export class FakeJournal implements PlacementJournal {
  items: JournalItem[] = [];
  readonly declarations: FeedDeclaration[] = [];
  maxItems = Number.POSITIVE_INFINITY;
  readonly #time: VirtualTime;
  #nextNumber = 1;

  constructor(time: VirtualTime) {
    this.#time = time;
  }

  placingFeed(declaration: FeedDeclaration): number {
    const same = (other: FeedDeclaration): boolean =>
      other.target === declaration.target &&
      (other.epoch && epochId(other.epoch)) === (declaration.epoch && epochId(declaration.epoch));
    const known = this.declarations.findIndex(same);
    return known >= 0 ? known : this.declarations.push(declaration) - 1;
  }

  writePlacements(bytes: Uint8Array, expiresMs: number): number {
    const number = this.#nextNumber++;
    this.items.push({ number, bytes, untilMs: expiresMs });
    return number;
  }

  keepPlacements(item: number, untilMs: number): void {
    const found = this.items.find(({ number }) => number === item);
    if (found) found.untilMs = Math.max(found.untilMs, untilMs);
  }

  holdsPlacements(item: number): boolean {
    this.trim();
    return this.items.some(({ number }) => number === item);
  }

  /** What a commit does: lets go of items that have expired or found no room. */
  trim(): void {
    const nowMs = this.#time.clock.nowMs();
    this.items = this.items.filter(({ untilMs }) => untilMs > nowMs).slice(-Math.min(this.maxItems, 1e9));
  }
}

export interface LogRouter {
  readonly origin: Origin;
  readonly log: PlacementLog;
  readonly bindings: Bindings;
  readonly index: PrefixIndex;
  readonly slots: TargetSlots;
  readonly meter: CountingMeter;
  readonly epochs: Map<string, EngineEpoch>;
  journal: FakeJournal;
  epoch: number;
  touches: number;
  /** Blocks of a chain that the target is thought to have. */
  depth(target: string, words: Uint32Array): { placed: number; confirmed: number };
  /** Takes every item of another router's journal, as one that has just come. */
  join(other: LogRouter): void;
  /** Takes those items only that it has not taken. */
  follow(other: LogRouter): void;
}

export interface LogRouterOptions {
  readonly time?: VirtualTime;
  readonly maxTargets?: number;
  readonly maxRunBytes?: number;
  readonly bindingCapacity?: number;
}

export function createLogRouter(name: string, options: LogRouterOptions = {}): LogRouter {
  const time = options.time ?? createVirtualTime();
  const maxTargets = options.maxTargets ?? 16;
  const index = createPrefixIndex({ maxTargets, maxBlocks: 65_536, maxPlacedBlocks: 1_048_576 });
  const slots = createTargetSlots(maxTargets);
  for (const key of ["e/0", "e/1", "e/2", "x", "y"]) slots.slotOf(key);
  const meter = createCountingMeter();
  const hlc = createHybridClock(time.clock);
  const epochs = new Map<string, EngineEpoch>();
  const matches = createPrefixMatches(maxTargets);
  const router = asRouterId(name);
  const seen = new Map<string, number>();
  const state = { epoch: 1, journal: new FakeJournal(time), touches: 0 };
  const self = (): Origin => ({ router, epoch: state.epoch });
  const touch = (): void => {
    state.touches += 1;
  };
  const capacity = options.bindingCapacity === undefined ? {} : { capacity: options.bindingCapacity };
  const bindings = createBindings({ self, clock: time.clock, hlc, touch, ...capacity });
  const log = new PlacementLog({
    ...{ self, bindings, index, slots, clock: time.clock, hlc, meter, touch },
    journal: {
      placingFeed: (declaration) => state.journal.placingFeed(declaration),
      writePlacements: (item, expiresMs) => state.journal.writePlacements(item, expiresMs),
      keepPlacements: (item, untilMs) => state.journal.keepPlacements(item, untilMs),
      holdsPlacements: (item) => state.journal.holdsPlacements(item),
    },
    epochOf: (target) => epochs.get(target),
    ...(options.maxRunBytes === undefined ? {} : { maxRunBytes: options.maxRunBytes }),
  });
  const read = (other: LogRouter, after: number): void => {
    other.journal.trim();
    for (const { number, bytes } of other.journal.items) {
      if (number > after) log.receive(other.origin, bytes, (feed) => other.journal.declarations[feed]);
    }
    seen.set(originKey(other.origin), other.journal.items.at(-1)?.number ?? after);
  };
  const methods = {
    ...{ log, bindings, index, slots, meter, epochs },
    depth(target: string, words: Uint32Array) {
      index.match(words, words.length / 2, time.clock.nowMs(), matches);
      const slot = slots.find(target);
      return { placed: matches.placedBlocks[slot] ?? 0, confirmed: matches.confirmedBlocks[slot] ?? 0 };
    },
    join: (other: LogRouter) => read(other, 0),
    follow(other: LogRouter) {
      read(other, seen.get(originKey(other.origin)) ?? 0);
    },
  };
  return Object.defineProperty(Object.assign(state, methods), "origin", { get: self }) as LogRouter;
}

/** A chain that continues another one, or begins anew. */
export function chainOf(random: Random, blocks: number, prefix: Uint32Array = new Uint32Array(0)): Uint32Array {
  const words = new Uint32Array(prefix.length + blocks * 2);
  words.set(prefix);
  for (let index = prefix.length; index < words.length; index++) words[index] = random.integer(2 ** 32);
  return words;
}

export const blocksOf = (words: Uint32Array): number => words.length / 2;
