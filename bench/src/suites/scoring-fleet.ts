import {
  asEngineId,
  asRouterId,
  asTargetIndex,
  type Clock,
  createSeededRandom,
  type Random,
  silentLogger,
  silentMeter,
} from "@espalier/core";
import { createTargetAdapters, createTargetLoad } from "@espalier/engines";
import { createPrefixIndex, tier } from "@espalier/prefix-index";
import {
  createCacheMeters,
  createLoadPublisher,
  createLocalPlacements,
  createPeerTraffic,
  createPrefixKnowledge,
  createRecentPrompts,
  createTargetSelector,
  maxKnownTargets,
  PoolWork,
  type PromptBlocks,
  type RoutingTarget,
  type TargetSelector,
} from "@espalier/routing";
import { createReplica, createTargetSlots, type SharedLoad } from "@espalier/shared-tree";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";

/** Tokens per block. */
export const blockSize = 16;
/** Other routers whose load counts. */
export const otherRouters = 7;
/** Every this many blocks, another chain branches off a prompt's chain and continues for as many blocks. */
export const branchEvery = 32;
/** One target in this many was recently sent the whole prompt. */
export const placedEvery = 12;
/** Time between two decisions of this router. */
export const betweenDecisionsMs = 10;
const placementTtlMs = 3_600_000;
/** Time to compute one token, and the number of observed prefills per target. */
const msPerToken = 0.1;
const samplesPerTarget = 5;
/** By this time a router's updates are published. */
const publishedMs = 100;

export interface ScoringShape {
  readonly promptTokens: number;
  readonly targets: number;
  /** Prompts, used in rotation. */
  readonly prompts: number;
  /** Other blocks in the index. */
  readonly otherBlocks: number;
}

/** The fleet for which decisions are made: caches, load, other routers. */
export interface ScoringFleet {
  readonly targets: readonly RoutingTarget[];
  readonly prompts: readonly PromptBlocks[];
  readonly shared: SharedLoad;
  readonly selector: TargetSelector;
  /** The learned speeds of the engines. */
  readonly work: PoolWork;
  /** Leading blocks of a prompt at a target, the same for all prompts. */
  readonly depthOf: (target: number) => number;
  /** Advances the clock to the next request. */
  nextRequest(): void;
}

/**
 * Target i of W holds the first (i + 1) / W of each prompt according to its events; some were also sent the whole
 * prompt. All have metrics, and requests in flight from this router and from others.
 */
export function createScoringFleet({ promptTokens, targets: count, prompts, otherBlocks }: ScoringShape, seed: number) {
  const random = createSeededRandom(seed);
  const time = createVirtualTime();
  const { clock } = time;
  const index = createPrefixIndex();
  const blocks = Math.floor(promptTokens / blockSize);
  const depthOf = (target: number): number => Math.floor(((target + 1) * blocks) / count);
  const placements = createLocalPlacements(index, clock);
  const knowledge = createPrefixKnowledge({
    clock,
    index,
    placements,
    recent: createRecentPrompts(),
    meters: createCacheMeters(silentMeter),
    feedQualityOf: () => "complete",
    placementTtlMs,
    placementTokens: 1_000_000,
    onPlaced: () => {},
  });
  const targets = Array.from({ length: count }, (_, at) => createTarget(at, at % 4, clock, random));
  storeChain(otherBlocks, random, (words, from, to) =>
    index.storeFacts((from / branchEvery) % count, tier.gpu, words, from, to),
  );
  const asked = Array.from({ length: prompts }, () => promptOf(promptTokens, random));
  for (const prompt of asked) {
    for (let target = 0; target < count; target++) index.storeFacts(target, tier.gpu, prompt.chain, 0, depthOf(target));
    for (let at = branchEvery; at < blocks; at += branchEvery) {
      index.storeFacts(count - 1, tier.gpu, randomWords(branchEvery, random), 0, branchEvery);
    }
    for (let at = 0; at < count; at += placedEvery) {
      placements.place(asTargetIndex(at), prompt, placementTtlMs);
    }
  }
  const shared = hearOthers(targets, time, random);
  // The targets are divided among the routers.
  const traffic = createPeerTraffic(clock, shared, (target) => target % (otherRouters + 1) === 0);
  const fleet: ScoringFleet = {
    targets,
    prompts: asked,
    shared,
    selector: createTargetSelector({ random, knowledge, shared, traffic }),
    work: learnedWork(targets, clock, random),
    depthOf: (target) => (target % placedEvery === 0 ? blocks : depthOf(target)),
    nextRequest: () => time.advance(betweenDecisionsMs),
  };
  return fleet;
}

