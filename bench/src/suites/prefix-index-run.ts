import { type Clock, createSeededRandom, type Random } from "@espalier/core";
import { createPrefixIndex, createPrefixMatches, type FactKind, resumePoint, tier } from "@espalier/prefix-index";
import type { Figures } from "../support/median-spread.ts";
import { createNaiveIndex, type MeasuredIndex } from "./prefix-index-naive.ts";

/** The amount of work in one run. */
export interface PrefixIndexSizes {
  /** Blocks that are stored, and then removed. */
  readonly blocks: number;
  /** Live blocks while everything is replaced over and over. */
  readonly turnoverBlocks: number;
  readonly turnovers: number;
  /** Other entries in the index while it is queried. */
  readonly otherBlocks: number;
  /** The same for the naive index, with fewer blocks and queries. */
  readonly naiveBlocks: number;
  readonly queries: number;
}

/** Blocks stored or removed in one call, for one event. */
export const runBlocks = 64;
export const targets = 240;
/** Every this many blocks, another chain branches off the queried one and continues for as many blocks. */
export const branchEvery = 32;
const shapes = [
  { blocks: 750, holders: 8 },
  { blocks: 15_000, holders: 96 },
] as const;
/** Blocks between the last resume point of a hybrid target and the end of what it holds. */
export const beyondPoint = 31;
/** Blocks of the chain that a target has in slower memory after those on its GPU. */
export const slowBlocks = 64;

export type PrefixIndexRun = Readonly<Record<"espalier" | "naive", Figures>>;

interface RunPorts {
  readonly clock: Clock;
  readonly seed: number;
}

/**
 * Measures both indexes once.
 *
 * @throws Error when an answer is wrong, because no figure means anything then
 */
export function runPrefixIndexOnce(sizes: PrefixIndexSizes, ports: RunPorts): PrefixIndexRun {
  return {
    espalier: {
      ...changeFigures(createEspalierIndex, sizes.blocks, ports),
      ...queryFigures(createEspalierIndex, sizes, sizes.queries, ports),
      growth_after_turnover: growthAfterTurnover(sizes, ports),
    },
    naive: {
      ...changeFigures(createNaiveIndex, sizes.naiveBlocks, ports),
      ...queryFigures(createNaiveIndex, sizes, Math.ceil(sizes.queries / 20), ports),
    },
  };
}

function createEspalierIndex(): MeasuredIndex {
  const index = createPrefixIndex();
  const matches = createPrefixMatches(4_096);
  return {
    store: (target, words, from, to) => void index.storeFacts(target, tier.gpu, words, from, to),
    remove: (target, words, from, to) => void index.removeFacts(target, tier.gpu, words, from, to),
    storeAs: (kind, target, words, from, to) => void index.storeFacts(target, kind, words, from, to),
    match(words, blockCount) {
      index.match(words, blockCount, 0, matches);
      return matches.count;
    },
    depthOf: (target) => matches.factBlocks[target]!,
    get byteLength() {
      return index.byteLength;
    },
  };
}

function randomChain(blocks: number, random: Random): Uint32Array {
  return Uint32Array.from({ length: blocks * 2 }, () => random.integer(0x1_0000_0000));
}

/** Calls back with the blocks of each event, and the target that has them. */
function forEachRun(blocks: number, run: (target: number, from: number, to: number) => void): void {
  for (let from = 0; from < blocks; from += runBlocks) {
    run((from / runBlocks) % targets, from, Math.min(blocks, from + runBlocks));
  }
}

/** Stores, looks up and removes blocks that exactly one target has, from empty to full and back. */
function changeFigures(create: () => MeasuredIndex, blocks: number, { clock, seed }: RunPorts): Figures {
  const words = randomChain(blocks, createSeededRandom(seed));
  const index = create();
  const perSecond = (work: () => void): number => {
    const startMs = clock.nowMs();
    work();
    return (blocks / (clock.nowMs() - startMs)) * 1_000;
  };
  const inserts = perSecond(() => forEachRun(blocks, (target, from, to) => index.store(target, words, from, to)));
  const { byteLength } = index;
  let found = 0;
  const singles = Array.from({ length: Math.min(blocks, 65_536) }, (_, at) => words.subarray(at * 2, at * 2 + 2));
  const lookups = perSecond(() => {
    for (let block = 0; block < blocks; block++) found += index.match(singles[block % singles.length]!, 1);
  });
  if (found !== blocks) throw new Error(`${found} of ${blocks} blocks were found`);
  const turnover = turnOver(index, words, blocks, createSeededRandom(seed + 1), perSecond);
  const removals = perSecond(() => forEachRun(blocks, (target, from, to) => index.remove(target, words, from, to)));
  if (index.match(words, blocks) !== 0) throw new Error("a removed block was found");
  const rates = {
    insert_ops_per_s: inserts,
    remove_ops_per_s: removals,
    lookup_ops_per_s: lookups,
    turnover_ops_per_s: turnover,
  };
  return byteLength === undefined ? rates : { ...rates, bytes_per_block_target: byteLength / blocks };
}

