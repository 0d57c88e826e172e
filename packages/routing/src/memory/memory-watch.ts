import type { Clock, TargetIndex } from "@espalier/common";
import { type PrefixIndex, tier } from "@espalier/prefix-index";
import type { FeedConfidence } from "../prefix/prefix-knowledge.ts";
import type { PromptBlocks } from "../prefix/prompt-blocks.ts";
import { type PromptUse, RecentUses } from "./recent-uses.ts";

/** What is asked about: an engine's rank, and what is on its way there. */
interface MemoryTarget {
  readonly index: TargetIndex;
  readonly signals: { readonly blockSize: number; readonly blockCount: number };
}

interface MemoryWatchOptions {
  readonly clock: Clock;
  /** What targets have told of their blocks. */
  readonly index: Pick<PrefixIndex, "factBlockCount" | "findByLow">;
  readonly feedConfidenceOf: (target: TargetIndex) => FeedConfidence;
}

/** A prompt that was idle for longer is not expected to be gone on with. */
const forgottenMs = 600_000;
/** How often it is counted how long prompts have been idle. */
const countMs = 1_000;
/** An engine's events may tell so late of what was sent to it that it holds it. */
const eventsDueMs = 10_000;
/** Prompts that are looked at in one question. */
export const maxVictims = 256;

/**
 * What an engine would lose by taking in a prompt: with its memory full, it drops what was used longest ago (as vLLM and
 * SGLang do), and that may be what somebody comes back for. Learned from when prompts are sent and when others go on with
 * them, of the engines whose events tell everything.
 */
export class MemoryWatch {
  readonly #options: MemoryWatchOptions;
  readonly #uses = new RecentUses();
  readonly #gaps = new ReuseGaps();
  #countedMs = Number.NEGATIVE_INFINITY;

  constructor(options: MemoryWatchOptions) {
    this.#options = options;
  }

  /** The prompt that this one goes on with. */
  before({ chain, blockCount }: PromptBlocks): PromptUse | undefined {
    return this.#uses.before(chain, blockCount);
  }

  /** A prompt came to this router. To be called once for each, before it is sent. */
  arrived({ chain, blockCount }: PromptBlocks): void {
    const before = this.#uses.before(chain, blockCount);
    if (!before || before.isClaimed) return;
    before.isClaimed = true;
    this.#gaps.observe(this.#options.clock.nowMs() - before.usedMs);
  }

  /** Somebody sends a prompt to a target. @param isOwn whether this router does */
  sent(target: number, words: Uint32Array, blockCount: number, isOwn: boolean): void {
    this.#uses.add(target, words, blockCount, { usedMs: this.#options.clock.nowMs(), isOwn });
  }

  /**
   * Which share of what a target takes in would drive out what somebody is expected to come back for; 0 where it has room,
   * or nothing is known.
   *
   * @param tokens of the prompt that it does not hold, and of others that are on their way there
   * @param before what the prompt goes on with, which would not be lost to it
   */
  lossShare({ index, signals }: MemoryTarget, tokens: number, before?: PromptUse): number {
    const { blockSize, blockCount } = signals;
    const held = this.#options.index.factBlockCount(index, tier.gpu);
    const wanted = held + tokens / blockSize - blockCount;
    if (!(wanted > 0) || this.#options.feedConfidenceOf(index) !== "complete") return 0;
    this.#count();
    this.#dropLost(index);
    // What is not remembered was used before all that is.
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

  /** Whether the target has dropped the end of a prompt, by its events. */
  #isLost({ target, low, usedMs }: PromptUse): boolean {
    const { clock, index } = this.#options;
    return clock.nowMs() - usedMs > eventsDueMs && index.findByLow(target, tier.gpu, low) === 0;
  }

  /** Those that were used longest ago are dropped first. A prompt goes on being known as long as another target has it. */
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

  /** Of what this router has sent: it sees as large a part of what goes on as of what it has sent. */
  *#idleTimes(nowMs: number): Iterable<number> {
    for (const { isOwn, isClaimed, usedMs } of this.#uses.all()) if (isOwn && !isClaimed) yield nowMs - usedMs;
  }
}

/** Half of the gaps that were seen is forgotten in this time. */
const halfLifeMs = 300_000;
/** Times are counted in steps of a quarter of a doubling, from here on. */
const firstMs = 100;
const stepsPerDoubling = 4;
/** Up to 410 s; what is longer counts as that. */
const steps = 48;
/** Of less nothing is said. */
const leastSeen = 8;

/**
 * How long prompts stay idle until another one goes on with them, and so how likely that is to happen to one that has been
 * idle for a while. Those that nobody has gone on with by now count as if nobody would: what ends at once must not look as
 * if it went on.
 */
export class ReuseGaps {
  readonly #gaps = new Float64Array(steps);
  readonly #idle = new Float64Array(steps);
  #decayedMs = Number.NEGATIVE_INFINITY;

  /** A prompt was gone on with after so long. */
  observe(gapMs: number): void {
    this.#gaps[Math.floor(stepOf(gapMs))]! += 1;
  }

  /** These have been idle for so long, and nobody has gone on with them yet. */
  takeIdle(idleTimesMs: Iterable<number>, nowMs: number): void {
    const decay = this.#decayedMs === Number.NEGATIVE_INFINITY ? 1 : 0.5 ** ((nowMs - this.#decayedMs) / halfLifeMs);
    for (let step = 0; step < steps; step++) this.#gaps[step]! *= decay;
    this.#decayedMs = nowMs;
    this.#idle.fill(0);
    for (const idleMs of idleTimesMs) this.#idle[Math.floor(stepOf(idleMs))]! += 1;
  }

  /** Probability that a prompt which has been idle for so long will be gone on with; 0 while too little is known. */
  shareAfter(idleMs: number): number {
    const later = above(this.#gaps, idleMs);
    const seen = later + above(this.#idle, idleMs);
    return seen < leastSeen ? 0 : later / seen;
  }
}

/** 0 to below `steps`. */
function stepOf(ms: number): number {
  const step = stepsPerDoubling * Math.log2(Math.max(firstMs, ms) / firstMs);
  return Math.min(steps - 1, step);
}

/** How many of the counted are longer, spread evenly over their steps. */
function above(counts: Float64Array, ms: number): number {
  const at = stepOf(ms);
  const step = Math.floor(at);
  let sum = counts[step]! * (1 - (at - step));
  for (let longer = step + 1; longer < steps; longer++) sum += counts[longer]!;
  return sum;
}
