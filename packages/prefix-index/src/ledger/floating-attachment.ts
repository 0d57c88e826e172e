import type { Hash64 } from "../hash/hash64.ts";
import { tierNames } from "../tiers.ts";
import type { ChainPath } from "./attach-hints.ts";
import type { BlockShape } from "./block-shape.ts";
import type { ChainBuilder } from "./chain-builder.ts";
import type { FactTree } from "./fact-tree.ts";
import type { FloatingBlocks } from "./floating-blocks.ts";
import type { LedgerReport } from "./ledger-report.ts";
import type { TierPresence } from "./tier-presence.ts";

/** Floating trees that are offered for attachment at a time, the youngest, and engine blocks of each. */
export const maxOfferedTrees = 256;
const maxOfferedBlocks = 64;
/** A floating block takes nodes of its own, or makes two aliases of the names of one that there is. */
const namesPerNode = 2;
const noRoot: Hash64 = { low: 0, high: 0 };

export interface FloatingAttachmentOptions {
  readonly shape: BlockShape;
  readonly facts: FactTree;
  readonly floating: FloatingBlocks;
  readonly presence: TierPresence;
  readonly chains: ChainBuilder;
  readonly report: LedgerReport;
}

/** Gives floating blocks their place in the tree of chains. */
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
   * @param find tells the chain before a run
   */
  offer(find: (contents: Uint32Array, blocks: number) => ChainPath | undefined): void {
    if (this.#shape.kind !== "parts") return;
    const { partsPerBlock } = this.#shape;
    const contents = new Uint32Array(2 * maxOfferedBlocks * partsPerBlock);
    for (const root of Array.from(this.#floating.roots()).slice(0, maxOfferedTrees)) {
      const first = this.#floating.firstChild(root);
      const path = find(contents, this.#copyRun(first, contents));
      if (path !== undefined) this.#attachRoot(root, path, partsPerBlock);
    }
  }

  /** Copies the digests of a floating block and of those that follow it, the youngest each, and returns how many. */
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
    // A path that ends inside of an engine block cannot be that of one.
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

  /** Moves all that is below a floating record to below a node, and drops the record. */
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

  /** Whether there is room for so many nodes and all that floats. */
  #hasRoom(nodes: number): boolean {
    const each = this.#shape.kind === "parts" ? Math.max(namesPerNode, this.#shape.partsPerBlock) : namesPerNode;
    return this.#facts.tree.table.hasRoomFor(nodes + each * this.#floating.count);
  }

  /** Makes sure that a block is there for what comes below it; for the time being its parts may be holes. */
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

  /** Makes a node of a floating record, and returns it. */
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
