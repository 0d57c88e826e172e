import type { Clock, TargetIndex } from "@espalier/common";
import type { CandidateSet } from "@espalier/policies";
import {
  createPrefixMatches,
  type PrefixIndex,
  type PrefixMatches,
  type TierName,
  tierNames,
} from "@espalier/prefix-index";
import type { RoutingTarget } from "../routing-target.ts";
import type { CacheMeters } from "./cache-meters.ts";
import type { PromptBlocks, RecentPrompts } from "./prompt-blocks.ts";
import { createMatchWriter, type KnownPool, noPools, type PoolReach } from "./write-match.ts";

/**
 * What the events of a target are worth. `complete`: they tell everything that it holds. `partial`: what they told is so,
 * but it may hold more. `void`: what they told may no longer be so. `none`: there are none.
 */
export type FeedStanding = "complete" | "partial" | "void" | "none";

/** What the router knows and guesses of the caches of its targets. */
export interface PrefixKnowledge {
  /** Looks a prompt up at every target. What `describe` tells is of the last one that was looked up. */
  match(prompt: PromptBlocks): void;
  /** Writes what a target is thought to hold of the prompt into the candidate set. */
  describe(target: RoutingTarget, prompt: PromptBlocks, candidates: CandidateSet, index: number): void;
  /** Where that comes from, for people; undefined for a target that nothing is kept of. */
  evidence(target: TargetIndex): PrefixEvidence | undefined;
  /**
   * The prompt is being sent to the target.
   *
   * @param matchedTokens of it, as predicted at the decision
   * @param beside how many of them the target has to fetch from a pool, and how many the best candidate has; none, and as many
   *   as the target, unless given
   */
  place(target: RoutingTarget, prompt: PromptBlocks, matchedTokens: number, beside?: BesideMatch): Placement;
  /** Goes on believing in prompts that still wait to be computed; to be called more often than every five seconds. */
  renew(): void;
  /** The target runs anew, or is gone: nothing that is known or guessed of it holds. */
  forget(target: TargetIndex): void;
  /** The target runs anew: nothing that is guessed of it holds. */
  forgetPlacements(target: TargetIndex): void;
}

/** What is known of a prompt besides what its target has. */
interface BesideMatch {
  /** Tokens that the target does not hold itself, but a pool does. */
  readonly pooledTokens: number;
  /** Tokens that the candidate has that holds most of it. */
  readonly bestTokens: number;
}

/** One prompt at one target. */
export interface Placement {
  /** The first byte of the answer came: the prompt has been computed. */
  computed(): void;
  /** The target failed or refused before that. */
  withdraw(): void;
  /** @param cachedTokens what the engine says it had found in its cache; undefined when it does not, or did not answer */
  answered(cachedTokens: number | undefined): void;
}

/** Where guesses go: into the index of this router, and to the other routers where there are any. */
export interface PlacementWriter {
  place(target: TargetIndex, prompt: PromptBlocks, ttlMs: number): void;
  /** The engine has said itself that it holds the prompt. */
  confirm(target: TargetIndex, prompt: PromptBlocks, ttlMs: number): void;
  /** The engine does not hold the prompt's blocks from `fromBlock` on. */
  refute(target: TargetIndex, prompt: PromptBlocks, fromBlock: number): void;
}

/** What is known and guessed of targets, as decisions read it. */
export interface PrefixStore extends Pick<PrefixIndex, "match" | "forgetTarget"> {
  readonly placements: Pick<PrefixIndex["placements"], "blockCount" | "setCapacity" | "clear">;
}

export interface KnowledgeOptions {
  readonly clock: Clock;
  readonly index: PrefixStore;
  readonly placements: PlacementWriter;
  readonly recent: RecentPrompts;
  readonly meters: CacheMeters;
  readonly standingOf: (target: TargetIndex) => FeedStanding;
  /** Pools whose blocks count for the targets that can fetch them; none unless given. */
  readonly pools?: PoolReach;
  /** How long a guess is believed that no events will confirm. */
  readonly placementTtlMs: number;
  /** Capacity of a target whose metrics do not tell it. */
  readonly placementTokens: number;
  /** A prompt was placed at a target whose events do not tell everything. */
  readonly onPlaced: (target: TargetIndex) => void;
}

/** Targets of higher index have no knowledge kept of them; policies see them as holding nothing. */
export const maxKnownTargets = 4_096;

/**
 * How long a guess is believed where events will bring the fact: from the dispatch, for the prompt may have to wait, and
 * from the first token on, for the events took up to 0.7 s in captures.
 */
const factsDueMs = { fromDispatch: 10_000, fromFirstToken: 2_000 } as const;

