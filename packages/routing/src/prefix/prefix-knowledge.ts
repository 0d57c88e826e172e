import type { Clock, TargetIndex } from "@espalier/core";
import type { CandidateSet } from "@espalier/policies";
import {
  createPrefixMatches,
  type PrefixIndex,
  type PrefixMatches,
  type TierName,
  tierNames,
} from "@espalier/prefix-index";
import type { FeedQuality, PlacementWriter } from "@espalier/shared-tree";
import type { RoutingTarget } from "../routing-target.ts";
import type { CacheMeters } from "./cache-meters.ts";
import type { LearnedTarget, PromptBlocks, RecentPrompts } from "./prompt-blocks.ts";
import { createMatchWriter, type KnownPool, noPools, type PoolReach } from "./write-match.ts";

/** What the router knows (facts, from events) and predicts (placements) about its targets' caches. */
export interface PrefixKnowledge {
  /**
   * Looks a prompt up at every target. `describe` and `evidence` refer to the last prompt looked up.
   *
   * @param countsLendable whether to look for what targets could lend to each other; false by default
   */
  match(prompt: PromptBlocks, countsLendable?: boolean): void;
  /** Writes what a target is believed to hold of the prompt to the candidate set. */
  describe(target: RoutingTarget, prompt: PromptBlocks, candidates: CandidateSet, index: number): void;
  /** The evidence behind it, for explanations; undefined for a target without any state. */
  evidence(target: TargetIndex): PrefixEvidence | undefined;
  /**
   * Records that the prompt is sent to the target.
   *
   * @param matchedTokens tokens of it that the decision predicted as cached
   * @param context tokens that the target must fetch from a pool (0 by default), and tokens that the best candidate
   *   holds (by default those of the target)
   */
  place(target: RoutingTarget, prompt: PromptBlocks, matchedTokens: number, context?: MatchContext): Placement;
  /** An engine reports this many cached tokens of a prompt that was not placed: its policy matches no prompts. */
  reported(cachedTokens: number): void;
  /** Renews placements of prompts that still wait for prefill. Call more often than every five seconds. */
  renew(): void;
  /** Forgets facts and placements of a target that was restarted or has left. */
  forget(target: TargetIndex): void;
  /** Forgets placements of a target that was restarted. */
  forgetPlacements(target: TargetIndex): void;
}

/** What else the index knows about a prompt that is placed. */
interface MatchContext {
  /** Tokens that a pool holds and the target does not. */
  readonly pooledTokens: number;
  /** Tokens at the candidate that holds the most. */
  readonly bestTokens: number;
}

/** One prompt at one target. */
export interface Placement {
  /** The first byte of the answer came, so the prompt is computed. */
  computed(): void;
  /** The target failed or refused before that. */
  withdraw(): void;
  /** @param cachedTokens cached tokens that the engine reports; undefined if it reports none or did not answer */
  answered(cachedTokens: number | undefined): void;
}

/** Facts and placements, as decisions read them. */
export interface PrefixStore extends Pick<PrefixIndex, "match" | "forgetTarget"> {
  readonly placements: Pick<PrefixIndex["placements"], "blockCount" | "setCapacity" | "clear">;
}

export interface KnowledgeOptions {
  readonly clock: Clock;
  readonly index: PrefixStore;
  readonly placements: PlacementWriter;
  readonly recent: RecentPrompts;
  readonly meters: CacheMeters;
  readonly feedQualityOf: (target: TargetIndex) => FeedQuality;
  /** Pools whose blocks count for the targets that can fetch them; none by default. */
  readonly pools?: PoolReach;
  /** TTL of a placement that no events will confirm. */
  readonly placementTtlMs: number;
  /** Capacity of a target that does not report it. */
  readonly placementTokens: number;
  /** Called when a prompt is placed at a target without a complete feed. */
  readonly onPlaced: (target: TargetIndex) => void;
}

/** Bound of target indices. Policies see targets beyond it as holding nothing. */
export const maxKnownTargets = 4_096;

/**
 * TTL of a placement that events will confirm. From the dispatch it is longer, since the prompt may have to wait. From
 * the first token: events took up to 0.7 s in captures.
 */
const factsDueMs = { fromDispatch: 10_000, fromFirstToken: 2_000 } as const;

/**
 * Writes placements to `placements` and reads facts and placements from `index`, where those placements must arrive.
 */
