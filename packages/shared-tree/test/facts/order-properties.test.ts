import { asRouterId, createSeededRandom, type Random } from "@espalier/core";
import type { Origin } from "@espalier/mesh";
import {
  createPrefixIndex,
  createPrefixMatches,
  factKinds,
  type PrefixIndex,
  resumePoint,
} from "@espalier/prefix-index";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, it } from "vitest";
import { type EngineEpoch, epochId } from "../../src/facts/engine-epoch.ts";
import type { FactEntry } from "../../src/facts/fact-item.ts";
import { createFoldHarness, type FoldHarness, target } from "./fold-harness.ts";
import {
  chainTo,
  createForest,
  type Forest,
  ModelEngine,
  ModelLedger,
  type ModelMessage,
  wordsOfChain,
} from "./model-engine.ts";
import { type NaiveBlocks, type NaiveFold, type NaiveJournal, naiveFold } from "./naive-fold.ts";

const forestOptions = { blocks: 60, equalLowsEvery: 24 };
const tiers = factKinds;

/** A writer that reads the engine, and may miss messages, be late, or be gone for a time. */
class Writer implements NaiveJournal {
  readonly origin: Origin;
  readonly epochs = new Map<number, EngineEpoch>();
  readonly entries: FactEntry[] = [];
  /** How many declarations had been made when an entry was written. */
  readonly declaredAt: number[] = [];
  readonly #forest: Forest;
  readonly #random: Random;
  /** One message in so many is missed. */
  readonly #missesEvery: number;
  #ledger: ModelLedger;
  #engineEpoch = -1;
  #feed = 0;
  #next = 0;
  #isComplete = true;

  constructor(origin: Origin, forest: Forest, random: Random, missesEvery: number) {
    this.origin = origin;
    this.#forest = forest;
    this.#random = random;
    this.#missesEvery = missesEvery;
    this.#ledger = new ModelLedger(forest);
  }

