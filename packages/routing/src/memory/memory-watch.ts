import type { Clock, TargetIndex } from "@espalier/core";
import { type PrefixIndex, tier } from "@espalier/prefix-index";
import type { FeedQuality } from "@espalier/shared-tree";
import type { PromptBlocks } from "../prefix/prompt-blocks.ts";
import { leafKey, type PromptUse, RecentUses } from "./recent-uses.ts";

/** The target in question: a rank of an engine, and what is on its way there. */
interface MemoryTarget {
  readonly index: TargetIndex;
  readonly signals: { readonly blockSize: number; readonly blockCount: number };
}

interface MemoryWatchOptions {
  readonly clock: Clock;
  /** What targets have announced of their blocks. */
  readonly index: Pick<PrefixIndex, "factBlockCount" | "findByLow">;
  readonly feedQualityOf: (target: TargetIndex) => FeedQuality;
}

/** A prompt that was idle for longer is not expected to continue. */
const forgottenMs = 600_000;
/** Interval at which idle times of prompts are counted. */
const countMs = 1_000;
/** Within this time an engine's events may still announce the blocks of a prompt sent to it. */
const eventsDueMs = 10_000;
/** Bound of prompts examined per question. */
export const maxVictims = 256;

/**
 * What an engine would lose by taking in a prompt. If its memory is full, it evicts what was used longest ago (as vLLM
 * and SGLang do), and a later request may need that. Learned from the times when prompts are sent and continued, at
 * engines whose events are complete.
 */
export class MemoryWatch {
  readonly #options: MemoryWatchOptions;
  readonly #uses = new RecentUses();
  readonly #gaps = new ReuseGaps();
  #countedMs = Number.NEGATIVE_INFINITY;

  constructor(options: MemoryWatchOptions) {
    this.#options = options;
  }

  /** The prompt that this one continues. */
  before({ chain, blockCount }: PromptBlocks): PromptUse | undefined {
    return this.#uses.before(chain, blockCount);
  }

  /** Call once for each prompt that arrives at this router, before it is sent. */
  arrived({ chain, blockCount }: PromptBlocks): void {
    const before = this.#uses.before(chain, blockCount);
    if (!before || before.isClaimed) return;
    before.isClaimed = true;
    this.#gaps.observe(this.#options.clock.nowMs() - before.usedMs);
  }

  /** Names a prompt among routers; undefined for one without a full block. */
  keyOf({ chain, blockCount }: PromptBlocks): number | undefined {
    return blockCount > 0 ? leafKey(chain, blockCount - 1) : undefined;
  }

  /** Its client will not continue the prompt with this key. */
  ended(key: number): void {
    this.#uses.end(key);
  }

  /** Records that a router sends a prompt to a target. @param isOwn whether this router does */
  sent(target: number, words: Uint32Array, blockCount: number, isOwn: boolean): void {
    this.#uses.add(target, words, blockCount, { usedMs: this.#options.clock.nowMs(), isOwn });
  }