/** Writes guesses through `placements` and reads all that is known from `index`, which must be where they end up. */
export function createPrefixKnowledge(options: KnowledgeOptions): PrefixKnowledge {
  const { clock, index, standingOf, pools = noPools } = options;
  const matches = createPrefixMatches(maxKnownTargets);
  const write = createMatchWriter(matches, pools, standingOf);
  const waiting = new Set<PlacedPrompt>();
  const placing: PlacedPromptOptions = { ...options, waiting };
  return {
    match(prompt) {
      index.match(prompt.chain, prompt.blockCount, clock.nowMs(), matches);
    },
    describe(target, prompt, candidates, at) {
      const number = target.index;
      if (number >= maxKnownTargets) return;
      const standing = standingOf(number);
      candidates.heldTokens[at] =
        heldBlocks(index, number, prompt.from === "bytes" ? "none" : standing) * prompt.blockSize;
      write(target, prompt, standing, candidates, at);
    },
    evidence: (target) =>
      target < maxKnownTargets
        ? prefixEvidence(matches, target, { pools: pools.poolsOf(target), standingOf })
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
 * What was sent to a target fills its cache as far as the router knows. By events a full cache is full, and one that answers
 * slowly seems to have room: that would draw the next prompts to it, so there the room is left unknown.
 */
function heldBlocks(index: PrefixStore, target: TargetIndex, standing: FeedStanding): number {
  return standing === "complete" ? Number.NaN : index.placements.blockCount(target);
}

interface PredictedParts extends Pick<BesideMatch, "pooledTokens"> {
  readonly matchedTokens: number;
}

interface PlacedPromptOptions extends KnowledgeOptions {
  /** Prompts that wait to be computed where events will tell of them. */
  readonly waiting: Set<PlacedPrompt>;
}

/** A guess with so little time left is renewed while its prompt waits in an engine's queue. */
const renewalMs = 5_000;

class PlacedPrompt implements Placement {
  readonly #options: PlacedPromptOptions;
  readonly #target: TargetIndex;
  readonly #prompt: PromptBlocks;
  readonly #matchedTokens: number;
  readonly #pooledTokens: number;
  #isComputed = false;
  #expiresMs = 0;

  constructor(options: PlacedPromptOptions, target: RoutingTarget, prompt: PromptBlocks, predicted: PredictedParts) {
    this.#options = options;
    this.#target = target.index;
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
    // Without events there are no blocks that it could help to place.
    if (prompt.from === "bytes" || options.standingOf(target.index) === "none") return;
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
    // What it was to fetch it has not fetched.
    const ownTokens = this.#matchedTokens - this.#pooledTokens;
    this.#options.placements.refute(this.#target, this.#prompt, Math.floor(ownTokens / this.#prompt.blockSize));
  }

  answered(cachedTokens: number | undefined): void {
    const { meters, placements, waiting, placementTtlMs } = this.#options;
    waiting.delete(this);
    if (cachedTokens === undefined) return;
    meters.compared(this.#matchedTokens, cachedTokens);
    // The engine has just read the whole prompt: what it did not hold it has computed.
    if (!this.#isKept || !this.#isComputed || this.#hasFacts) return;
    placements.confirm(this.#target, this.#prompt, placementTtlMs);
  }

  get #isKept(): boolean {
    return this.#target < maxKnownTargets && this.#prompt.blockCount > 0;
  }

  /** Whether events tell of the prompt's blocks. */
  get #hasFacts(): boolean {
    return this.#prompt.from !== "bytes" && this.#options.standingOf(this.#target) === "complete";
  }

  #place(ttlMs: number): void {
    const { placements, clock } = this.#options;
    this.#expiresMs = clock.nowMs() + ttlMs;
    placements.place(this.#target, this.#prompt, ttlMs);
  }
}

/** Guesses that nobody else is told of. */
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

/** What is known and guessed of a prompt at one target, as it is found in the index: in blocks, before it is judged. */
export interface PrefixEvidence {
  /** What the facts are worth: those of a standing of `void` or `none` are not believed. */
  readonly standing: FeedStanding;
  /** Leading blocks that the engine has announced, each in the fastest tier that has it. */
  readonly factBlocks: Readonly<Record<TierName, number>>;
  /** What pools hold that the target can fetch from. */
  readonly pools: readonly PoolEvidence[];
  /** Leading blocks that were sent there; null where none were. */
  readonly placement: PlacementEvidence | null;
}

export interface PoolEvidence {
  readonly pool: string;
  readonly standing: FeedStanding;
  /** Leading blocks of the prompt, in whatever memory of the pool. */
  readonly blocks: number;
}

/** Where a target stands: its feed, and the pools in its reach with theirs. */
interface EvidenceSources {
  readonly pools: readonly KnownPool[];
  readonly standingOf: (target: TargetIndex) => FeedStanding;
}

export interface PlacementEvidence {
  readonly blocks: number;
  /** Leading blocks that the engine has confirmed by the cached tokens of an answer. */
  readonly confirmedBlocks: number;
  /** Since the deepest of them was last used. */
  readonly ageMs: number;
  /** Who used it then, by the number in the index: 0 for this router. */
  readonly by: number;
}

function prefixEvidence(
  matches: PrefixMatches,
  target: TargetIndex,
  { pools, standingOf }: EvidenceSources,
): PrefixEvidence {
  const gpu = matches.gpuBlocks[target]!;
  const blocksIn = (name: TierName, inTier: number): [TierName, number] => [
    name,
    // Behind a stretch in a slower tier the chain may go on on the GPU.
    matches.tierBlocks[inTier]![target]! + (name === "gpu" ? gpu : 0),
  ];
  const blocks = matches.placedBlocks[target]!;
  return {
    standing: standingOf(target),
    factBlocks: Object.fromEntries(tierNames.map(blocksIn)) as Record<TierName, number>,
    pools: pools.map(({ name, index }) => ({
      pool: name,
      standing: standingOf(index),
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