/** Replaces every block by another at constant size: removals and stores per second, counted together. */
function turnOver(
  index: MeasuredIndex,
  words: Uint32Array,
  blocks: number,
  random: Random,
  perSecond: (work: () => void, operations: number) => number,
): number {
  const old = words.slice();
  words.set(randomChain(blocks, random));
  return perSecond(
    () =>
      forEachRun(blocks, (target, from, to) => {
        index.remove(target, old, from, to);
        index.store(target, words, from, to);
      }),
    2 * blocks,
  );
}

/** Times queries of chains that targets hold to different depths, among other chains. */
function queryFigures(
  create: () => MeasuredIndex,
  { otherBlocks }: PrefixIndexSizes,
  queries: number,
  { clock, seed }: RunPorts,
): Figures {
  const figures: Record<string, number> = {};
  for (const { blocks, holders } of shapes) {
    const random = createSeededRandom(seed + blocks);
    const others = randomChain(otherBlocks, random);
    const chain = randomChain(blocks, random);
    const branches = Array.from({ length: Math.ceil(blocks / branchEvery) - 1 }, () =>
      randomChain(branchEvery, random),
    );
    const depthOf = (holder: number): number => Math.floor(((holder + 1) * blocks) / holders);
    const fill = (): MeasuredIndex => {
      const index = create();
      forEachRun(otherBlocks, (target, from, to) => index.store(target % holders, others, from, to));
      for (let holder = 0; holder < holders; holder++) index.store(holder, chain, 0, depthOf(holder));
      for (const branch of branches) index.store(holders - 1, branch, 0, branchEvery);
      return index;
    };
    const measure = (name: string, index: MeasuredIndex, endOf: (holder: number) => number): void => {
      const timesUs = new Float64Array(queries);
      for (let query = 0; query < queries * 2; query++) {
        const startMs = clock.nowMs();
        index.match(chain, blocks);
        timesUs[query % queries] = (clock.nowMs() - startMs) * 1_000;
      }
      for (let holder = 0; holder < holders; holder++) {
        if (index.depthOf(holder) !== endOf(holder)) throw new Error(`holder ${holder} was found to a wrong depth`);
      }
      figures[`${name}_${blocks}x${holders}_us_p50`] = timesUs.sort()[queries >> 1]!;
    };
    const index = fill();
    measure("query", index, depthOf);
    if (!index.storeAs) continue;
    // A point of another chain makes a target hybrid: the walk for this chain finds none.
    for (let holder = 0; holder < holders; holder++) index.storeAs(resumePoint, holder, others, holder, holder + 1);
    measure("query_no_point", index, () => 0);
    const pointOf = (holder: number): number => depthOf(holder) - beyondPoint;
    for (let holder = 0; holder < holders; holder++) {
      index.storeAs(resumePoint, holder, chain, pointOf(holder) - 1, pointOf(holder));
    }
    measure("query_hybrid", index, pointOf);
    const slow = fill();
    const inSlow = (kind: FactKind, words: Uint32Array, from: (holder: number) => number, length: number): void => {
      for (let holder = 0; holder < holders; holder++) {
        slow.storeAs?.(kind, holder, words, from(holder), Math.min(words.length / 2, from(holder) + length));
      }
    };
    inSlow(tier.cpu, others, (holder) => holder * runBlocks, runBlocks);
    measure("query_cpu_elsewhere", slow, depthOf);
    inSlow(tier.external, chain, () => 0, slowBlocks);
    measure("query_external_elsewhere", slow, (holder) => Math.max(depthOf(holder), slowBlocks));
    inSlow(tier.cpu, chain, depthOf, slowBlocks);
    measure("query_cpu", slow, (holder) => Math.min(blocks, depthOf(holder) + slowBlocks));
    inSlow(tier.external, chain, () => 0, blocks);
    measure("query_external", slow, () => blocks);
  }
  return figures;
}

/** Memory after all blocks were replaced many times, relative to memory when they were first stored. */
function growthAfterTurnover({ turnoverBlocks, turnovers }: PrefixIndexSizes, { seed }: RunPorts): number {
  const random = createSeededRandom(seed);
  const index = createEspalierIndex();
  const words = randomChain(turnoverBlocks, random);
  forEachRun(turnoverBlocks, (target, from, to) => index.store(target, words, from, to));
  const before = index.byteLength!;
  for (let turn = 0; turn < turnovers; turn++) {
    forEachRun(turnoverBlocks, (target, from, to) => {
      index.remove(target, words, from, to);
      for (let word = from * 2; word < to * 2; word++) words[word] = random.integer(0x1_0000_0000);
      index.store(target, words, from, to);
    });
  }
  return index.byteLength! / before;
}
