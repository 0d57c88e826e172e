import type { BlockDigests, Hash64 } from "@espalier/core";
import { maxChunkBlocks, tierNames } from "../tiers.ts";
import { BlockTree, nodeFlag } from "./block-tree.ts";
import {
  type BlockRun,
  type ChainBuilder,
  createPartChainBuilder,
  createSpanChainBuilder,
  maxRunBlocks,
} from "./chain-builder.ts";
import { FactTree } from "./fact-tree.ts";
import { FloatingAttachment, FloatingBlocks } from "./floating-blocks.ts";
import { createPartHoldings, createWholeHoldings, type Holdings, SpanHoldings } from "./holdings.ts";
import type { LedgerReport } from "./ledger-report.ts";
import type { SinkRuns } from "./ledger-sink.ts";
import { maxWarmKeys } from "./node-map.ts";
import { nodeField } from "./node-table.ts";
import { ResumePoints } from "./resume-points.ts";
import { TierPresence } from "./tier-presence.ts";

/** Bound of the address space that a table reserves. */
const maxTableBytes = 0x8000_0000;
const wordBytes = 4;
const spanHeaderWords = 7;
const noRoot: Hash64 = { low: 0, high: 0 };

interface HeldBlocksOptions {
  readonly shape: BlockShape;
  /** Tokens per engine block. */
  readonly engineBlockSize: number;
  /** Tokens per router block. */
  readonly blockSize: number;
  readonly digests: BlockDigests;
  readonly runs: SinkRuns;
  readonly report: LedgerReport;
  readonly maxBlocks: number;
  readonly maxFloatingBlocks: number;
}

/** A run of an event's blocks and the engine's hashes of them. */
export interface NamedRun extends BlockRun {
  readonly hashes: Uint32Array;
  /** Index of the first block's hash, counted in hashes. */
  readonly firstHash: number;
  readonly tier: number;
}

/** The blocks of an engine whose block size is known, with and without a known chain. */
export class HeldBlocks {
  readonly presence: TierPresence;
  readonly tree: BlockTree;
  readonly facts: FactTree;
  readonly floating: FloatingBlocks;
  /** Whether a node ends a router block, so that the sink hears of it. */
  readonly isReported: (id: number) => boolean;
  readonly attachment: FloatingAttachment;
  /** Undefined until the model is known to be a hybrid one. */
  resume: ResumePoints | undefined;
  readonly #createResume: () => ResumePoints;
  readonly #holdings: Holdings;
  readonly #chains: ChainBuilder;
  readonly #report: LedgerReport;
  /** Tokens per engine block. */
  readonly engineBlockSize: number;
  #expected: Uint32Array = new Uint32Array(0);
  #expectedCount = 0;
  /** Hashes before this one are warm, or not worth warming. */
  #warmTo = 0;
  /** Keeps the warming reads from being optimized away; meaningless. */
  seen = 0;

