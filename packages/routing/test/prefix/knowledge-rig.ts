import { createCandidateSet } from "@espalier/policies";
import { createPrefixIndex, type PrefixIndex, type TierName, tier } from "@espalier/prefix-index";
import type { FeedQuality } from "@espalier/shared-tree";
import { createSeriesMeter, createVirtualTime, type SeriesMeter, type VirtualTime } from "@espalier/testing";
import { createCacheMeters } from "../../src/prefix/cache-meters.ts";
import {
  createLocalPlacements,
  createPrefixKnowledge,
  maxKnownTargets,
  type PrefixKnowledge,
} from "../../src/prefix/prefix-knowledge.ts";
import type { PromptBlocks } from "../../src/prefix/prompt-blocks.ts";
import { createRecentPrompts, type RecentPrompts } from "../../src/prefix/prompt-blocks.ts";
import type { KnownPool } from "../../src/prefix/write-match.ts";
import type { RoutingTarget } from "../../src/routing-target.ts";
import { type ScriptedTarget, scriptedTarget } from "../scripted-target.ts";

export const ttlMs = 600_000;

export interface KnowledgeRig {
  readonly knowledge: PrefixKnowledge;
  readonly index: PrefixIndex;
  readonly time: VirtualTime;
  readonly meter: SeriesMeter;
  readonly recent: RecentPrompts;
  /** Targets that a prompt was placed at whose events do not tell everything. */
  readonly placed: number[];
  readonly target: ScriptedTarget;
  /** What it is thought to hold of a prompt. */
  see(prompt: PromptBlocks, of?: RoutingTarget): Seen;
  /** As an engine of the given tier announces the blocks of a prompt. */
  announce(prompt: PromptBlocks, from: number, to: number, inTier?: TierName): void;
}

export interface Seen {
  readonly gpu: number;
  readonly cpu: number;
  readonly disk: number;
  readonly external: number;
  /** Of `external`, what a pool alone has. */
  readonly pooled: number;
  readonly ageMs: number;
  readonly held: number;
}

export interface RigOptions {
  readonly quality?: FeedQuality | ((target: number) => FeedQuality);
  /** Pools in the reach of target 0. */
  readonly pools?: readonly KnownPool[];
  readonly engineBlock?: number;
  readonly engineBlocks?: number;
  readonly placementTokens?: number;
}

/** A target whose metrics tell of its blocks. */
export const targetLike = (
  index: number,
  { engineBlock = Number.NaN, engineBlocks = Number.NaN }: RigOptions,
): ScriptedTarget =>
  scriptedTarget(index, `engine-${index}`, { signals: { blockSize: engineBlock, blockCount: engineBlocks } });

export function knowledgeRig(options: RigOptions = {}): KnowledgeRig {
  const { quality = "none", placementTokens = 1_000_000 } = options;
  const time = createVirtualTime();
  const meter = createSeriesMeter();
  const index = createPrefixIndex({ maxTargets: maxKnownTargets, maxBlocks: 10_000, maxSets: 100 });
  const recent = createRecentPrompts({ maxRequests: 10, maxBlocks: 1_000 });
  const placed: number[] = [];
  const knowledge = createPrefixKnowledge({
    clock: time.clock,
    index,
    placements: createLocalPlacements(index, time.clock),
    recent,
    meters: createCacheMeters(meter),
    feedQualityOf: (number) => (typeof quality === "function" ? quality(number) : quality),
    ...(options.pools ? { pools: { poolsOf: (number) => (number === 0 ? options.pools! : []) } } : {}),
    placementTtlMs: ttlMs,
    placementTokens,
    onPlaced: (target) => placed.push(target),
  });
  const target = targetLike(0, options);
  const see = (prompt: PromptBlocks, of = target): Seen => {
    const candidates = createCandidateSet();
    const at = candidates.add("key", 0);
    knowledge.match(prompt);
    knowledge.describe(of, prompt, candidates, at);
    return {
      gpu: candidates.matchedTokens[at]!,
      cpu: candidates.matchedCpuTokens[at]!,
      disk: candidates.matchedDiskTokens[at]!,
      external: candidates.matchedExternalTokens[at]!,
      pooled: candidates.matchedPoolTokens[at]!,
      ageMs: candidates.matchAgeMs[at]!,
      held: candidates.heldTokens[at]!,
    };
  };
  const announce: KnowledgeRig["announce"] = ({ chain }, from, to, inTier = "gpu") =>
    void index.storeFacts(target.index, tier[inTier], chain, from, to);
  return { knowledge, index, time, meter, recent, placed, target, see, announce };
}
