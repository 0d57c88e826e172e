import { HEAD } from "./block-pool.ts";
import type { CacheLog, HashChain, KvCache } from "./kv-cache.ts";
import type { TokenRange } from "./kv-pull.ts";
import { ReusableBlocks } from "./reusable-blocks.ts";
import type { EngineParameters, FreeOrder, PartialGroup, Retention } from "./types.ts";

/** Bound of groups of states. */
export const maxStateGroups = 31;

/** The groups beside full attention. */
export function partialGroupsOf({ windowTokens = 0, stateGroups = 0 }: EngineParameters): readonly PartialGroup[] {
  const states = Array.from({ length: stateGroups }, () => ({ kind: "state" }) as const);
  return windowTokens > 0 ? [{ kind: "window", tokens: windowTokens }, ...states] : states;
}

/**
 * Most blocks of a group of states while a request is computed: one found, the one in use, two that are kept where prompts
 * part and end, and one where the step ends.
 */
const stateBlocks = 5;
/** Positions that a window may reach into beside what it needs and what a step computes. */
const windowMargin = 2;

/** Most blocks that a request of so many tokens takes in all groups, whatever it finds. */
export function mostBlocksOf(parameters: EngineParameters, tokens: number): number {
  const blocks = Math.ceil(tokens / parameters.blockSize);
  return partialGroupsOf(parameters).reduce(
    (sum, { kind }) => sum + (kind === "state" ? stateBlocks : blocks + windowMargin),
    blocks,
  );
}

/** No block at a position. */
const none = -1;

/** The blocks of one request in one group, by position in the prompt. */
interface GroupBlocks {
  readonly blocks: Int32Array;
  /** Positions before this one need no block any more. */
  from: number;
  /** Positions from this one on have no block yet. */
  to: number;
}

interface HybridAllocation<Chain extends HashChain> {
  readonly chain: Chain;
  /** The group with full attention is last. */
  readonly groups: readonly GroupBlocks[];
  /** Positions whose full blocks are indexed. */
  entered: number;
  /** Positions found by the last `match`, and how many of full attention alone. */
  matched: number;
  matchedFull: number;
  /** Positions after which the windows and states are kept, ascending. */
  checkpoints: readonly number[];
}

interface HybridCacheOptions<Chain extends HashChain> {
  readonly blockCount: number;
  readonly blockSize: number;
  readonly prefixCaching: boolean;
  readonly freeOrder: FreeOrder;
  readonly log: CacheLog<Chain>;
  readonly partialGroups: readonly PartialGroup[];
  readonly retention: Retention;
}

/**
 * vLLM's cache of a hybrid model (`HybridKVCacheCoordinator`): one pool of blocks, of which every group takes its own. A
 * prefix can be used up to where every group has what it needs: full attention all blocks, a sliding window those that
 * cover it, a state the one that ends there. By default windows and states are kept only where a prompt that is sent again
 * would resume, and where a prompt left one that is cached (`prefix_cache_retention_interval` of 0).
 *
 * A group of states has one block for the state in use, and one for each state that is kept. Densely kept are those at the
 * ends of steps, since a step makes no others.
 */
export class HybridCache<Chain extends HashChain> implements KvCache<HybridAllocation<Chain>, Chain> {
  readonly #options: HybridCacheOptions<Chain>;
  readonly #blocks: ReusableBlocks;
  /** Of blocks with content. */
  readonly #groupOf: Uint8Array;
  /** By partial group: blocks that a hit needs before its end. */
  readonly #needs: readonly number[];
  readonly #full: number;

