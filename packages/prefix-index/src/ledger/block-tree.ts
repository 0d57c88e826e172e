import { NodeMap } from "./node-map.ts";
import { NodeTable, nodeField } from "./node-table.ts";

const nodeWords = nodeField.chain + 2;

/** Flags in the word of a node's children. */
export const nodeFlag = {
  /** The engine's hash in the node is a key of the map of engine hashes. */
  named: 1,
  /** Several engine hashes name the node: instead of its own it has the number of the first alias. */
  shared: 2,
  /** Not a node, but one of several names of its parent. */
  alias: 4,
  /** The children are counted, and found by their chain hashes. Otherwise there is at most one child, stored here. */
  branching: 8,
  /** Its holes are checked after the event. */
  dirty: 16,
  /** The engine of a hybrid model can resume after it. */
  resumes: 32,
  /** It ends a router block that the sink knows as a resume point. */
  resumePoint: 64,
} as const;

/**
 * The chains of blocks that an engine has, merged where they share a prefix. Most nodes have one child, so only the
 * children of nodes that had two go into a map. This keeps a node at 24 bytes.
 */
export class BlockTree {
  readonly table: NodeTable;
  readonly branches: NodeMap;
  /** The children of branching nodes but the root, if they are tracked. */
  #children: Map<number, Set<number>> | undefined;

  constructor(maxNodes: number) {
    this.table = new NodeTable(nodeWords, maxNodes);
    this.branches = new NodeMap(this.table, nodeField.chain);
    this.table.words[nodeField.kids] = nodeFlag.branching;
  }

  parentOf(id: number): number {
    return this.table.words[id * this.table.stride + nodeField.link]! >>> 8;
  }

  childCount(id: number): number {
    const kids = this.table.words[id * this.table.stride + nodeField.kids]!;
    if ((kids & nodeFlag.branching) !== 0) return kids >>> 8;
    return kids >>> 8 === 0 ? 0 : 1;
  }

  /** Keeps the children of all nodes but the root from now on, for `childrenOf`. */
  trackChildren(): void {
    if (this.#children) return;
    this.#children = new Map();
    for (let id = 1; id < this.table.end; id++) {
      if (!this.table.isLive(id) || this.hasFlag(id, nodeFlag.alias)) continue;
      const parent = this.parentOf(id);
      if (this.hasFlag(parent, nodeFlag.branching)) this.#track(parent, id);
    }
  }

  /** The children of a node that is not the root. Only after `trackChildren`. */
  childrenOf(id: number): Iterable<number> {
    const kids = this.table.words[id * this.table.stride + nodeField.kids]!;
    if ((kids & nodeFlag.branching) !== 0) return this.#children?.get(id) ?? [];
    return kids >>> 8 === 0 ? [] : [kids >>> 8];
  }

  #track(parent: number, child: number): void {
    if (!this.#children || parent === 0) return;
    const known = this.#children.get(parent);
    if (known) known.add(child);
    else this.#children.set(parent, new Set([child]));
  }

  hasFlag(id: number, flag: number): boolean {
    return (this.table.words[id * this.table.stride + nodeField.kids]! & flag) !== 0;
  }

  setFlag(id: number, flag: number): void {
    this.table.words[id * this.table.stride + nodeField.kids]! |= flag;
  }

  clearFlag(id: number, flag: number): void {
    this.table.words[id * this.table.stride + nodeField.kids]! &= ~flag;
  }

  /** @returns the child of a node with this chain hash (in signed halves), 0 if there is none */
  childWith(parent: number, low: number, high: number): number {
    const { words, stride } = this.table;
    const kids = words[parent * stride + nodeField.kids]!;
    if ((kids & nodeFlag.branching) !== 0) {
      const id = this.branches.find(low, high);
      return id !== 0 && words[id * stride + nodeField.link]! >>> 8 === parent ? id : 0;
    }
    const only = kids >>> 8;
    if (only === 0) return 0;
    const at = only * stride + nodeField.chain;
    return (words[at]! | 0) === low && (words[at + 1]! | 0) === high ? only : 0;
  }

  /** Whether a node has this chain hash (in signed halves). */
  isAt(id: number, low: number, high: number): boolean {
    const { words, stride } = this.table;
    const at = id * stride + nodeField.chain;
    return (words[at]! | 0) === low && (words[at + 1]! | 0) === high;
  }

  /** Creates a node below a parent that has no such child; its chain hash is in `chain` at word `from`. */
  addChild(parent: number, chain: Uint32Array, from: number): number {
    const { table } = this;
    const id = table.allocate();
    const { words, stride } = table;
    const at = id * stride;
    words[at + nodeField.chain] = chain[from]!;
    words[at + nodeField.chain + 1] = chain[from + 1]!;
    words[at + nodeField.link] = parent << 8;
    const kidsAt = parent * stride + nodeField.kids;
    const kids = words[kidsAt]!;
    if ((kids & nodeFlag.branching) !== 0) {
      words[kidsAt] = kids + 0x100;
      this.branches.add(id);
      this.#track(parent, id);
    } else if (kids >>> 8 === 0) {
      words[kidsAt] = (id << 8) | kids;
    } else {
      words[kidsAt] = (2 << 8) | (kids & 0xff) | nodeFlag.branching;
      this.branches.add(kids >>> 8);
      this.branches.add(id);
      this.#track(parent, kids >>> 8);
      this.#track(parent, id);
    }
    return id;
  }

  /** Removes a node without children from the tree, and releases it. */
  removeLeaf(id: number): void {
    const { words, stride } = this.table;
    const parent = words[id * stride + nodeField.link]! >>> 8;
    const kidsAt = parent * stride + nodeField.kids;
    const kids = words[kidsAt]!;
    if ((kids & nodeFlag.branching) === 0) {
      words[kidsAt] = kids & 0xff;
    } else {
      this.branches.remove(id);
      const siblings = this.#children?.get(parent);
      if (siblings?.delete(id) && siblings.size === 0) this.#children?.delete(parent);
      const left = kids - 0x100;
      words[kidsAt] = left >>> 8 === 0 && kidsAt !== nodeField.kids ? left & ~nodeFlag.branching : left;
    }
    this.table.release(id);
  }
}
