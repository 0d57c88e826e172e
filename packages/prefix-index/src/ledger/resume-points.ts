import { attention } from "../engine-events.ts";
import { resumePoint } from "../tiers.ts";
import { type BlockTree, nodeFlag } from "./block-tree.ts";
import type { CacheGroups, PartialGroup } from "./cache-groups.ts";
import type { FactTree } from "./fact-tree.ts";
import type { GroupBlocks } from "./group-blocks.ts";
import type { SinkRuns } from "./ledger-sink.ts";
import { nodeField } from "./node-table.ts";

interface ResumeOptions {
  readonly tree: BlockTree;
  readonly facts: FactTree;
  readonly runs: SinkRuns;
  /** Nodes per engine block, one or more; the last has its name. */
  readonly partsPerBlock: number;
  /** Engine blocks per router block, one or more. */
  readonly nodesPerBlock: number;
  /** Whether a node ends a router block. */
  readonly isReported: (id: number) => boolean;
  /** Tokens per engine block. */
  readonly engineBlockSize: number;
}

/** Groups that need the same. */
interface Needs {
  readonly attention: number;
  /** The groups, one bit each. */
  bits: number;
  /** Engine blocks in one block of these groups. */
  readonly step: number;
  /** Blocks of these groups in one engine block, if those are the larger ones. */
  readonly parts: number;
  /** How many of their blocks a window or a chunk spans. */
  readonly blocks: number;
  /** By node: how many consecutive blocks, this one last, all these groups have; at most `blocks`. */
  readonly runs: Map<number, number>;
}

/**
 * Finds the resume points of a hybrid model: the blocks after which every cache group has what it needs. As in vLLM's
 * `find_longest_cache_hit`, a window needs as many blocks as cover its tokens but one, or all since the beginning of the
 * prompt; a chunk those since its own beginning; a state the block that it ends.
 *
 * Nodes carry a flag each, and the sink hears of router blocks. If those are larger than the engine's, one counts as a
 * resume point as soon as the engine can resume anywhere before the next one.
 */
export class ResumePoints {
  readonly #options: ResumeOptions;
  /** The engine's hashes of blocks that changed, two words each. */
  #changed: number[] = [];
  readonly #changedNodes = new Set<number>();
  #needs: Needs[] = [];
  #groupsKnown = 0;
  /** Blocks from a changed one to the farthest that depends on it. */
  #reach = 0;
  /** Blocks that the largest block of a group spans: those in between have none. */
  #maxStep = 1;
  /** By node, while points are updated: the groups that have its block; its depth in engine blocks, from 1. */
  readonly #groups = new Map<number, number>();
  readonly #depths = new Map<number, number>();

  constructor(options: ResumeOptions) {
    this.#options = options;
    options.tree.trackChildren();
    options.facts.watcher = this;
  }

  /** A block was named in the tree, or a group stored or removed it. */
  changed(low: number, high: number): void {
    this.#changed.push(low, high);
  }

  /** A node is about to leave the tree. */
  released(node: number): void {
    const { tree, runs, nodesPerBlock } = this.#options;
    if (!tree.hasFlag(node, nodeFlag.resumes | nodeFlag.resumePoint)) return;
    if (tree.hasFlag(node, nodeFlag.resumePoint)) {
      runs.add("removed", resumePoint, tree.table.words, node * tree.table.stride + nodeField.chain);
    }
    if (nodesPerBlock > 1) this.#changedNodes.add(tree.parentOf(node));
  }

  /** Whether the engine can resume after the block with this hash. */
  has(low: number, high: number): boolean {
    const node = this.#options.facts.nodeOf(low, high);
    return node !== 0 && this.#options.tree.hasFlag(node, nodeFlag.resumes);
  }