  /** @param known epochs of the engine that were named, by number */
  read(message: ModelMessage, known: EngineEpoch[]): void {
    if (this.#missesEvery > 0 && this.#random.integer(this.#missesEvery) === 0) return;
    if (message.epoch !== this.#engineEpoch) this.#begin(message, known);
    if (message.sequence > this.#next) {
      this.#write({ kind: "gap", feed: this.#feed, from: this.#next, to: message.sequence - 1 });
      this.#isComplete = false;
    }
    const { sequence, timestampUs, checksum } = message;
    const ops = this.#ledger.apply(message);
    const isComplete = this.#isComplete;
    this.#write({ kind: "record", feed: this.#feed, sequence, timestampUs, checksum, isComplete, ops });
    this.#next = sequence + 1;
  }

  #begin(message: ModelMessage, known: EngineEpoch[]): void {
    const { epoch, sequence, timestampUs, checksum } = message;
    const before = known[epoch - 1];
    known[epoch] ??= { sequence, timestampUs, checksum, predecessor: before ? epochId(before) : null };
    const named = known[epoch];
    this.#engineEpoch = epoch;
    this.#ledger = new ModelLedger(this.#forest);
    this.epochs.set(++this.#feed, named);
    this.#next = named.sequence;
    this.#isComplete = named.sequence === 0;
  }

  #write(entry: FactEntry): void {
    // Some records of some writers never make it into their journals: those that only follow a feed now and then.
    this.entries.push(entry);
    this.declaredAt.push(this.epochs.size);
  }
}

interface History {
  readonly forest: Forest;
  readonly writers: readonly Writer[];
  readonly engine: ModelEngine;
}

function createHistory(random: Random): History {
  const forest = createForest(random, forestOptions);
  const engine = new ModelEngine(forest, random);
  const misses = [0, 6, 12, 25];
  const writers = Array.from(
    { length: 1 + random.integer(3) },
    (_, at) =>
      new Writer({ router: asRouterId(`r${3 - at}`), epoch: 1 + at }, forest, random, misses[random.integer(4)]!),
  );
  const known: EngineEpoch[] = [];
  const away = writers.map(() => 0);
  for (let left = 30 + random.integer(60); left > 0; left--) {
    if (random.integer(60) === 0) engine.restart();
    const message = engine.message();
    for (const [at, writer] of writers.entries()) {
      if (random.integer(30) === 0) away[at] = random.integer(25);
      if (away[at]! > 0) away[at]!--;
      else writer.read(message, known);
    }
  }
  return { forest, writers, engine };
}

/** Brings every journal to a replica, pieces of them interleaved at random, some of them twice. */
function deliver(history: History, random: Random): FoldHarness {
  const harness = createFoldHarness({ declared: [] });
  const at = history.writers.map(() => 0);
  const declared = history.writers.map(() => 0);
  for (;;) {
    const open = history.writers.flatMap(({ entries }, number) => (at[number]! < entries.length ? [number] : []));
    if (open.length === 0) return harness;
    const number = open[random.integer(open.length)]!;
    const { origin, entries, epochs, declaredAt } = history.writers[number]!;
    const from = at[number]!;
    const to = Math.min(entries.length, from + 1 + random.integer(12));
    for (const [feed, epoch] of epochs) {
      if (feed > declared[number]! && feed <= declaredAt[to - 1]!)
        harness.fold.declare(origin, feed, { target, epoch });
    }
    declared[number] = declaredAt[to - 1]!;
    harness.fold.apply(origin, entries.slice(random.integer(6) === 0 ? random.integer(from + 1) : from, to));
    at[number] = to;
  }
}

function expectSame({ fold, index, slots }: FoldHarness, naive: NaiveFold): void {
  const state = fold.state(target)!;
  expect(state.epoch && epochId(state.epoch)).toBe(naive.epoch);
  expect(state.last?.sequence).toBe(naive.last);
  expect(state.isComplete).toBe(naive.isComplete);
  if (naive.progress !== "open") expect(state.progress).toBe(naive.progress);
  const slot = slots.find(target);
  for (const tier of tiers) expect(index.factBlockCount(slot, tier)).toBe(naive.blocks.tiers[tier]!.size);
  expect([...index.digest(slot)]).toEqual([...indexOf(naive.blocks).digest(0)]);
}

function indexOf(blocks: NaiveBlocks): PrefixIndex {
  const index = createPrefixIndex({ maxTargets: 1 });
  for (const tier of tiers) index.storeFacts(0, tier, blocks.words(tier), 0, blocks.tiers[tier]!.size);
  return index;
}

/** Blocks of a chain that are on the GPU, walked one by one. */
function expectMatches({ index, slots }: FoldHarness, naive: NaiveFold, forest: Forest): void {
  const matches = createPrefixMatches(8);
  const slot = slots.find(target);
  for (let block = 0; block < forest.parents.length; block++) {
    const words = wordsOfChain(forest, chainTo(forest, block));
    const blocks = words.length / 2;
    const { tiers: sets } = naive.blocks;
    const has = (tier: number, at: number): boolean => sets[tier]!.has(`${words[2 * at]}:${words[2 * at + 1]}`);
    let onGpu = 0;
    while (onGpu < blocks && has(0, onGpu)) onGpu++;
    let usable = onGpu;
    while (usable < blocks && [0, 1, 2, 3].some((tier) => has(tier, usable))) usable++;
    const isHybrid = sets[resumePoint]!.size > 0;
    while (isHybrid && usable > 0 && !has(resumePoint, usable - 1)) usable--;
    index.match(words, blocks, 0, matches);
    expect(matches.gpuBlocks[slot]).toBe(isHybrid ? Math.min(onGpu, usable) : onGpu);
  }
}

describe("folding records in any order", () => {
  it.each(fixedSeeds(60))("equals the fold of their set, seed %i", (seed) => {
    const random = createSeededRandom(seed);
    const history = createHistory(random);
    const naive = naiveFold(history.writers);
    for (let replica = 0; replica < 4; replica++) {
      const harness = deliver(history, random);
      expectSame(harness, naive);
      // Mixed records of readers that missed something may leave children of blocks that they did not know.
      if (naive.isComplete) expectMatches(harness, naive, history.forest);
      expect(harness.reloads).toEqual([]);
    }
  });

  it("is what the engine holds, where somebody has read everything", () => {
    let complete = 0;
    for (let seed = 1_000; seed < 1_040; seed++) {
      const history = createHistory(createSeededRandom(seed));
      const naive = naiveFold(history.writers);
      if (!naive.isComplete || naive.progress !== "current") continue;
      if (Math.max(...history.writers.map(({ entries }) => entries.length)) === 0) continue;
      complete++;
    }
    expect(complete).toBeGreaterThan(3);
  });
});