  constructor(options: HeldBlocksOptions) {
    const { shape, engineBlockSize, blockSize, digests, runs, report, maxFloatingBlocks } = options;
    const partsPerBlock = shape.kind === "parts" ? shape.partsPerBlock : 1;
    /** One unless the engine's blocks are smaller. */
    const nodesPerBlock = shape.kind === "span" ? shape.nodesPerBlock : 1;
    const spanBytes = (spanHeaderWords + engineBlockSize) * wordBytes;
    const maxNodes =
      shape.kind === "parts"
        ? options.maxBlocks
        : Math.min(options.maxBlocks, Math.floor(maxTableBytes / spanBytes) - 1);
    this.tree = new BlockTree(maxNodes);
    const { tree } = this;
    const spans =
      shape.kind === "span"
        ? new SpanHoldings({ tree, maxNodes, tokensPerNode: engineBlockSize, nodesPerBlock })
        : undefined;
    this.isReported = spans ? (id: number) => spans.isLast(id) : () => true;
    this.presence = new TierPresence({ tree, runs, maxNodes, nodesPerBlock, isReported: this.isReported });
    spans?.attach(this.presence);
    const { presence } = this;
    const holdings =
      spans ??
      (partsPerBlock > 1
        ? createPartHoldings({ tree, presence, maxNodes, partsPerBlock })
        : createWholeHoldings(presence));
    this.#holdings = holdings;
    this.facts = new FactTree({ tree, presence, holdings, partsPerBlock });
    const createChains = (): ChainBuilder =>
      spans
        ? createSpanChainBuilder({ tree, spans, digests, tokensPerNode: engineBlockSize, nodesPerBlock })
        : createPartChainBuilder({ tree, digests, blockSize, partsPerBlock });
    this.#chains = createChains();
    this.floating = new FloatingBlocks(this.#chains.payloadWords, maxFloatingBlocks);
    const { facts, floating } = this;
    // Subtrees are attached while a run is being stored, so attaching needs its own builder.
    this.attachment = new FloatingAttachment({ shape, facts, floating, presence, chains: createChains(), report });
    this.#report = report;
    this.engineBlockSize = engineBlockSize;
    const { tree: nodes, isReported } = this;
    this.#createResume = () =>
      new ResumePoints({ tree: nodes, facts, runs, partsPerBlock, nodesPerBlock, isReported, engineBlockSize });
  }

  /** Begins to follow resume points. */
  followResumePoints(): ResumePoints {
    this.resume ??= this.#createResume();
    return this.resume;
  }

  /** Whether it is empty. */
  get isIdle(): boolean {
    return this.tree.table.live === 0 && this.floating.count === 0;
  }

  get byteLength(): number {
    const { tree, facts, presence, floating } = this;
    const maps = tree.branches.byteLength + facts.engines.byteLength;
    return tree.table.byteLength + maps + presence.byteLength + this.#holdings.byteLength + floating.byteLength;
  }

  /** Announces the hashes of the next calls, in order; `count` of them are in the array. */
  expect(hashes: Uint32Array, count: number): void {
    this.#expected = hashes;
    this.#expectedCount = count;
    this.#warmTo = 0;
  }

  /**
   * Stores blocks that begin a prompt.
   *
   * @param countsCopies whether a block that is held already is one more copy
   */
  storeAtRoot(run: NamedRun, root: Hash64, countsCopies: boolean): void {
    this.presence.prepare(run.tier);
    this.facts.countsCopies = countsCopies;
    this.#store(run, 0, 0, root);
  }

  /** Stores blocks below the block with this engine hash. Returns false if that is impossible. */
  storeBelow(run: NamedRun, parentLow: number, parentHigh: number, countsCopies: boolean): boolean {
    this.presence.prepare(run.tier);
    this.facts.countsCopies = countsCopies;
    const parent = this.facts.nodeOf(parentLow, parentHigh);
    if (parent !== 0) {
      this.#store(run, 0, parent, noRoot);
      return true;
    }
    const { floating } = this;
    const before = floating.dropped;
    const hasRoom = floating.makeRoom(run.blocks + 1);
    this.#report.droppedBlocks += floating.dropped - before;
    if (!hasRoom) return false;
    const known = floating.find(parentLow, parentHigh);
    const record = known === 0 ? floating.begin(parentLow, parentHigh) : known;
    const stored = this.#float(run, record);
    if (stored) floating.refresh(record);
    // If the run contained the root itself, the record is gone.
    const isIdle = floating.find(parentLow, parentHigh) === record && floating.firstChild(record) === 0;
    if (known === 0 && isIdle) floating.forget(record);
    return stored;
  }

  /** Whether the engine can use everything up to the block with this hash. */
  canUse(low: number, high: number): boolean {
    const node = this.facts.nodeOf(low, high);
    if (node === 0 || this.resume?.has(low, high) === false) return false;
    for (let id = node; id !== 0; id = this.tree.parentOf(id)) if (this.#holdings.tiersOf(id) === 0) return false;
    return true;
  }

  /** Whether a block with this hash was announced. */
  knows(low: number, high: number): boolean {
    return this.facts.nodeOf(low, high) !== 0 || this.floating.find(low, high) !== 0;
  }

  /** Moves all blocks with a known chain to a tier. */
  shiftTo(tier: number): void {
    this.presence.prepare(tier);
    const { words, stride, end } = this.tree.table;
    for (let id = 1; id < end; id++) {
      if (
        !this.tree.table.isLive(id) ||
        !(this.tree.hasFlag(id, nodeFlag.named) || this.tree.hasFlag(id, nodeFlag.alias))
      )
        continue;
      const [low, high] = [words[id * stride + nodeField.engine]! | 0, words[id * stride + nodeField.engine + 1]! | 0];
      this.facts.addTier(low, high, tier);
      for (let other = 0; other < tierNames.length; other++) if (other !== tier) this.facts.remove(low, high, other);
    }
  }

  /** Adds a tier to a block that was announced before. */
  move(low: number, high: number, tier: number): void {
    this.presence.prepare(tier);
    if (this.facts.addTier(low, high, tier)) this.#report.storedBlocks++;
    else if (this.floating.addTier(low, high, tier)) this.#report.floatedBlocks++;
    else this.#report.unknownMoves++;
  }

  /** Removes a block from a tier; `hash` is the index of its hash among those announced by `expect`. */
  remove(hash: number, tier: number): void {
    if (hash >= this.#warmTo) this.#warmUp(hash);
    const low = this.#expected[2 * hash]! | 0;
    const high = this.#expected[2 * hash + 1]! | 0;
    if (this.facts.remove(low, high, tier) || this.floating.remove(low, high, tier)) this.#report.removedBlocks++;
    else this.#report.unknownRemovals++;
  }

  #warmUp(hash: number): void {
    this.#warmTo = Math.min(this.#expectedCount, hash + maxWarmKeys);
    this.seen ^= this.facts.engines.warm(this.#expected, hash, this.#warmTo);
  }

  #store(run: NamedRun, first: number, parent: number, root: Hash64): void {
    const { facts, floating } = this;
    const chains = this.#chains;
    const { hashes, tier } = run;
    let node = parent;
    for (let done = first; done < run.blocks; ) {
      const blocks = this.#read(run, done);
      chains.begin({ parent: node, root, payload: chains.payload, from: 0, blocks });
      for (let block = 0; block < blocks; block++) {
        const hash = run.firstHash + done + block;
        if (hash >= this.#warmTo) this.#warmUp(hash);
        const at = 2 * hash;
        const chainAt = chains.chainAt(block, node);
        const low = hashes[at]! | 0;
        const high = hashes[at + 1]! | 0;
        const stored = facts.store(node, low, high, chains.chain, chainAt, tier);
        if (stored === 0) {
          this.#report.storedBlocks += block;
          this.#report.overflowedBlocks += run.blocks - done - block;
          return;
        }
        chains.placed(block, stored);
        if (floating.count > 0) this.#absorb(low, high, block, stored);
        node = stored;
      }
      done += blocks;
      this.#report.storedBlocks += blocks;
    }
  }

  /** Reads as many blocks as can be processed at a time. Returns their number. */
  #read(run: NamedRun, done: number): number {
    const blocks = Math.min(maxRunBlocks, run.blocks - done);
    const start = run.start + done * this.engineBlockSize;
    this.#chains.read({ tokens: run.tokens, start, blocks, keys: run.keys, firstKey: run.firstKey + done });
    return blocks;
  }

  /** Stores blocks below a floating record, up to the first that has a known chain. */
  #float(run: NamedRun, record: number): boolean {
    const { facts, floating } = this;
    const { payload, payloadWords } = this.#chains;
    let parent = record;
    for (let done = 0; done < run.blocks; ) {
      const blocks = this.#read(run, done);
      for (let block = 0; block < blocks; block++) {
        const at = 2 * (run.firstHash + done + block);
        const low = run.hashes[at]! | 0;
        const high = run.hashes[at + 1]! | 0;
        const known = facts.nodeOf(low, high);
        if (known !== 0) {
          facts.addTier(low, high, run.tier);
          this.#report.storedBlocks++;
          this.#store(run, done + block + 1, known, noRoot);
          return true;
        }
        parent = floating.store(parent, low, high, { payload, from: block * payloadWords, tier: run.tier });
        if (parent === 0) return false;
        this.#report.floatedBlocks++;
      }
      done += blocks;
    }
    return true;
  }

  /** An engine's hash got a node: moves what floats under the hash to the node. */
  #absorb(low: number, high: number, block: number, node: number): void {
    const { floating } = this;
    const record = floating.find(low, high);
    if (record === 0) return;
    const { payload, payloadWords } = this.#chains;
    if (floating.isKnown(record) && !floating.hasPayload(record, payload, block * payloadWords)) {
      floating.forget(record);
      return;
    }
    const tiers = floating.tiersOf(record);
    this.attachment.attachBelow(record, node);
    for (let tier = 0; tier < tierNames.length; tier++) {
      if ((tiers & (1 << tier)) !== 0) this.facts.addTier(low, high, tier);
    }
  }
}

/** How an engine's block size relates to the router's. */
export type BlockShape =
  /** An engine block is one or more router blocks. */
  | { readonly kind: "parts"; readonly partsPerBlock: number }
  /** A router block is two or more engine blocks. */
  | { readonly kind: "span"; readonly nodesPerBlock: number };

/** Bound of the ratio of the block sizes. */
export const maxBlockRatio = maxChunkBlocks;

/** @returns undefined if neither size is a multiple of the other, or the ratio is above `maxBlockRatio` */
export function blockShapeOf(sizes: { readonly engine: number; readonly router: number }): BlockShape | undefined {
  const { engine, router } = sizes;
  if (engine % router === 0 && engine / router <= maxBlockRatio) {
    return { kind: "parts", partsPerBlock: engine / router };
  }
  if (router % engine === 0 && router / engine <= maxBlockRatio) {
    return { kind: "span", nodesPerBlock: router / engine };
  }
  return undefined;
}
