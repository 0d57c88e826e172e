import { tierNames } from "../tiers.ts";
import { type BlockTree, nodeFlag } from "./block-tree.ts";
import { Copies } from "./group-blocks.ts";
import type { Holdings } from "./holdings.ts";
import { NodeMap } from "./node-map.ts";
import { nodeField } from "./node-table.ts";
import type { TierPresence } from "./tier-presence.ts";

const allTiers = (1 << tierNames.length) - 1;
/** In an alias the words of the chain hash are the numbers of the next and the previous alias. */
const aliasNext = nodeField.chain;
const aliasPrevious = nodeField.chain + 1;

/** What follows changes of the tree. */
export interface FactTreeWatcher {
  /** A node got this name. */
  changed(low: number, high: number): void;
  /** A node is about to leave the tree. */
  released(node: number): void;
}

export interface FactTreeOptions {
  readonly tree: BlockTree;
  readonly presence: TierPresence;
  readonly holdings: Holdings;
  /** Nodes per engine block, one or more; the last has its name. */
  readonly partsPerBlock: number;
}

/**
 * The blocks that an engine has, by the engine's own hashes. Usually an engine has one hash for a chain. If it has
 * several (for namespaces that its events do not show), each is an alias with its own tiers, and the node has the tiers
 * of all. A node that is in no tier but has children keeps its position and its name: a ghost.
 */
export class FactTree {
  readonly tree: BlockTree;
  readonly engines: NodeMap;
  /** Hears of names and of nodes that leave; see `ResumePoints`. */
  watcher: FactTreeWatcher | undefined;
  /**
   * Whether a block that is stored once more is one more copy, of which the engine will announce the removal too: so
   * does vLLM when it computes again what it has.
   */
  countsCopies = false;
  /** Copies beyond the first, by record and tier. */
  readonly #copies = new Copies();
  readonly #presence: TierPresence;
  readonly #holdings: Holdings;
  readonly #partsPerBlock: number;

  constructor({ tree, presence, holdings, partsPerBlock }: FactTreeOptions) {
    this.tree = tree;
    this.#partsPerBlock = partsPerBlock;
    this.engines = new NodeMap(tree.table, nodeField.engine);
    this.#presence = presence;
    this.#holdings = holdings;
  }

  /** @returns the node of an engine's hash, 0 if unknown */
  nodeOf(low: number, high: number): number {
    const record = this.engines.find(low, high);
    return record === 0 ? 0 : this.#nodeOfRecord(record);
  }

