import { GrowableWords } from "../table/word-pool.ts";
import { type Tier, tierNames } from "../tiers.ts";
import { type BlockTree, nodeFlag } from "./block-tree.ts";
import type { SinkRuns } from "./ledger-sink.ts";
import { nodeField } from "./node-table.ts";

const allTiers = (1 << tierNames.length) - 1;
const holeShift = 4;

interface PresenceOptions {
  readonly tree: BlockTree;
  readonly runs: SinkRuns;
  readonly maxNodes: number;
  /** Nodes per router block: one or more. */
  readonly nodesPerBlock: number;
  /** Whether the sink hears of a node: of several nodes per block only the last is reported. */
  readonly isReported: (id: number) => boolean;
}

/**
 * The tiers of the router's blocks, and the holes that follow. A hole is a block that is not in a tier although a block
 * below it is. A node is present in a tier if it or a descendant is there, so present children are counted per node and
 * tier. While a feed has used only one tier, every child counts and nothing is stored. After that the first tier counts
 * absent children, the others present ones.
 */
export class TierPresence {
  readonly #options: PresenceOptions;
  readonly #tree: BlockTree;
  readonly #runs: SinkRuns;
  /** The tier that counts absent children; -1 if none has been used or none counts them. */
  #first = -1;
  /** Whether children are counted. If not, all of them are present in the first tier. */
  #counting: boolean;
  readonly #counts: TierCounts[] = [];
  #dirty: number[] = [];
  /** Blocks in each tier. */
  readonly blocks = new Float64Array(tierNames.length);
  holes = 0;

  constructor(options: PresenceOptions) {
    this.#options = options;
    this.#tree = options.tree;
    this.#runs = options.runs;
    this.#counting = options.nodesPerBlock > 1;
    for (let tier = 0; tier < tierNames.length; tier++) this.#counts.push(new TierCounts(options.maxNodes));
  }

  get byteLength(): number {
    return this.#counts.reduce((total, counts) => total + counts.byteLength, 0);
  }

  /** The tiers of the router's block, one bit each. */
  tiersOf(id: number): number {
    const { words, stride } = this.#tree.table;
    return words[id * stride + nodeField.link]! & allTiers;
  }

