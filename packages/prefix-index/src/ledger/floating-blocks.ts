import type { Hash64 } from "@espalier/core";
import { tierNames } from "../tiers.ts";
import type { ChainPath } from "./attach-hints.ts";
import type { ChainBuilder } from "./chain-builder.ts";
import type { FactTree } from "./fact-tree.ts";
import type { BlockShape } from "./held-blocks.ts";
import type { LedgerReport } from "./ledger-report.ts";
import { NodeMap } from "./node-map.ts";
import { NodeTable } from "./node-table.ts";
import type { TierPresence } from "./tier-presence.ts";

const allTiers = (1 << tierNames.length) - 1;
/** The block's payload is known. It is not known for a parent that the engine named and never announced. */
const knownFlag = 0x10;
const namedFlag = 0x20;
/** Words of a record: the engine's hash, parent, tiers and flags, first child, next and previous sibling, payload. */
const field = { engine: 0, parent: 2, state: 3, child: 4, next: 5, previous: 6, payload: 7 } as const;

interface FloatingBlock {
  readonly payload: Uint32Array;
  /** Word at which the block's payload begins. */
  readonly from: number;
  readonly tier: number;
}

/**
 * Blocks whose chain is unknown because the engine never announced some block before them. They form trees below that
 * block and wait for it. Beyond the bound the oldest trees are dropped, each as a whole.
 */
export class FloatingBlocks {
  /** All tiers that blocks were ever stored in, one bit each. */
  tiersUsed = 0;
  /** Blocks dropped since the beginning, not counting the roots of their trees. */
  dropped = 0;
  readonly payloadAt = field.payload;
  readonly #payloadWords: number;
  readonly #maxBlocks: number;
  readonly #table: NodeTable;
  readonly #names: NodeMap;
  #oldest = 0;
  /** Roots below which blocks came that were not offered yet. */
  readonly #fresh = new Set<number>();

  /** @param maxBlocks bound on records: blocks, and the unknown ones above them */
  constructor(payloadWords: number, maxBlocks: number) {
    this.#payloadWords = payloadWords;
    this.#maxBlocks = maxBlocks;
    this.#table = new NodeTable(field.payload + payloadWords, maxBlocks);
    this.#names = new NodeMap(this.#table, field.engine);
  }

  get count(): number {
    return this.#table.live;
  }

  get byteLength(): number {
    return this.#table.byteLength + this.#names.byteLength;
  }

  /** Growing replaces it: read it again after a change. */
  get words(): Uint32Array {
    return this.#table.words;
  }

  /** Where a record begins in `words`. */
  at(record: number): number {
    return record * this.#table.stride;
  }

  find(low: number, high: number): number {
    return this.#table.live === 0 ? 0 : this.#names.find(low, high);
  }

  firstChild(record: number): number {
    return this.words[this.at(record) + field.child]!;
  }

  nextSibling(record: number): number {
    return this.words[this.at(record) + field.next]!;
  }

  parentOf(record: number): number {
    return this.words[this.at(record) + field.parent]!;
  }

  tiersOf(record: number): number {
    return this.words[this.at(record) + field.state]! & allTiers;
  }

  isKnown(record: number): boolean {
    return (this.words[this.at(record) + field.state]! & knownFlag) !== 0;
  }

  isNamed(record: number): boolean {
    return (this.words[this.at(record) + field.state]! & namedFlag) !== 0;
  }

  /** Whether a known block has this payload. */
  hasPayload(record: number, payload: Uint32Array, from: number): boolean {
    const at = this.at(record) + field.payload;
    for (let word = 0; word < this.#payloadWords; word++) {
      if (this.words[at + word] !== payload[from + word]) return false;
    }
    return true;
  }