  /**
   * Stores a block under a parent: its chain hashes, one for each part, are in `chain` from word `from`. If the
   * engine's hash named another block, it now names this one.
   *
   * @returns the node, 0 if it does not fit
   */
  store(parent: number, low: number, high: number, chain: Uint32Array, from: number, tier: number): number {
    const record = this.engines.find(low, high);
    if (record !== 0) {
      const known = this.#nodeOfRecord(record);
      if (this.#isBlock(known, parent, chain, from)) {
        if (this.countsCopies && this.#has(record, known, tier)) this.#copies.add(record * tierNames.length + tier);
        else this.#hold(record, known, tier);
        return known;
      }
    }
    const node = this.ensureBlock(parent, chain, from, true);
    if (node === 0) return 0;
    if (record === 0) {
      this.#hold(this.#name(node, low, high), node, tier);
      return node;
    }
    const before = this.#nodeOfRecord(record);
    const released = this.#takeName(record);
    this.#hold(this.#name(node, low, high), node, tier);
    this.#loseTiers(before, released);
    return node;
  }

  /** Adds a tier to a block, and returns whether the engine has announced the block before. */
  addTier(low: number, high: number, tier: number): boolean {
    const record = this.engines.find(low, high);
    if (record === 0) return false;
    this.#hold(record, this.#nodeOfRecord(record), tier);
    return true;
  }

  /** Removes an engine's hash from a tier, and returns whether it was there. */
  remove(low: number, high: number, tier: number): boolean {
    const record = this.engines.find(low, high);
    if (record === 0) return false;
    if (this.#copies.drop(record * tierNames.length + tier)) return true;
    const bit = 1 << tier;
    const { words, stride } = this.tree.table;
    const kids = words[record * stride + nodeField.kids]!;
    if (kids === nodeFlag.named && this.#holdings.tiersOf(record) === bit) {
      // Most removed blocks are leaves with one name, in one tier.
      this.#holdings.remove(record, tier);
      this.prune(this.#dropLeaf(record));
      return true;
    }
    if ((kids & nodeFlag.alias) === 0) {
      if ((this.#holdings.tiersOf(record) & bit) === 0) return false;
      this.#loseTiers(record, bit);
      return true;
    }
    const linkAt = record * stride + nodeField.link;
    if ((words[linkAt]! & bit) === 0) return false;
    const node = words[linkAt]! >>> 8;
    words[linkAt]! &= ~bit;
    if ((words[linkAt]! & allTiers) === 0) {
      this.#takeName(record);
      // A ghost keeps its last name.
      if (!this.tree.hasFlag(node, nodeFlag.shared)) this.#setName(node, low, high);
    }
    this.#loseTiers(node, bit);
    return true;
  }

  /**
   * Ensures that a block with these chain hashes exists below a parent, even if in no tier. A new block has no name.
   *
   * @param toBeNamed whether a name must fit as well
   * @returns the node of its last part, 0 if it does not fit
   */
  ensureBlock(parent: number, chain: Uint32Array, from: number, toBeNamed: boolean): number {
    const { tree } = this;
    const parts = this.#partsPerBlock;
    let node = parent;
    let part = 0;
    for (; part < parts; part++) {
      const at = from + 2 * part;
      const child = tree.childWith(node, chain[at]! | 0, chain[at + 1]! | 0);
      if (child === 0) break;
      node = child;
    }
    const needed = part < parts ? parts - part : toBeNamed ? this.#nodesToName(node) : 0;
    if (!tree.table.hasRoomFor(needed)) return 0;
    for (; part < parts; part++) {
      const child = tree.addChild(node, chain, from + 2 * part);
      this.#presence.linked(node);
      this.#holdings.enter(child, node);
      node = child;
    }
    return node;
  }

  /** The engine's hashes of a node, in signed halves. */
  namesOf(node: number): readonly { readonly low: number; readonly high: number }[] {
    const { words, stride } = this.tree.table;
    const nameAt = (record: number) => ({ low: words[record * stride]! | 0, high: words[record * stride + 1]! | 0 });
    if (this.tree.hasFlag(node, nodeFlag.named)) return [nameAt(node)];
    if (!this.tree.hasFlag(node, nodeFlag.shared)) return [];
    const names = [];
    for (let alias = words[node * stride]!; alias !== 0; alias = words[alias * stride + aliasNext]!) {
      names.push(nameAt(alias));
    }
    return names;
  }

  /** Names a node by an unknown engine hash, if the node has no name and is in no tier. */
  nameGhost(node: number, low: number, high: number): void {
    const isNamed = this.tree.hasFlag(node, nodeFlag.named | nodeFlag.shared);
    if (!isNamed && this.#holdings.tiersOf(node) === 0) this.#setName(node, low, high);
  }

  /** Releases a node that is in no tier and has no children, and those ancestors that existed only for it. */
  prune(id: number): void {
    const { tree } = this;
    for (let node = id; node !== 0; ) {
      if (this.#holdings.tiersOf(node) !== 0 || tree.childCount(node) > 0) return;
      node = this.#dropLeaf(node);
    }
  }

  /** Releases a node that is in no tier and has no children, and returns its parent. */
  #dropLeaf(node: number): number {
    const { tree } = this;
    const parent = tree.parentOf(node);
    this.watcher?.released(node);
    this.#presence.forget(node);
    if (tree.hasFlag(node, nodeFlag.named)) this.engines.remove(node);
    this.#holdings.leave(node);
    tree.removeLeaf(node);
    this.#presence.unlinked(parent);
    return parent;
  }

  #nodeOfRecord(record: number): number {
    return this.tree.hasFlag(record, nodeFlag.alias) ? this.tree.parentOf(record) : record;
  }

  /** Whether a node is the last part of the block with these chain hashes below a parent. */
  #isBlock(node: number, parent: number, chain: Uint32Array, from: number): boolean {
    const parts = this.#partsPerBlock;
    const last = from + 2 * (parts - 1);
    if (!this.tree.isAt(node, chain[last]! | 0, chain[last + 1]! | 0)) return false;
    let above = this.tree.parentOf(node);
    for (let part = 1; part < parts; part++) above = this.tree.parentOf(above);
    return above === parent;
  }

  /** Number of nodes needed to give a node one more name. */
  #nodesToName(node: number): number {
    if (this.tree.hasFlag(node, nodeFlag.shared)) return 1;
    return this.tree.hasFlag(node, nodeFlag.named) && this.#holdings.tiersOf(node) !== 0 ? 2 : 0;
  }

  /** Whether a record is in a tier: a name of several has tiers of its own. */
  #has(record: number, node: number, tier: number): boolean {
    const { words, stride } = this.tree.table;
    const tiers = record === node ? this.#holdings.tiersOf(node) : words[record * stride + nodeField.link]!;
    return ((tiers >>> tier) & 1) === 1;
  }

  #hold(record: number, node: number, tier: number): void {
    const { words, stride } = this.tree.table;
    if (record !== node) words[record * stride + nodeField.link]! |= 1 << tier;
    if ((this.#holdings.tiersOf(node) & (1 << tier)) === 0) this.#holdings.add(node, tier);
  }

  /** Removes those of the given tiers from a node that none of its names has any more. */
  #loseTiers(node: number, tiers: number): void {
    const left = this.tree.hasFlag(node, nodeFlag.shared) ? this.#tiersOfAliases(node) : 0;
    for (let tier = 0; tier < tierNames.length; tier++) {
      if ((tiers & ~left & (1 << tier)) !== 0) this.#holdings.remove(node, tier);
    }
    this.prune(node);
  }

  #tiersOfAliases(node: number): number {
    const { words, stride } = this.tree.table;
    let tiers = 0;
    for (let alias = words[node * stride]!; alias !== 0; alias = words[alias * stride + aliasNext]!) {
      tiers |= words[alias * stride + nodeField.link]! & allTiers;
      if (tiers === allTiers) break;
    }
    return tiers;
  }

  /** Gives a node one more name, and returns the record of the name. */
  #name(node: number, low: number, high: number): number {
    const { tree } = this;
    if (tree.hasFlag(node, nodeFlag.named) && this.#holdings.tiersOf(node) !== 0) this.#share(node);
    if (tree.hasFlag(node, nodeFlag.shared)) return this.#addAlias(node, low, high, 0);
    if (tree.hasFlag(node, nodeFlag.named)) this.engines.remove(node);
    this.#setName(node, low, high);
    return node;
  }

  #setName(node: number, low: number, high: number): void {
    const { words, stride } = this.tree.table;
    words[node * stride] = low;
    words[node * stride + 1] = high;
    this.tree.setFlag(node, nodeFlag.named);
    this.engines.add(node);
    this.watcher?.changed(low, high);
  }

