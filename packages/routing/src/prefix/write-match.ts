import type { TargetIndex } from "@espalier/core";
import type { EngineSignals } from "@espalier/engines";
import type { CandidateSet } from "@espalier/policies";
import type { PrefixMatches } from "@espalier/prefix-index";
import type { FeedQuality } from "@espalier/shared-tree";
import type { RoutingTarget } from "../routing-target.ts";
import type { PromptBlocks } from "./prompt-blocks.ts";

/**
 * Writes how many tokens of the last prompt looked up a target has itself, by tier, and can fetch beyond them from
 * pools. Runs for every candidate of every request, so it allocates nothing.
 *
 * @param quality of the target's feed
 */
type MatchWriter = (
  target: RoutingTarget,
  prompt: PromptBlocks,
  quality: FeedQuality,
  candidates: CandidateSet,
  at: number,
) => void;

/** @param matches where lookups write their results */
export function createMatchWriter(
  matches: PrefixMatches,
  reach: PoolReach,
  feedQualityOf: (target: TargetIndex) => FeedQuality,
): MatchWriter {
  return (target, prompt, quality, candidates, at) => {
    const isListed = matches.isListed[target.index] === 1;
    const held = isListed ? writeOwn(matches, target, prompt, quality, candidates, at) : 0;
    const lendable = matches.cpuBlocks[target.index]!;
    if (lendable > 0 && isBelieved(quality)) candidates.lendableTokens[at] = usableOf(lendable, target, prompt);
    const pools = reach.poolsOf(target.index);
    if (pools.length === 0) return;
    const pooledBlocks = deepestPool(matches, pools, feedQualityOf);
    if (pooledBlocks === 0) return;
    const pooled = Math.max(0, usableOf(pooledBlocks, target, prompt) - held);
    candidates.matchedExternalTokens[at]! += pooled;
    candidates.matchedPoolTokens[at] = pooled;
  };
}

const isBelieved = (quality: FeedQuality): boolean => quality === "complete" || quality === "partial";

/** Writes what a target has itself. @returns how many tokens of the prompt that is */
function writeOwn(
  matches: PrefixMatches,
  target: RoutingTarget,
  prompt: PromptBlocks,
  quality: FeedQuality,
  candidates: CandidateSet,
  at: number,
): number {
  const number = target.index;
  const trusted = isBelieved(quality);
  const facts = trusted ? matches.gpuBlocks[number]! : 0;
  const placed = matches.placedBlocks[number]!;
  let held = usableOf(Math.max(facts, placed), target, prompt);
  candidates.matchedTokens[at] = held;
  candidates.matchAgeMs[at] = placed > facts ? matches.placementAgeMs[number]! : Number.NaN;
  if (!trusted || matches.factBlocks[number]! <= facts) return held;
  const inMemories = usableOf(matches.factBlocks[number]!, target, prompt);
  if (isTooFewToLoad(target.signals.dialect, inMemories - usableOf(facts, target, prompt))) return held;
  // Lower tiers count from where the GPU ends; a prediction may overlap them.
  const columns = [candidates.matchedCpuTokens, candidates.matchedDiskTokens, candidates.matchedExternalTokens];
  let depth = facts;
  for (let slower = 0; slower < columns.length; slower++) {
    depth += matches.tierBlocks[slower + 1]![number]!;
    const reached = Math.max(held, usableOf(depth, target, prompt));
    columns[slower]![at] = reached - held;
    held = reached;
  }
  return held;
}

/** SGLang's HiCache loads nothing that brings fewer tokens (`load_back_threshold`). */
const sglangMinLoadTokens = 10;

/** Whether an engine computes this many cached tokens beyond its GPU instead of loading them. */
export function isTooFewToLoad(dialect: EngineSignals["dialect"], tokens: number): boolean {
  return dialect === "sglang" && tokens < sglangMinLoadTokens;
}

/**
 * Leading blocks of the prompt in the pool that has most of it. Engines look a prompt up in a pool from its beginning.
 */
function deepestPool(
  matches: PrefixMatches,
  pools: readonly KnownPool[],
  feedQualityOf: (target: TargetIndex) => FeedQuality,
): number {
  let deepest = 0;
  for (let place = 0; place < pools.length; place++) {
    const { index } = pools[place]!;
    const blocks = matches.factBlocks[index]!;
    if (blocks > deepest && isBelieved(feedQualityOf(index))) deepest = blocks;
  }
  return deepest;
}

/** Tokens in this many leading blocks of a prompt that the target can use: whole blocks of its own size. */
function usableOf(blocks: number, { signals }: RoutingTarget, prompt: PromptBlocks): number {
  const { blockSize } = prompt;
  const unit = signals.blockSize > 0 ? signals.blockSize : blockSize;
  return wholeBlocks(blocks * blockSize, usableTokens(prompt), unit);
}

/** The engine always computes the last token of a prompt. The number of bytes in a token is unknown. */
function usableTokens({ tokens, from }: PromptBlocks): number {
  return from === "bytes" ? tokens : tokens - 1;
}

/** Of this many tokens, those that an engine can use: whole blocks of its own, `unit` tokens each. */
function wholeBlocks(tokens: number, most: number, unit: number): number {
  return Math.max(0, Math.floor(Math.min(tokens, most) / unit) * unit);
}

/** A pool of KV blocks outside the engines: a target that announces its blocks and takes no requests. */
export interface KnownPool {
  readonly name: string;
  /** Index in the prefix index. */
  readonly index: TargetIndex;
}

/** Which pools engines can fetch from. Read for every candidate of every request. */
export interface PoolReach {
  /** Returns the same array until the engine or the configuration changes. */
  poolsOf(target: TargetIndex): readonly KnownPool[];
}

const none: readonly KnownPool[] = [];

/** For routers without a configured pool. */
export const noPools: PoolReach = { poolsOf: () => none };