  /** Makes space for this many records, and returns whether they can fit. May drop trees. */
  makeRoom(records: number): boolean {
    if (records > this.#maxBlocks) return false;
    while (!this.#table.hasRoomFor(records)) this.#dropOldest();
    return true;
  }

  /** Begins a tree below a block known only by the engine's hash. The caller has made space. */
  begin(low: number, high: number): number {
    const record = this.#table.allocate();
    this.#setName(record, low, high);
    this.#link(record, 0);
    return record;
  }

  /** Blocks came below a record: its tree is fresh, unless they are too deep to be offered. */
  refresh(record: number): void {
    let root = record;
    for (let depth = 0; depth < maxOfferedBlocks; depth++) {
      const parent = this.parentOf(root);
      if (parent === 0) {
        this.#fresh.add(root);
        return;
      }
      root = parent;
    }
  }

  /**
   * Stores a block below a record. The caller has made space.
   *
   * @returns the record, 0 if the block would be below itself
   */
  store(parent: number, low: number, high: number, block: FloatingBlock): number {
    const { payload, from, tier } = block;
    const record = this.find(low, high);
    this.tiersUsed |= 1 << tier;
    if (record !== 0 && !this.isKnown(record)) {
      if (this.#rootOf(parent) === record) return 0;
      this.#fresh.delete(record);
      this.#unlink(record);
      this.#link(record, parent);
      this.#fill(record, block);
      return record;
    }
    if (record !== 0 && this.parentOf(record) === parent && this.hasPayload(record, payload, from)) {
      this.words[this.at(record) + field.state]! |= 1 << tier;
      return record;
    }
    if (record !== 0) this.#clearName(record);
    const added = this.#table.allocate();
    this.#setName(added, low, high);
    this.#link(added, parent);
    this.#fill(added, block);
    if (record !== 0) this.forget(record);
    return added;
  }

  /** Adds a tier to a block, and returns whether the block is known. */
  addTier(low: number, high: number, tier: number): boolean {
    const record = this.find(low, high);
    if (record === 0 || !this.isKnown(record)) return false;
    this.words[this.at(record) + field.state]! |= 1 << tier;
    this.tiersUsed |= 1 << tier;
    return true;
  }

  /** Removes a block from a tier, and returns whether it was there. */
  remove(low: number, high: number, tier: number): boolean {
    const record = this.find(low, high);
    if (record === 0 || (this.tiersOf(record) & (1 << tier)) === 0) return false;
    this.words[this.at(record) + field.state]! &= ~(1 << tier);
    this.#prune(record);
    return true;
  }

  /** Removes name and tiers from a record. The record goes too if nothing is below it. */
  forget(record: number): void {
    this.#clearName(record);
    this.words[this.at(record) + field.state]! &= ~allTiers;
    this.#prune(record);
  }

  /**
   * Drops a record, everything below it, and everything that existed only for it. Returns the number of records below.
   */
  dropTree(record: number): number {
    const parent = this.parentOf(record);
    let dropped = 0;
    for (let current = record; ; ) {
      const child = this.firstChild(current);
      if (child !== 0) {
        current = child;
        continue;
      }
      const next = this.parentOf(current);
      this.#release(current);
      if (current === record) break;
      dropped++;
      current = next;
    }
    this.#prune(parent);
    return dropped;
  }

  /** The roots of up to `max` trees, the youngest first. */
  roots(max: number): number[] {
    const roots: number[] = [];
    for (let record = this.firstChild(0); record !== 0 && roots.length < max; record = this.nextSibling(record)) {
      roots.push(record);
    }
    return roots;
  }

  /** The roots of up to `max` fresh trees, the youngest first. None is fresh afterwards. */
  takeFresh(max: number): number[] {
    const roots = [...this.#fresh].slice(-max).reverse();
    this.#fresh.clear();
    return roots;
  }

  #dropOldest(): void {
    this.dropped += this.dropTree(this.#oldest);
  }

  #fill(record: number, { payload, from, tier }: FloatingBlock): void {
    const { words } = this;
    const at = this.at(record);
    words[at + field.state]! |= knownFlag | (1 << tier);
    for (let word = 0; word < this.#payloadWords; word++) words[at + field.payload + word] = payload[from + word]!;
  }

  #setName(record: number, low: number, high: number): void {
    const at = this.at(record);
    this.words[at] = low;
    this.words[at + 1] = high;
    this.words[at + field.state]! |= namedFlag;
    this.#names.add(record);
  }

  #clearName(record: number): void {
    if (!this.isNamed(record)) return;
    this.#names.remove(record);
    this.words[this.at(record) + field.state]! &= ~namedFlag;
  }

  #rootOf(record: number): number {
    let root = record;
    for (let parent = this.parentOf(root); parent !== 0; parent = this.parentOf(root)) root = parent;
    return root;
  }

  /** Releases a record that is in no tier and has nothing below it, then its parent if the same holds for it. */
  #prune(record: number): void {
    for (let current = record; current !== 0; ) {
      if (this.tiersOf(current) !== 0 || this.firstChild(current) !== 0) return;
      const parent = this.parentOf(current);
      this.#release(current);
      current = parent;
    }
  }