  /**
   * Share of what a target takes in that would evict prompts expected to continue; 0 if it has capacity, or nothing is
   * known.
   *
   * @param tokens uncached tokens of the prompt, and of others on their way there
   * @param before the prompt that it continues, which it would not lose
   */
  lossShare({ index, signals }: MemoryTarget, tokens: number, before?: PromptUse): number {
    const { blockSize, blockCount } = signals;
    const held = this.#options.index.factBlockCount(index, tier.gpu);
    const wanted = held + tokens / blockSize - blockCount;
    if (!(wanted > 0) || this.#options.feedQualityOf(index) !== "complete") return 0;
    this.#count();
    this.#dropLost(index);
    // Blocks that are not remembered were used before all remembered ones.
    let missing = wanted - Math.max(0, held - this.#uses.blocksAt(index));
    let lost = 0;
    let looked = 0;
    for (const use of this.#uses.at(index)) {
      if (missing <= 0 || ++looked > maxVictims) break;
      if (use === before || this.#isLost(use)) continue;
      const blocks = Math.min(missing, use.blocks);
      missing -= blocks;
      lost += blocks * this.#reuseShare(use);
    }
    return lost / wanted;
  }

  #reuseShare({ isOver, isClaimed, usedMs }: PromptUse): number {
    if (isOver) return 0;
    return isClaimed ? 1 : this.#gaps.shareAfter(this.#options.clock.nowMs() - usedMs);
  }

  /** Whether, by its events, the target has dropped the end of a prompt. */
  #isLost({ target, low, usedMs }: PromptUse): boolean {
    const { clock, index } = this.#options;
    return clock.nowMs() - usedMs > eventsDueMs && index.findByLow(target, tier.gpu, low) === 0;
  }

  /** Drops the prompts used longest ago first. A prompt stays known while another target has it. */
  #dropLost(target: number): void {
    let looked = 0;
    for (const use of this.#uses.at(target)) {
      if (!this.#isLost(use) || ++looked > maxVictims) return;
      this.#uses.drop(use);
    }
  }

  #count(): void {
    const nowMs = this.#options.clock.nowMs();
    if (nowMs - this.#countedMs < countMs) return;
    this.#countedMs = nowMs;
    for (const use of this.#uses.all()) {
      if (nowMs - use.usedMs <= forgottenMs) break;
      this.#uses.remove(use);
    }
    this.#gaps.takeIdle(this.#idleTimes(nowMs), nowMs);
  }

  /** Idle times of prompts that this router has sent: it sees the same share of continuations as of prompts. */
  *#idleTimes(nowMs: number): Iterable<number> {
    for (const { isOwn, isClaimed, usedMs } of this.#uses.all()) if (isOwn && !isClaimed) yield nowMs - usedMs;
  }
}

/** Half-life of observed gaps. */
const halfLifeMs = 300_000;
/** Times are counted in steps of a quarter of a doubling, from here on. */
const firstMs = 100;
const stepsPerDoubling = 4;
/** Up to 410 s; longer times count as that. */
const steps = 48;
/** With fewer samples the answer is 0. */
const leastSeen = 8;

/**
 * How long prompts stay idle until another prompt continues them, and so the probability that one continues after being
 * idle for some time. Prompts without a continuation so far count as if none would come: prompts that end at once must
 * not look as if they continued.
 */
export class ReuseGaps {
  readonly #gaps = new Float64Array(steps);
  readonly #idle = new Float64Array(steps);
  #decayedMs = Number.NEGATIVE_INFINITY;

  /** A prompt was continued after this time. */
  observe(gapMs: number): void {
    this.#gaps[Math.floor(stepOf(gapMs))]! += 1;
  }

  /** These prompts have been idle for this long without a continuation so far. */
  takeIdle(idleTimesMs: Iterable<number>, nowMs: number): void {
    const decay = this.#decayedMs === Number.NEGATIVE_INFINITY ? 1 : 0.5 ** ((nowMs - this.#decayedMs) / halfLifeMs);
    for (let step = 0; step < steps; step++) this.#gaps[step]! *= decay;
    this.#decayedMs = nowMs;
    this.#idle.fill(0);
    for (const idleMs of idleTimesMs) this.#idle[Math.floor(stepOf(idleMs))]! += 1;
  }

  /** Probability that a prompt that has been idle this long will be continued; 0 while too little is known. */
  shareAfter(idleMs: number): number {
    const later = above(this.#gaps, idleMs);
    const seen = later + above(this.#idle, idleMs);
    return seen < leastSeen ? 0 : later / seen;
  }
}

/** From 0 to below `steps`. */
function stepOf(ms: number): number {
  const step = stepsPerDoubling * Math.log2(Math.max(firstMs, ms) / firstMs);
  return Math.min(steps - 1, step);
}

/** How many counted times are longer; assumes that times spread evenly within their step. */
function above(counts: Float64Array, ms: number): number {
  const at = stepOf(ms);
  const step = Math.floor(at);
  let sum = counts[step]! * (1 - (at - step));
  for (let longer = step + 1; longer < steps; longer++) sum += counts[longer]!;
  return sum;
}