/** @param requests in addition to one, waiting or being answered */
function createTarget(at: number, requests: number, clock: Clock, random: Random): RoutingTarget {
  const key = `10.0.${at >> 8}.${at & 255}:8000`;
  const load = createTargetLoad({ clock });
  for (let request = 0; request <= requests; request++) {
    const promptTokens = 500 + random.integer(8_000);
    const uncachedTokens = random.integer(promptTokens);
    const ticket = load.begin({
      promptTokens,
      uncachedTokens,
      workMs: uncachedTokens * msPerToken,
      expectedOutputTokens: 256,
    });
    if (request % 2 === 0) ticket.progress(random.integer(100));
  }
  return {
    index: asTargetIndex(at),
    key,
    engine: { id: asEngineId(key), role: "both", weight: 1 },
    load,
    signals: {
      running: random.integer(40),
      waiting: 0,
      kvUse: random.float(),
      blockSize,
      blockCount: 30_000,
      promptTokensTotal: Number.NaN,
      generationTokensTotal: Number.NaN,
      prefixQueries: Number.NaN,
      prefixHits: Number.NaN,
      inFlightAtScrape: 2,
      ageMs: () => 400,
    },
    adapters: createTargetAdapters(() => 0),
    usable: true,
    exclusion: undefined,
    networkMs: Number.NaN,
  };
}

/** Every target has been observed computing prompts, the faster and the slower ones. */
function learnedWork(targets: readonly RoutingTarget[], clock: Clock, random: Random): PoolWork {
  const work = new PoolWork(clock);
  for (let sample = 0; sample < samplesPerTarget * targets.length; sample++) {
    const target = targets[sample % targets.length]!;
    const uncachedTokens = 100 + random.integer(8_000);
    const elapsedMs = 10 + uncachedTokens * (sample % 3 === 0 ? 0.2 : msPerToken);
    work.rates.observe(target, { uncachedTokens, matchedTokens: random.integer(8_000), elapsedMs, hasWaited: false });
  }
  return work;
}

/** Applies the other routers' load, from the frames that they send. */
function hearOthers(targets: readonly RoutingTarget[], time: VirtualTime, random: Random): SharedLoad {
  const own = createLoad("bench", time);
  for (const { key } of targets) own.slots.slotOf(key);
  for (let router = 0; router < otherRouters; router++) {
    const { plane } = createLoad(`other-${router}`, time);
    plane.exchange.onFrame((frame) => own.plane.exchange.receive(frame));
    const publisher = createLoadPublisher(plane, time.scheduler);
    for (const at of targets.keys()) publisher.changed(createTarget(at, at % 3, time.clock, random));
    time.advance(publishedMs);
  }
  return own.plane.shared;
}

function createLoad(name: string, { clock, scheduler }: VirtualTime) {
  const slots = createTargetSlots(maxKnownTargets);
  const index = createPrefixIndex({ maxTargets: maxKnownTargets });
  const ports = { clock, scheduler, logger: silentLogger, meter: silentMeter };
  const { load: plane } = createReplica({ router: asRouterId(name), index, slots, placementTtlMs, ...ports });
  return { slots, plane };
}

function promptOf(tokens: number, random: Random): PromptBlocks {
  const blockCount = Math.floor(tokens / blockSize);
  const chain = randomWords(blockCount, random);
  return { chain, contents: chain, blockCount, blockSize, tokens, from: "tokens" };
}

function randomWords(blocks: number, random: Random): Uint32Array {
  return Uint32Array.from({ length: blocks * 2 }, () => random.integer(0x1_0000_0000));
}

/** Calls back for runs of random blocks. */
function storeChain(
  blocks: number,
  random: Random,
  store: (words: Uint32Array, from: number, to: number) => void,
): void {
  const words = randomWords(blocks, random);
  for (let from = 0; from < blocks; from += branchEvery) store(words, from, Math.min(blocks, from + branchEvery));
}