  #release(record: number): void {
    this.#clearName(record);
    this.#unlink(record);
    this.#fresh.delete(record);
    this.#table.release(record);
  }

  #link(record: number, parent: number): void {
    const { words } = this;
    const at = this.at(record);
    const childAt = this.at(parent) + field.child;
    const next = words[childAt]!;
    words[at + field.parent] = parent;
    words[at + field.next] = next;
    words[at + field.previous] = 0;
    if (next !== 0) words[this.at(next) + field.previous] = record;
    else if (parent === 0) this.#oldest = record;
    words[childAt] = record;
  }

  #unlink(record: number): void {
    const { words } = this;
    const at = this.at(record);
    const parent = words[at + field.parent]!;
    const next = words[at + field.next]!;
    const previous = words[at + field.previous]!;
    if (next !== 0) words[this.at(next) + field.previous] = previous;
    else if (parent === 0) this.#oldest = previous;
    if (previous !== 0) words[this.at(previous) + field.next] = next;
    else words[this.at(parent) + field.child] = next;
  }
}

/** Which floating trees are offered: `all`, or the `fresh` ones, to which blocks have come since the last offer. */
export type OfferedTrees = "all" | "fresh";

/** Bound of floating trees offered for attachment at a time (the youngest), and of engine blocks of each. */
export const maxOfferedTrees = 256;
/** Engine blocks of one floating tree that are offered. */
const maxOfferedBlocks = 64;
/** A floating block takes its own nodes, or adds two aliases for the names of an existing node. */
const namesPerNode = 2;
const noRoot: Hash64 = { low: 0, high: 0 };

interface FloatingAttachmentOptions {
  readonly shape: BlockShape;
  readonly facts: FactTree;
  readonly floating: FloatingBlocks;
  readonly presence: TierPresence;
  readonly chains: ChainBuilder;
  readonly report: LedgerReport;
}

/** Moves floating blocks to their position in the tree of chains. */
export class FloatingAttachment {
  readonly #shape: BlockShape;
  readonly #facts: FactTree;
  readonly #floating: FloatingBlocks;
  readonly #presence: TierPresence;
  readonly #chains: ChainBuilder;
  readonly #report: LedgerReport;

  constructor({ shape, facts, floating, presence, chains, report }: FloatingAttachmentOptions) {
    this.#shape = shape;
    this.#facts = facts;
    this.#floating = floating;
    this.#presence = presence;
    this.#chains = chains;
    this.#report = report;
  }