  constructor(options: HybridCacheOptions<Chain>) {
    const { blockCount, blockSize, partialGroups, log } = options;
    this.#options = options;
    this.#blocks = new ReusableBlocks({
      ...options,
      onEvicted: (hash, block, _wasLast, adapter) => {
        const group = this.#groupOf[block]!;
        hash[0]! ^= saltOf(group);
        log.removed(hash, adapter, group);
      },
    });
    this.#groupOf = new Uint8Array(blockCount);
    this.#full = partialGroups.length;
    this.#needs = partialGroups.map((group) =>
      group.kind === "window" ? Math.max(1, Math.ceil((group.tokens - 1) / blockSize)) : 1,
    );
  }

  open(chain: Chain): HybridAllocation<Chain> {
    const positions = this.#blocksFor(chain.totalTokens);
    const groups = Array.from({ length: this.#full + 1 }, () => ({
      blocks: new Int32Array(positions).fill(none),
      from: 0,
      to: 0,
    }));
    return { chain, groups, entered: 0, matched: 0, matchedFull: 0, checkpoints: [] };
  }

  match(allocation: HybridAllocation<Chain>, limitTokens: number): number {
    const { blockSize, prefixCaching } = this.#options;
    allocation.matched = 0;
    allocation.matchedFull = 0;
    if (!prefixCaching) return 0;
    const limit = Math.floor(limitTokens / blockSize);
    allocation.chain.hashBlocks(limit);
    let full = 0;
    while (full < limit && this.#find(allocation.chain, full, this.#full) >= 0) full++;
    let usable = full;
    for (let group = 0; group < this.#full; ) {
      const missing = this.#lastMissing(allocation.chain, group, usable);
      if (missing < 0) group++;
      else {
        // No end after the missing block is possible, so the other groups are asked again.
        usable = missing;
        group = 0;
      }
    }
    allocation.matched = usable;
    allocation.matchedFull = full;
    return usable * blockSize;
  }

  /** There is no memory behind it. */
  reach(_allocation: HybridAllocation<Chain>, matchedTokens: number): number {
    return matchedTokens;
  }

  isLoading(): boolean {
    return false;
  }

  load(_allocation: HybridAllocation<Chain>, _range: TokenRange, nowMs: number): number {
    return nowMs;
  }

  loaded(): void {}

  admit(allocation: HybridAllocation<Chain>, tokens: number, requiredTokens: number, readyTokens: number): boolean {
    const { matched, matchedFull, chain } = allocation;
    const found: { readonly group: number; readonly position: number; readonly block: number }[] = [];
    for (let group = 0; group <= this.#full; group++) {
      for (let position = this.#firstNeeded(group, matched); position < matched; position++) {
        found.push({ group, position, block: this.#find(chain, position, group) });
      }
    }
    const foundFree = found.filter(({ block }) => this.#blocks.isFree(block)).length;
    if (this.#blocksToAdmit(matched, tokens, requiredTokens) + foundFree > this.#blocks.freeCount) return false;
    for (const { group, position, block } of found) {
      this.#blocks.share(block);
      allocation.groups[group]!.blocks[position] = block;
    }
    for (const [group, held] of allocation.groups.entries()) {
      held.from = this.#firstNeeded(group, matched);
      held.to = matched;
    }
    allocation.entered = matched;
    allocation.checkpoints = this.#checkpointsOf(chain, matched < matchedFull ? matchedFull : 0);
    this.#take(allocation, tokens);
    this.#enterFull(allocation, readyTokens);
    return true;
  }

  grow(allocation: HybridAllocation<Chain>, tokens: number): boolean {
    this.#leaveBehind(allocation, Math.floor((tokens - 1) / this.#options.blockSize));
    if (this.#blocksToGrow(allocation, tokens) > this.#blocks.freeCount) return false;
    this.#take(allocation, tokens);
    this.#enterFull(allocation, tokens);
    return true;
  }

  idleUpTo(allocation: HybridAllocation<Chain>): number {
    const { blockSize, prefixCaching } = this.#options;
    const heldTokens = allocation.groups[this.#full]!.to * blockSize;
    return prefixCaching ? Math.min(heldTokens, (allocation.entered + 1) * blockSize - 1) : heldTokens;
  }

  entersNext(): boolean {
    return false;
  }

  planned(): void {}

  isSettled(): boolean {
    return true;
  }

  computed(): void {}

  release(allocation: HybridAllocation<Chain>): void {
    for (const held of allocation.groups) {
      let uncachedTail = HEAD;
      for (let position = held.to - 1; position >= held.from; position--) {
        uncachedTail = this.#drop(held, position, uncachedTail);
      }
      held.from = 0;
      held.to = 0;
    }
    allocation.entered = 0;
  }

  reset(): boolean {
    if (!this.#blocks.clear()) return false;
    this.#options.log.cleared();
    return true;
  }

  freeBlocks(): number {
    return this.#blocks.freeCount;
  }

  cachedBlocks(): number {
    return this.#blocks.cachedCount;
  }

  cpuBlocks(): number {
    return 0;
  }

  #blocksFor(tokens: number): number {
    return Math.ceil(tokens / this.#options.blockSize);
  }

  #isState(group: number): boolean {
    return this.#options.partialGroups[group]?.kind === "state";
  }

  /** The first position that a request with this many computed positions still needs. */
  #firstNeeded(group: number, computed: number): number {
    return group === this.#full ? 0 : Math.max(0, computed - this.#needs[group]!);
  }

  /** The last position that a hit of this many needs and that the group lacks; -1 for none. */
  #lastMissing(chain: Chain, group: number, usable: number): number {
    for (let position = usable - 1; position >= this.#firstNeeded(group, usable); position--) {
      if (this.#find(chain, position, group) < 0) return position;
    }
    return none;
  }

  /** Positions at whose end windows and states are kept: where the prompt would resume, and where it left a cached one. */
  #checkpointsOf(chain: Chain, junction: number): readonly number[] {
    const replay = Math.floor((chain.promptTokens - 1) / this.#options.blockSize);
    return junction > 0 && junction < replay ? [junction, replay] : [replay];
  }

  /** @param stepEnd positions that are full when the step ends */
  #isKept({ checkpoints }: HybridAllocation<Chain>, group: number, position: number, stepEnd: number): boolean {
    if (group === this.#full) return true;
    if (this.#options.retention === "dense" && (!this.#isState(group) || position === stepEnd - 1)) return true;
    return checkpoints.some((end) => position < end && position >= end - this.#needs[group]!);
  }

  /** Blocks that must be free for a request, without those that it found. */
  #blocksToAdmit(matched: number, tokens: number, requiredTokens: number): number {
    const step = this.#blocksFor(tokens) - matched;
    let blocks = this.#blocksFor(requiredTokens) - matched;
    for (let group = 0; group < this.#full; group++) {
      const most = this.#isState(group) ? stateBlocks : step + this.#needs[group]! + 1;
      blocks += Math.min(most, this.#blocksFor(requiredTokens) - matched + windowMargin);
    }
    return blocks;
  }

  #blocksToGrow(allocation: HybridAllocation<Chain>, tokens: number): number {
    const wanted = this.#blocksFor(tokens);
    const stepEnd = Math.floor(tokens / this.#options.blockSize);
    let blocks = 0;
    for (const [group, held] of allocation.groups.entries()) {
      for (let position = held.to; position < wanted; position++) {
        if (this.#takesBlock(allocation, group, position, stepEnd)) blocks++;
      }
    }
    return blocks;
  }

  /** A group of states takes a block for its first position, which it goes on to use, and for states that are kept. */
  #takesBlock(allocation: HybridAllocation<Chain>, group: number, position: number, stepEnd: number): boolean {
    if (!this.#isState(group) || position === allocation.matched) return true;
    return this.#isKept(allocation, group, position, stepEnd);
  }

  #take(allocation: HybridAllocation<Chain>, tokens: number): void {
    const wanted = this.#blocksFor(tokens);
    const stepEnd = Math.floor(tokens / this.#options.blockSize);
    for (const [group, held] of allocation.groups.entries()) {
      for (; held.to < wanted; held.to++) {
        if (this.#takesBlock(allocation, group, held.to, stepEnd)) held.blocks[held.to] = this.#blocks.take();
      }
    }
  }

  /** Gives back what windows and states have left behind. */
  #leaveBehind(allocation: HybridAllocation<Chain>, computed: number): void {
    for (let group = 0; group < this.#full; group++) {
      const held = allocation.groups[group]!;
      const first = Math.min(held.to, this.#firstNeeded(group, computed));
      let uncachedTail = HEAD;
      for (let position = first - 1; position >= held.from; position--) {
        uncachedTail = this.#drop(held, position, uncachedTail);
      }
      held.from = Math.max(held.from, first);
    }
  }

  /** Returns a block of a request. @returns what the next uncached one follows in the free queue */
  #drop(held: GroupBlocks, position: number, uncachedTail: number): number {
    const block = held.blocks[position]!;
    held.blocks[position] = none;
    return block < 0 ? uncachedTail : this.#blocks.giveBack(block, uncachedTail);
  }

  /** Indexes the blocks that the first `tokens` tokens fill, group by group. */
  #enterFull(allocation: HybridAllocation<Chain>, tokens: number): void {
    const { blockSize, prefixCaching, log } = this.#options;
    const { chain, groups, entered } = allocation;
    const full = Math.floor(tokens / blockSize);
    if (!prefixCaching || full <= entered) return;
    chain.hashBlocks(full);
    for (const [group, held] of groups.entries()) {
      const kept: number[] = [];
      for (let position = entered; position < full; position++) {
        const block = held.blocks[position]!;
        if (block < 0 || !this.#isKept(allocation, group, position, full)) continue;
        const [a, b] = [chain.hashes[2 * position]! ^ saltOf(group), chain.hashes[2 * position + 1]!];
        this.#blocks.enter(block, a, b, chain.adapter);
        this.#groupOf[block] = group;
        kept.push(position);
      }
      log.stored(chain, entered, full, { group, kept });
    }
    allocation.entered = full;
  }

  #find(chain: Chain, position: number, group: number): number {
    return this.#blocks.find(chain.hashes[2 * position]! ^ saltOf(group), chain.hashes[2 * position + 1]!);
  }
}

/** Distinguishes the blocks of groups in one index. */
const saltOf = (group: number): number => Math.imul(group, 0x9e3779b1);