  /** Makes the name of a node its first alias. */
  #share(node: number): void {
    const { tree } = this;
    const { words, stride } = tree.table;
    const low = words[node * stride]! | 0;
    const high = words[node * stride + 1]! | 0;
    this.engines.remove(node);
    tree.clearFlag(node, nodeFlag.named);
    tree.setFlag(node, nodeFlag.shared);
    words[node * stride] = 0;
    words[node * stride + 1] = 0;
    this.#addAlias(node, low, high, this.#holdings.tiersOf(node));
  }

  #addAlias(node: number, low: number, high: number, tiers: number): number {
    const { tree } = this;
    const alias = tree.table.allocate();
    const { words, stride } = tree.table;
    const at = alias * stride;
    const first = words[node * stride]!;
    words[at] = low;
    words[at + 1] = high;
    words[at + nodeField.link] = (node << 8) | tiers;
    words[at + aliasNext] = first;
    if (first !== 0) words[first * stride + aliasPrevious] = alias;
    words[node * stride] = alias;
    tree.setFlag(alias, nodeFlag.alias);
    this.engines.add(alias);
    this.watcher?.changed(low, high);
    return alias;
  }

  /** Removes a name from its node, which keeps its tiers for now. Returns the tiers of the name. */
  #takeName(record: number): number {
    const { tree } = this;
    const { words, stride } = tree.table;
    this.engines.remove(record);
    for (let tier = 0; tier < tierNames.length; tier++) this.#copies.forget(record * tierNames.length + tier);
    if (!tree.hasFlag(record, nodeFlag.alias)) {
      tree.clearFlag(record, nodeFlag.named);
      return this.#holdings.tiersOf(record);
    }
    const at = record * stride;
    const node = words[at + nodeField.link]! >>> 8;
    const tiers = words[at + nodeField.link]! & allTiers;
    const next = words[at + aliasNext]!;
    const previous = words[at + aliasPrevious]!;
    if (next !== 0) words[next * stride + aliasPrevious] = previous;
    if (previous !== 0) words[previous * stride + aliasNext] = next;
    else words[node * stride] = next;
    if (words[node * stride] === 0) tree.clearFlag(node, nodeFlag.shared);
    tree.table.release(record);
    return tiers;
  }
}