export function createPrefixKnowledge(options: KnowledgeOptions): PrefixKnowledge {
  const { clock, index, feedQualityOf, pools = noPools } = options;
  const matches = createPrefixMatches(maxKnownTargets);
  const write = createMatchWriter(matches, pools, feedQualityOf);
  const waiting = new Set<PlacedPrompt>();
  const placing: PlacedPromptOptions = { ...options, waiting };
  return {
    match(prompt, countsLendable = false) {
      matches.countsCpu = countsLendable;
      index.match(prompt.chain, prompt.blockCount, clock.nowMs(), matches);
    },
    describe(target, prompt, candidates, at) {
      const number = target.index;
      if (number >= maxKnownTargets) return;
      const quality = feedQualityOf(number);
      candidates.heldTokens[at] =
        heldBlocks(index, number, prompt.from === "bytes" ? "none" : quality) * prompt.blockSize;
      write(target, prompt, quality, candidates, at);
    },
    evidence: (target) =>
      target < maxKnownTargets
        ? prefixEvidence(matches, target, { pools: pools.poolsOf(target), feedQualityOf })
        : undefined,
    place(
      target,
      prompt,
      matchedTokens,
      { pooledTokens, bestTokens } = { pooledTokens: 0, bestTokens: matchedTokens },
    ) {
      options.meters.sent(prompt.tokens, matchedTokens, bestTokens);
      return new PlacedPrompt(placing, target, prompt, { matchedTokens, pooledTokens });
    },
    reported: (cachedTokens) => options.meters.reported(cachedTokens),
    renew() {
      for (const placed of waiting) placed.renew();
    },
    forget(target) {
      if (target < maxKnownTargets) index.forgetTarget(target);
    },
    forgetPlacements(target) {
      if (target < maxKnownTargets) index.placements.clear(target);
    },
  };
}

/**
 * The placed blocks of a target. NaN with a complete feed: by its facts a full cache always looks full and that of a
 * slow target looks empty, which would attract the next prompts.
 */
function heldBlocks(index: PrefixStore, target: TargetIndex, quality: FeedQuality): number {
  return quality === "complete" ? Number.NaN : index.placements.blockCount(target);
}

interface PredictedParts extends Pick<MatchContext, "pooledTokens"> {
  readonly matchedTokens: number;
}

interface PlacedPromptOptions extends KnowledgeOptions {
  /** Prompts waiting for prefill at targets with a complete feed. */
  readonly waiting: Set<PlacedPrompt>;
}

/** While a prompt waits in an engine's queue, its placement is renewed if less than this is left. */
const renewalMs = 5_000;

class PlacedPrompt implements Placement {
  readonly #options: PlacedPromptOptions;
  readonly #target: TargetIndex;
  readonly #learnedTarget: LearnedTarget;
  readonly #prompt: PromptBlocks;
  readonly #matchedTokens: number;
  readonly #pooledTokens: number;
  #isComputed = false;
  #expiresMs = 0;