  /** Call after a message. */
  update(groups: CacheGroups, blocks: GroupBlocks): void {
    if (groups.partial.length !== this.#groupsKnown) this.#learn(groups.partial);
    if (this.#changed.length === 0 && this.#changedNodes.size === 0) return;
    const changed = this.#takeChanged();
    const visited = new Set<number>();
    for (const top of changed) {
      const stack = [{ node: top, distance: 0, without: 0 }];
      for (let visit = stack.pop(); visit; visit = stack.pop()) {
        const { node, distance, without } = visit;
        if (visited.has(node)) continue;
        visited.add(node);
        this.#judge(node, blocks);
        if (distance + 1 >= this.#reach) continue;
        for (const child of this.#blocksBelow(node)) {
          const gap = this.#groupsAt(child, blocks) === 0 ? without + 1 : 0;
          if (gap < this.#maxStep && !changed.has(child)) {
            stack.push({ node: child, distance: distance + 1, without: gap });
          }
        }
      }
    }
    this.#groups.clear();
    this.#depths.clear();
    for (const { runs } of this.#needs) runs.clear();
  }

  /** Reports all points to the given runs. */
  reportAll(runs: SinkRuns): void {
    const { tree } = this.#options;
    const { words, stride, end } = tree.table;
    for (let id = 1; id < end; id++) {
      if (!tree.table.isLive(id) || !tree.hasFlag(id, nodeFlag.resumePoint)) continue;
      runs.add("stored", resumePoint, words, id * stride + nodeField.chain);
    }
  }

  #learn(partial: readonly PartialGroup[]): void {
    this.#groupsKnown = partial.length;
    this.#needs = [];
    for (const group of partial) {
      const needs = needsOf(group, this.#options.engineBlockSize);
      const same = this.#needs.find(
        (other) =>
          other.attention === needs.attention &&
          other.step === needs.step &&
          other.parts === needs.parts &&
          other.blocks === needs.blocks,
      );
      if (same) same.bits |= needs.bits;
      else this.#needs.push(needs);
    }
    this.#reach = Math.max(...this.#needs.map(({ step, parts, blocks }) => Math.ceil((step * blocks) / parts) + 1));
    this.#maxStep = Math.max(...this.#needs.map(({ step }) => step));
    const { table } = this.#options.tree;
    for (let id = 1; id < table.end; id++) if (table.isLive(id)) this.#changedNodes.add(id);
  }

  #takeChanged(): Set<number> {
    const { facts, tree } = this.#options;
    const { table } = tree;
    const nodes = new Set<number>();
    for (const node of this.#changedNodes) {
      if (node !== 0 && table.isLive(node) && tree.hasFlag(node, nodeFlag.named | nodeFlag.shared)) nodes.add(node);
    }
    for (let at = 0; at < this.#changed.length; at += 2) {
      const node = facts.nodeOf(this.#changed[at]!, this.#changed[at + 1]!);
      if (node !== 0) nodes.add(node);
    }
    this.#changedNodes.clear();
    this.#changed = [];
    return nodes;
  }

  /** Sets the flags of a node, and of the router block that it continues. */
  #judge(node: number, blocks: GroupBlocks): void {
    const { tree, isReported, nodesPerBlock } = this.#options;
    const resumes = this.#needs.every((needs) => this.#isMet(needs, node, blocks));
    if (resumes) tree.setFlag(node, nodeFlag.resumes);
    else tree.clearFlag(node, nodeFlag.resumes);
    let end = node;
    for (let above = 1; above < nodesPerBlock && end !== 0 && !isReported(end); above++) end = tree.parentOf(end);
    if (end === 0 || !isReported(end)) return;
    const isPoint = this.#resumesWithin(end, nodesPerBlock);
    if (isPoint === tree.hasFlag(end, nodeFlag.resumePoint)) return;
    if (isPoint) tree.setFlag(end, nodeFlag.resumePoint);
    else tree.clearFlag(end, nodeFlag.resumePoint);
    const { words, stride } = tree.table;
    this.#options.runs.add(isPoint ? "stored" : "removed", resumePoint, words, end * stride + nodeField.chain);
  }

  /** Whether the engine can resume after this node or one of the next, fewer than `nodes` of them. */
  #resumesWithin(node: number, nodes: number): boolean {
    const { tree } = this.#options;
    if (tree.hasFlag(node, nodeFlag.resumes)) return true;
    if (nodes === 1) return false;
    for (const child of tree.childrenOf(node)) if (this.#resumesWithin(child, nodes - 1)) return true;
    return false;
  }

  #isMet(needs: Needs, node: number, blocks: GroupBlocks): boolean {
    if (needs.parts > 1) return this.#hasSmallBlocks(needs, node, blocks);
    if (needs.attention !== attention.chunk) return this.#runAt(needs, node, blocks) >= needs.blocks;
    const sinceChunk = Math.floor(this.#depthOf(node) / needs.step) % needs.blocks;
    return sinceChunk === 0 || this.#runAt(needs, node, blocks) >= sinceChunk;
  }

  /** Whether groups whose blocks are smaller than the engine's have what they need before the end of a node. */
  #hasSmallBlocks({ attention: kind, bits, parts, blocks: most }: Needs, node: number, blocks: GroupBlocks): boolean {
    const { facts } = this.#options;
    const isChunk = kind === attention.chunk;
    const needed = isChunk ? (this.#depthOf(node) * parts) % most : most;
    let end = node;
    let hash = facts.namesOf(end)[0];
    for (let found = 0; found < needed; found++) {
      // A window that reaches the beginning needs no more.
      if (end === 0) return !isChunk;
      if (hash === undefined || ((blocks.groupsOf(hash.low, hash.high) & bits) ^ bits) !== 0) return false;
      if ((found + 1) % parts === 0) {
        end = this.#above(end, 1);
        hash = facts.namesOf(end)[0];
      } else hash = blocks.previousOf(hash);
    }
    return true;
  }

  /** Blocks that end with this one and that all groups have, one after the other; all of them count as `needs.blocks`. */
  #runAt({ attention: kind, bits, step, blocks: most, runs }: Needs, node: number, blocks: GroupBlocks): number {
    const path: number[] = [];
    let at = node;
    let run = -1;
    while (run < 0) {
      const known = runs.get(at);
      if (known !== undefined) run = known;
      // A window that reaches the beginning needs no more.
      else if (at === 0) run = kind === attention.window ? most : 0;
      else if (((this.#groupsAt(at, blocks) & bits) ^ bits) !== 0) run = 0;
      else if (path.length === most) return remember(runs, node, most);
      else {
        path.push(at);
        at = this.#above(at, step);
        continue;
      }
      if (at !== 0) runs.set(at, run);
    }
    for (let below = path.pop(); below !== undefined; below = path.pop()) {
      run = Math.min(most, run + 1);
      runs.set(below, run);
    }
    return run;
  }

  /** The node that ends the block this many blocks before, 0 if there is none. */
  #above(node: number, blocks: number): number {
    let above = node;
    for (let left = blocks * this.#options.partsPerBlock; left > 0 && above !== 0; left--) {
      above = this.#options.tree.parentOf(above);
    }
    return above;
  }

  *#blocksBelow(node: number, parts = this.#options.partsPerBlock): Generator<number, void, undefined> {
    for (const child of this.#options.tree.childrenOf(node)) {
      if (parts === 1) yield child;
      else yield* this.#blocksBelow(child, parts - 1);
    }
  }

  #groupsAt(node: number, blocks: GroupBlocks): number {
    let groups = this.#groups.get(node);
    if (groups === undefined) {
      groups = 0;
      for (const { low, high } of this.#options.facts.namesOf(node)) groups |= blocks.groupsOf(low, high);
      this.#groups.set(node, groups);
    }
    return groups;
  }

  /** Engine blocks up to the end of this node. */
  #depthOf(node: number): number {
    const path: number[] = [];
    let at = node;
    let depth = this.#depths.get(at);
    while (depth === undefined) {
      if (at === 0) depth = 0;
      else {
        path.push(at);
        at = this.#above(at, 1);
        depth = this.#depths.get(at);
      }
    }
    for (let below = path.pop(); below !== undefined; below = path.pop()) this.#depths.set(below, ++depth);
    return depth;
  }
}

function needsOf({ attention: kind, bit, blockSize, span }: PartialGroup, engineBlockSize: number): Needs {
  const tokens = blockSize || engineBlockSize;
  const step = Math.max(1, Math.floor(tokens / engineBlockSize));
  const parts = Math.max(1, Math.floor(engineBlockSize / tokens));
  const spanned = kind === attention.window ? Math.ceil((span - 1) / tokens) : Math.floor(span / tokens);
  const blocks = kind === attention.state ? 1 : Math.max(1, spanned);
  return { attention: kind, bits: bit, step, parts, blocks, runs: new Map() };
}

function remember(runs: Map<number, number>, node: number, run: number): number {
  runs.set(node, run);
  return run;
}