  /**
   * Offers what is below the unknown blocks, as runs of digests of router blocks, and attaches what is recognized.
   *
   * @param find finds the chain before a run
   */
  offer(find: (contents: Uint32Array, blocks: number) => ChainPath | undefined, trees: OfferedTrees): void {
    if (this.#shape.kind !== "parts") return;
    const fresh = this.#floating.takeFresh(maxOfferedTrees);
    const offered = trees === "fresh" ? fresh : this.#floating.roots(maxOfferedTrees);
    if (offered.length === 0) return;
    const { partsPerBlock } = this.#shape;
    const contents = new Uint32Array(2 * maxOfferedBlocks * partsPerBlock);
    for (const root of offered) {
      const first = this.#floating.firstChild(root);
      const path = find(contents, this.#copyRun(first, contents));
      if (path !== undefined) this.#attachRoot(root, path, partsPerBlock);
    }
  }

  /** Copies the digests of a floating block and its successors, the youngest child each. Returns their number. */
  #copyRun(first: number, contents: Uint32Array): number {
    const floating = this.#floating;
    const { payloadWords } = this.#chains;
    let words = 0;
    for (let record = first; record !== 0 && words < contents.length; record = floating.firstChild(record)) {
      const at = floating.at(record) + floating.payloadAt;
      contents.set(floating.words.subarray(at, at + payloadWords), words);
      words += payloadWords;
    }
    return words / 2;
  }

  /** Gives the root of a floating tree, which is unknown, its chain, and so all blocks below it theirs. */
  #attachRoot(root: number, path: ChainPath, partsPerBlock: number): void {
    // A path that ends inside an engine block cannot be that of a whole one.
    if (path.blocks < 1 || path.blocks % partsPerBlock !== 0) return;
    if (!this.#hasRoom(path.blocks)) return;
    this.#prepareFloating();
    let node = 0;
    for (let block = 0; block < path.blocks; block += partsPerBlock) {
      node = this.#ensureGhost(node, path.words, 2 * block);
    }
    const at = this.#floating.at(root);
    this.#facts.nameGhost(node, this.#floating.words[at]!, this.#floating.words[at + 1]!);
    this.attachBelow(root, node);
  }

  /** Moves everything below a floating record to a node, and drops the record. */
  attachBelow(record: number, node: number): void {
    const floating = this.#floating;
    if (!this.#hasRoom(0)) {
      this.#report.droppedBlocks += floating.dropTree(record);
      return;
    }
    this.#prepareFloating();
    const pending = [record, node];
    for (let parent = pending.pop(); parent !== undefined; parent = pending.pop()) {
      const above = pending.pop()!;
      for (let child = floating.firstChild(above); child !== 0; child = floating.nextSibling(child)) {
        pending.push(child, this.#attach(child, parent));
      }
    }
    floating.dropTree(record);
  }

  /** Whether this many nodes fit, plus everything that floats. */
  #hasRoom(nodes: number): boolean {
    const each = this.#shape.kind === "parts" ? Math.max(namesPerNode, this.#shape.partsPerBlock) : namesPerNode;
    return this.#facts.tree.table.hasRoomFor(nodes + each * this.#floating.count);
  }

  /** Ensures that a block exists for what follows below it; for now its parts may be holes. */
  #ensureGhost(parent: number, chain: Uint32Array, from: number): number {
    const node = this.#facts.ensureBlock(parent, chain, from, false);
    for (let part = node; part !== parent; part = this.#facts.tree.parentOf(part)) this.#presence.suspect(part);
    return node;
  }

  #prepareFloating(): void {
    for (let tier = 0; tier < tierNames.length; tier++) {
      if ((this.#floating.tiersUsed & (1 << tier)) !== 0) this.#presence.prepare(tier);
    }
  }

  /** Turns a floating record into a node, and returns it. */
  #attach(record: number, parent: number): number {
    const facts = this.#facts;
    const floating = this.#floating;
    const chains = this.#chains;
    const { words } = floating;
    const at = floating.at(record);
    const low = words[at]! | 0;
    const high = words[at + 1]! | 0;
    chains.begin({ parent, root: noRoot, payload: words, from: at + floating.payloadAt, blocks: 1 });
    const chainAt = chains.chainAt(0, parent);
    const tiers = floating.tiersOf(record);
    let node = 0;
    for (let tier = 0; tier < tierNames.length; tier++) {
      if ((tiers & (1 << tier)) !== 0) node = facts.store(parent, low, high, chains.chain, chainAt, tier);
    }
    if (node === 0) {
      node = this.#ensureGhost(parent, chains.chain, chainAt);
      if (floating.isNamed(record)) facts.nameGhost(node, low, high);
    } else this.#report.attachedBlocks++;
    chains.placed(0, node);
    return node;
  }
}