  constructor(options: PlacedPromptOptions, target: RoutingTarget, prompt: PromptBlocks, predicted: PredictedParts) {
    this.#options = options;
    this.#target = target.index;
    this.#learnedTarget = { index: target.index, key: target.key, blockSize: target.signals.blockSize };
    this.#prompt = prompt;
    this.#matchedTokens = predicted.matchedTokens;
    this.#pooledTokens = predicted.pooledTokens;
    if (predicted.pooledTokens > 0) options.meters.pooled(predicted.pooledTokens);
    if (!this.#isKept) return;
    const { signals } = target;
    const capacityTokens = signals.blockSize * signals.blockCount;
    const capacity = Number.isNaN(capacityTokens) ? options.placementTokens : capacityTokens;
    options.index.placements.setCapacity(target.index, Math.ceil(capacity / prompt.blockSize));
    if (this.#hasFacts) {
      this.#place(Math.min(options.placementTtlMs, factsDueMs.fromDispatch));
      options.waiting.add(this);
      return;
    }
    this.#place(options.placementTtlMs);
    // Without a feed there are no floating blocks to attach.
    if (prompt.from === "bytes" || options.feedQualityOf(target.index) === "none") return;
    options.recent.add(prompt);
    options.onPlaced(target.index);
  }

  renew(): void {
    const { clock, waiting } = this.#options;
    if (!this.#hasFacts) waiting.delete(this);
    else if (this.#expiresMs - clock.nowMs() <= renewalMs) this.#place(factsDueMs.fromDispatch);
  }

  computed(): void {
    this.#isComputed = true;
    this.#options.waiting.delete(this);
    if (this.#isKept && this.#hasFacts) this.#place(factsDueMs.fromFirstToken);
  }

  withdraw(): void {
    this.#options.waiting.delete(this);
    if (!this.#isKept) return;
    // The blocks to fetch from a pool were not fetched.
    const ownTokens = this.#matchedTokens - this.#pooledTokens;
    this.#options.placements.refute(this.#target, this.#prompt, Math.floor(ownTokens / this.#prompt.blockSize));
  }

  answered(cachedTokens: number | undefined): void {
    const { meters, placements, waiting, placementTtlMs } = this.#options;
    waiting.delete(this);
    if (this.#isComputed) this.#prompt.learning?.answered(this.#learnedTarget, cachedTokens);
    if (cachedTokens === undefined) return;
    meters.reported(cachedTokens);
    meters.compared(this.#matchedTokens, cachedTokens);
    // The engine has just processed the whole prompt: what it did not hold, it has computed.
    if (!this.#isKept || !this.#isComputed || this.#hasFacts) return;
    placements.confirm(this.#target, this.#prompt, placementTtlMs);
  }

  get #isKept(): boolean {
    return this.#target < maxKnownTargets && this.#prompt.blockCount > 0;
  }

  /** Whether the feed covers the prompt's blocks. */
  get #hasFacts(): boolean {
    return this.#prompt.from !== "bytes" && this.#options.feedQualityOf(this.#target) === "complete";
  }

  #place(ttlMs: number): void {
    const { placements, clock } = this.#options;
    this.#expiresMs = clock.nowMs() + ttlMs;
    placements.place(this.#target, this.#prompt, ttlMs);
  }
}

/** Placements for this router only. */
export function createLocalPlacements(index: PrefixIndex, clock: Clock): PlacementWriter {
  return {
    place(target, { chain, blockCount }, ttlMs) {
      index.place(target, chain, blockCount, { nowMs: clock.nowMs(), ttlMs });
    },
    confirm(target, { chain, blockCount }, ttlMs) {
      index.confirm(target, chain, blockCount, { nowMs: clock.nowMs(), ttlMs });
    },
    refute(target, { chain, blockCount }, from) {
      index.refute(target, chain, { from, blockCount, nowMs: clock.nowMs() });
    },
  };
}

/** Facts and placements of a prompt at one target as the index has them: in blocks, before quality is applied. */
export interface PrefixEvidence {
  /** Confidence of the feed. Facts of a `void` or `none` feed are ignored. */
  readonly quality: FeedQuality;
  /** Leading blocks that the engine has announced and can use, each in its fastest tier. */
  readonly factBlocks: Readonly<Record<TierName, number>>;
  /** With those after its last resume point, if its model is a hybrid one. */
  readonly heldBlocks: number;
  /** Blocks in pools that the target can fetch from. */
  readonly pools: readonly PoolEvidence[];
  /** Leading blocks placed there; null if there are none. */
  readonly placement: PlacementEvidence | null;
}

export interface PoolEvidence {
  readonly pool: string;
  readonly quality: FeedQuality;
  /** Leading blocks of the prompt, in any tier of the pool. */
  readonly blocks: number;
}

/** The pools in a target's reach, and the quality of feeds. */
interface EvidenceSources {
  readonly pools: readonly KnownPool[];
  readonly feedQualityOf: (target: TargetIndex) => FeedQuality;
}

interface PlacementEvidence {
  readonly blocks: number;
  /** Leading blocks that the engine has confirmed by the cached tokens of an answer. */
  readonly confirmedBlocks: number;
  /** Time since the deepest of them was last used. */
  readonly ageMs: number;
  /** The router that used it then, by its number in the index: 0 for this router. */
  readonly by: number;
}

function prefixEvidence(
  matches: PrefixMatches,
  target: TargetIndex,
  { pools, feedQualityOf }: EvidenceSources,
): PrefixEvidence {
  const gpu = matches.gpuBlocks[target]!;
  const blocksIn = (name: TierName, inTier: number): [TierName, number] => [
    name,
    // After a stretch in a slower tier the chain may continue on the GPU.
    matches.tierBlocks[inTier]![target]! + (name === "gpu" ? gpu : 0),
  ];
  const blocks = matches.placedBlocks[target]!;
  return {
    quality: feedQualityOf(target),
    factBlocks: Object.fromEntries(tierNames.map(blocksIn)) as Record<TierName, number>,
    heldBlocks: matches.heldBlocks[target]!,
    pools: pools.map(({ name, index }) => ({
      pool: name,
      quality: feedQualityOf(index),
      blocks: matches.factBlocks[index]!,
    })),
    placement:
      blocks === 0
        ? null
        : {
            blocks,
            confirmedBlocks: matches.confirmedBlocks[target]!,
            ageMs: matches.placementAgeMs[target]!,
            by: matches.placedBy[target]!,
          },
  };
}