  /** Call before the tree changes for a block of this tier. */
  prepare(tier: number): void {
    if (this.#counting || tier === this.#first) return;
    if (this.#first < 0) this.#first = tier;
    else this.#counting = true;
  }

  /** A node without tiers was added below a parent. */
  linked(parent: number): void {
    if (this.#counting && this.#first >= 0) this.#counts[this.#first]!.change(parent, 1);
  }

  /** A node may be a hole: it was added to the tree for a block below it. */
  suspect(id: number): void {
    if (this.#tree.hasFlag(id, nodeFlag.dirty)) return;
    this.#tree.setFlag(id, nodeFlag.dirty);
    this.#dirty.push(id);
  }

  /** A node that is present in no tier and about to be released was removed from below a parent. */
  unlinked(parent: number): void {
    if (this.#counting && this.#first >= 0) this.#counts[this.#first]!.change(parent, -1);
  }

  gain(id: number, tier: number): void {
    const { words, stride } = this.#tree.table;
    const at = id * stride;
    const link = words[at + nodeField.link]!;
    const bit = 1 << tier;
    if ((link & (bit << holeShift)) !== 0) this.holes--;
    words[at + nodeField.link] = (link | bit) & ~(bit << holeShift);
    this.blocks[tier]! += 1;
    this.#runs.add("stored", tier, words, at + nodeField.chain);
    if (this.#counting && this.#presentChildren(id, tier) === 0) this.#bubble(link >>> 8, tier, 1);
  }

  lose(id: number, tier: number): void {
    const { words, stride } = this.#tree.table;
    const at = id * stride;
    const link = words[at + nodeField.link]!;
    words[at + nodeField.link] = link & ~(1 << tier);
    this.blocks[tier]! -= 1;
    this.#runs.add("removed", tier, words, at + nodeField.chain);
    if (this.#presentChildren(id, tier) > 0) this.suspect(id);
    else if (this.#counting) this.#bubble(link >>> 8, tier, -1);
  }

  /** Call before a node is released: its holes end. */
  forget(id: number): void {
    const { words, stride } = this.#tree.table;
    const holes = (words[id * stride + nodeField.link]! >>> holeShift) & allTiers;
    if (holes === 0) return;
    for (let tier = 0; tier < tierNames.length; tier++) {
      if ((holes & (1 << tier)) !== 0) this.#endHole(id, tier);
    }
  }

  /** Call after an event. Reports the holes that it opened and closed: engines remove parents before children. */
  reconcile(): void {
    const dirty = this.#dirty;
    if (dirty.length === 0) return;
    for (const id of dirty) {
      if (!this.#tree.hasFlag(id, nodeFlag.dirty)) continue;
      this.#tree.clearFlag(id, nodeFlag.dirty);
      if (this.#options.isReported(id)) this.#reportHoles(id);
    }
    this.#dirty = [];
  }

  /** Reports all present holes to the given runs instead of its own. */
  reportHoles(runs: SinkRuns): void {
    const { table } = this.#tree;
    const { words, stride } = table;
    for (let id = 1; id < table.end; id++) {
      if (!table.isLive(id) || this.#tree.hasFlag(id, nodeFlag.alias)) continue;
      const holes = (words[id * stride + nodeField.link]! >>> holeShift) & allTiers;
      for (let tier = 0; holes >>> tier !== 0; tier++) {
        if (((holes >>> tier) & 1) === 0) continue;
        runs.orphaned(tier, words, id * stride + nodeField.chain, this.#depthOf(id));
      }
    }
  }

  #reportHoles(id: number): void {
    const { words, stride } = this.#tree.table;
    const linkAt = id * stride + nodeField.link;
    for (let tier = 0; tier < tierNames.length; tier++) {
      const bit = 1 << tier;
      const link = words[linkAt]!;
      const isHole = (link & bit) === 0 && this.#presentChildren(id, tier) > 0;
      const wasHole = (link & (bit << holeShift)) !== 0;
      if (isHole && !wasHole) {
        words[linkAt] = link | (bit << holeShift);
        this.holes++;
        this.#runs.orphaned(tier as Tier, words, id * stride + nodeField.chain, this.#depthOf(id));
      } else if (wasHole && !isHole) this.#endHole(id, tier);
    }
  }

  #endHole(id: number, tier: number): void {
    const { words, stride } = this.#tree.table;
    words[id * stride + nodeField.link]! &= ~(1 << (tier + holeShift));
    this.holes--;
    this.#runs.holeGone(tier as Tier, words, id * stride + nodeField.chain);
  }

  /** Number of router blocks before that of a node. */
  #depthOf(id: number): number {
    let before = 0;
    for (let node = this.#tree.parentOf(id); node !== 0; node = this.#tree.parentOf(node)) before++;
    return Math.floor(before / this.#options.nodesPerBlock);
  }

  #presentChildren(id: number, tier: number): number {
    if (!this.#counting) return tier === this.#first ? this.#tree.childCount(id) : 0;
    const counted = this.#counts[tier]!.of(id);
    return tier === this.#first ? this.#tree.childCount(id) - counted : counted;
  }

  /** Counts a child of `parent` that became present or absent, and continues with ancestors that change with it. */
  #bubble(parent: number, tier: number, difference: number): void {
    const bit = 1 << tier;
    for (let id = parent; id !== 0; id = this.#tree.parentOf(id)) {
      this.#counts[tier]!.change(id, tier === this.#first ? -difference : difference);
      if ((this.tiersOf(id) & bit) !== 0) return;
      const present = this.#presentChildren(id, tier);
      if (difference > 0 ? present > 1 : present > 0) return;
      this.suspect(id);
    }
  }
}

const minCounts = 1_024;

/** A counter per node, initially zero. Allocates nothing until one changes. */
export class TierCounts {
  readonly #maxNodes: number;
  #memory: GrowableWords | undefined;
  #words: Uint32Array = new Uint32Array(0);

  constructor(maxNodes: number) {
    this.#maxNodes = maxNodes;
  }

  get byteLength(): number {
    return this.#words.byteLength;
  }

  of(id: number): number {
    return id < this.#words.length ? this.#words[id]! : 0;
  }

  change(id: number, difference: number): void {
    if (id >= this.#words.length) this.#grow(id);
    this.#words[id]! += difference;
  }

  #grow(id: number): void {
    this.#memory ??= new GrowableWords(this.#maxNodes + 1, minCounts);
    this.#memory.ensure(Math.min(this.#maxNodes + 1, id + minCounts + (id >> 6)));
    this.#words = this.#memory.words;
  }
}
