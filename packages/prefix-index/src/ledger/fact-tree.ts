import { tierNames } from "../tiers.ts";
import { type BlockTree, nodeFlag } from "./block-tree.ts";
import type { Holdings } from "./holdings.ts";
import { NodeMap } from "./node-map.ts";
import { nodeField } from "./node-table.ts";
import type { TierPresence } from "./tier-presence.ts";

const allTiers = (1 << tierNames.length) - 1;
/** In an alias the words of the chain hash are the numbers of the aliases after and before it. */
const aliasNext = nodeField.payload;
const aliasPrevious = nodeField.payload + 1;

/**
 * The blocks that an engine has, under the engine's own hashes. Mostly an engine has one hash for a chain; where it has
 * several (namespaces that its events do not show), each is an alias with tiers of its own, and the node has what any
 * of them has. A node that is in no tier but has children keeps its place and its name: a ghost.
 */
export class FactTree {
  readonly tree: BlockTree;
  readonly engines: NodeMap;
  readonly #presence: TierPresence;
  readonly #holdings: Holdings;

  constructor(tree: BlockTree, presence: TierPresence, holdings: Holdings) {
    this.tree = tree;
    this.engines = new NodeMap(tree.table, nodeField.engine);
    this.#presence = presence;
    this.#holdings = holdings;
  }

  /** @returns the node of an engine's hash, 0 when it is unknown */
  nodeOf(low: number, high: number): number {
    const record = this.engines.find(low, high);
    return record === 0 ? 0 : this.#nodeOfRecord(record);
  }

  /**
   * Stores a block under a parent: its chain hashes are in `chain` from word `from` on. A hash that stood for another
   * block stands for this one from now on.
   *
   * @returns the node, 0 when there is no room for it
   */
  store(parent: number, low: number, high: number, chain: Uint32Array, from: number, tier: number): number {
    const { tree } = this;
    const identity = from + tree.identityAt - nodeField.payload;
    const chainLow = chain[identity]!;
    const chainHigh = chain[identity + 1]!;
    const record = this.engines.find(low, high);
    if (record !== 0) {
      const known = this.#nodeOfRecord(record);
      if (tree.isChildWith(known, parent, chainLow, chainHigh)) {
        this.#hold(record, known, tier);
        return known;
      }
    }
    let node = tree.childWith(parent, chainLow, chainHigh);
    if (!tree.table.hasRoomFor(this.#nodesNeeded(node))) return 0;
    if (node === 0) node = this.#enter(parent, chain, from);
    const before = record === 0 ? 0 : this.#nodeOfRecord(record);
    const released = record === 0 ? 0 : this.#takeName(record);
    this.#hold(this.#name(node, low, high), node, tier);
    if (before !== 0) this.#loseTiers(before, released);
    return node;
  }

  /** Adds a tier to a block that the engine has announced before, and says whether it has. */
  addTier(low: number, high: number, tier: number): boolean {
    const record = this.engines.find(low, high);
    if (record === 0) return false;
    this.#hold(record, this.#nodeOfRecord(record), tier);
    return true;
  }

  /** Ends an engine's hash in a tier, and says whether it was there. */
  remove(low: number, high: number, tier: number): boolean {
    const record = this.engines.find(low, high);
    if (record === 0) return false;
    const bit = 1 << tier;
    const { words, stride } = this.tree.table;
    if (!this.tree.hasFlag(record, nodeFlag.alias)) {
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
      // The last name stays with a ghost.
      if (!this.tree.hasFlag(node, nodeFlag.shared)) this.#setName(node, low, high);
    }
    this.#loseTiers(node, bit);
    return true;
  }

  /**
   * Makes sure that there is a node below a parent with these chain hashes, be it in no tier: something is to come below
   * it. It has no name if it is new.
   *
   * @returns the node, 0 when there is no room for it
   */
  ensureChild(parent: number, chain: Uint32Array, from: number): number {
    const identity = from + this.tree.identityAt - nodeField.payload;
    const known = this.tree.childWith(parent, chain[identity]!, chain[identity + 1]!);
    if (known !== 0) return known;
    if (!this.tree.table.hasRoomFor(1)) return 0;
    const node = this.#enter(parent, chain, from);
    this.#presence.suspect(node);
    return node;
  }

  /** Gives a node an engine's hash that is unknown so far, if it has none and is in no tier. */
  nameGhost(node: number, low: number, high: number): void {
    const isNamed = this.tree.hasFlag(node, nodeFlag.named | nodeFlag.shared);
    if (!isNamed && this.#holdings.tiersOf(node) === 0) this.#setName(node, low, high);
  }

  /** Releases a node that is in no tier and has no children, and whatever of its parents was there for it only. */
  prune(id: number): void {
    const { tree } = this;
    for (let node = id; node !== 0; ) {
      if (this.#holdings.tiersOf(node) !== 0 || tree.childCount(node) > 0) return;
      const parent = tree.parentOf(node);
      this.#presence.forget(node);
      if (tree.hasFlag(node, nodeFlag.named)) this.engines.remove(node);
      this.#holdings.leave(node);
      tree.removeLeaf(node);
      this.#presence.unlinked(parent);
      node = parent;
    }
  }

  #nodeOfRecord(record: number): number {
    return this.tree.hasFlag(record, nodeFlag.alias) ? this.tree.parentOf(record) : record;
  }

  /** Nodes that it takes to give a node one more name, or to make it when there is none. */
  #nodesNeeded(node: number): number {
    if (node === 0) return 1;
    if (this.tree.hasFlag(node, nodeFlag.shared)) return 1;
    return this.tree.hasFlag(node, nodeFlag.named) && this.#holdings.tiersOf(node) !== 0 ? 2 : 0;
  }

  #enter(parent: number, chain: Uint32Array, from: number): number {
    const node = this.tree.addChild(parent, chain, from);
    this.#presence.linked(parent);
    this.#holdings.enter(node, parent);
    return node;
  }

  #hold(record: number, node: number, tier: number): void {
    const { words, stride } = this.tree.table;
    if (record !== node) words[record * stride + nodeField.link]! |= 1 << tier;
    if ((this.#holdings.tiersOf(node) & (1 << tier)) === 0) this.#holdings.add(node, tier);
  }

  /** Takes from a node those of the given tiers that no name of it has any more. */
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

  /** Gives a node one more name, and returns the record that has it. */
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
  }

  /** Makes the name of a node its first alias. */
  #share(node: number): void {
    const { tree } = this;
    const { words, stride } = tree.table;
    const low = words[node * stride]!;
    const high = words[node * stride + 1]!;
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
    return alias;
  }

  /** Takes a name from its node, which keeps its tiers for the moment. Returns the tiers that the name had. */
  #takeName(record: number): number {
    const { tree } = this;
    const { words, stride } = tree.table;
    this.engines.remove(record);
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
