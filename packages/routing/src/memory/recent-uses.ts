import { RecencyMap } from "@espalier/core";

/** One prompt at one target, until another prompt continues it there. */
export interface PromptUse {
  /** Key of its last full block, from `leafKey`. */
  readonly key: number;
  /** The low word of that block. */
  readonly low: number;
  readonly target: number;
  /** Blocks that it and the prompts before it have brought there, including any shared prefix. */
  readonly blocks: number;
  /** When it was last sent. */
  usedMs: number;
  /** This router sent it. */
  isOwn: boolean;
  /** A prompt that continues it has arrived at this router. */
  isClaimed: boolean;
  /** No continuation is expected: one was sent to another target, or the prompt is forgotten. */
  isOver: boolean;
}

/** Bound of remembered prompts of all targets together; beyond it the one used longest ago is forgotten. */
export const maxRecentUses = 65_536;

/** Counters of prompts by the last bits of their last block: 16 for each remembered prompt. */
const leafCounters = 2 ** 20;
/** Bound of a counter; one that reaches it stays there. */
const mostLeaves = 255;

/**
 * Which prompts were sent where, and when last. A prompt continues another one if it begins with all of its full
 * blocks.
 */
export class RecentUses {
  /** How many prompts end with a block, by the last bits of its hash: most blocks need no look at the map. */
  readonly #leaves = new Uint8Array(leafCounters);
  /** By key, the most recently used last. */
  readonly #uses = new RecencyMap<number, PromptUse>();
  /** The same by target, including those that are over there. */
  readonly #byTarget = new Map<number, TargetUses>();

  /** In order of last use. */
  all(): Iterable<PromptUse> {
    return this.#uses.values();
  }

  /** At a target, in order of last use. */
  at(target: number): Iterable<PromptUse> {
    return this.#byTarget.get(target)?.uses.values() ?? [];
  }

  /** Blocks of all remembered prompts at a target. */
  blocksAt(target: number): number {
    return this.#byTarget.get(target)?.blocks ?? 0;
  }

  /** The longest prompt that a chain continues or equals. */
  before(words: Uint32Array, blockCount: number): PromptUse | undefined {
    const at = this.#lastLeaf(words, blockCount);
    return at < 0 ? undefined : this.#uses.get(leafKey(words, at));
  }

  /** The last block with which a remembered prompt ends; -1 for none. */
  #lastLeaf(words: Uint32Array, blockCount: number): number {
    for (let block = blockCount - 1; block >= 0; block--) {
      if (this.#leaves[words[2 * block]! % leafCounters] !== 0 && this.#uses.get(leafKey(words, block))) return block;
    }
    return -1;
  }

  /** A prompt is sent to a target. */
  add(target: number, words: Uint32Array, blockCount: number, sent: Pick<PromptUse, "usedMs" | "isOwn">): void {
    if (blockCount < 1) return;
    const { usedMs, isOwn } = sent;
    let blocks = blockCount;
    const last = blockCount - 1;
    const at = this.#lastLeaf(words, blockCount);
    const before = at < 0 ? undefined : this.#uses.get(leafKey(words, at))!;
    if (before?.target === target) {
      if (this.#usesOf(target).has(before)) blocks = before.blocks + last - at;
      this.remove(before);
    } else if (before) this.#end(before);
    const key = leafKey(words, last);
    const use = { key, low: words[2 * last]!, target, blocks, usedMs, isOwn, isClaimed: false, isOver: false };
    this.#uses.set(key, use);
    this.#count(use, 1);
    this.#usesOf(target).add(use);
    if (this.#uses.size > maxRecentUses) this.remove(this.#uses.oldest()![1]);
  }

  /** Nobody will continue the prompt with this key. */
  end(key: number): void {
    const use = this.#uses.get(key);
    if (use) this.#end(use);
  }

  /** The target has lost it. Other prompts can still continue it. */
  drop(use: PromptUse): void {
    this.#byTarget.get(use.target)?.remove(use);
  }

  /** No continuation is expected any more. */
  remove(use: PromptUse): void {
    this.#end(use);
    this.#byTarget.get(use.target)?.remove(use);
  }

  #end(use: PromptUse): void {
    use.isOver = true;
    if (this.#uses.get(use.key) !== use) return;
    this.#uses.delete(use.key);
    this.#count(use, -1);
  }

  /** A counter that is full stays so. */
  #count({ low }: PromptUse, change: 1 | -1): void {
    const at = low % leafCounters;
    if (this.#leaves[at]! < mostLeaves) this.#leaves[at]! += change;
  }

  #usesOf(target: number): TargetUses {
    let uses = this.#byTarget.get(target);
    if (!uses) {
      uses = new TargetUses();
      this.#byTarget.set(target, uses);
    }
    return uses;
  }
}

/** Prompts that are over also count toward the bound. */
class TargetUses {
  readonly uses = new RecencyMap<number, PromptUse>();
  blocks = 0;

  add(use: PromptUse): void {
    const same = this.uses.get(use.key);
    if (same) this.remove(same);
    this.uses.set(use.key, use);
    this.blocks += use.blocks;
    if (this.uses.size > maxRecentUses) this.remove(this.uses.oldest()![1]);
  }

  has(use: PromptUse): boolean {
    return this.uses.get(use.key) === use;
  }

  remove(use: PromptUse): void {
    if (!this.has(use)) return;
    this.uses.delete(use.key);
    this.blocks -= use.blocks;
  }
}

/** 53 bits of a block's hash. */
export function leafKey(words: Uint32Array, block: number): number {
  return words[2 * block]! + (words[2 * block + 1]! & 0x1f_ffff) * 2 ** 32;
}
