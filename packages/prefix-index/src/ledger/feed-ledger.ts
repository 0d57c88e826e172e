import type { BlockDigests, Hash64 } from "@espalier/core";
import { attention, type EngineEventBatch, eventKind } from "../engine-events.ts";
import { externalChunks, type Tier, tier, tierNames } from "../tiers.ts";
import type { ChainPath } from "./attach-hints.ts";
import { nodeFlag } from "./block-tree.ts";
import { CacheGroups, defaultChunkTokens } from "./cache-groups.ts";
import type { OfferedTrees } from "./floating-blocks.ts";
import { blockShapeOf, HeldBlocks, type NamedRun } from "./held-blocks.ts";
import { createLedgerReport, type LedgerReport, resetLedgerReport } from "./ledger-report.ts";
import { type LedgerSink, SinkRuns } from "./ledger-sink.ts";
import { nodeField } from "./node-table.ts";
import { PartialHoldings } from "./partial-holdings.ts";

/** Bounds of one feed's ledger. */
export type LedgerLimits = Readonly<typeof defaultLedgerLimits>;

const defaultLedgerLimits = {
  /** Engine blocks with a known chain (router blocks if those are smaller), at most 2^24 - 2. */
  maxBlocks: 4_194_304,
  /** Engine blocks that wait for a parent, and those parents. */
  maxFloatingBlocks: 65_536,
  /** Hashes per event; events with more are refused. */
  maxEventHashes: 1_048_576,
};

export interface FeedLedgerOptions {
  /** Tokens per router block. */
  readonly blockSize: number;
  readonly digests: BlockDigests;
  readonly sink: LedgerSink;
  readonly limits?: Partial<LedgerLimits>;
  /** Tokens of a chunk, in models with chunked local attention. 8,192 by default, as in Llama 4. */
  readonly chunkTokens?: number;
}

/**
 * Why a feed cannot be followed: the engine's block size is neither a multiple nor a fraction of the router's, or it
 * changed on the GPU within an epoch.
 */
type UnusableReason = "block-size-ratio" | "block-size-changed";

export interface LedgerStats {
  /** Tokens per engine block; 0 while unknown. */
  readonly engineBlockSize: number;
  readonly unusable: UnusableReason | undefined;
  /** Router blocks in each tier. */
  readonly blocks: readonly number[];
  /**
   * Stored blocks with a known chain, of the engine or of the router, whichever are smaller: held blocks, blocks kept
   * for others only, and further names.
   */
  readonly nodes: number;
  readonly holes: number;
  readonly floatingBlocks: number;
  readonly bytes: number;
}

/** Numbers of nodes have 24 bits. */
const maxLimit = 0xff_fffe;
/** An empty ledger keeps this much memory, so that it need not grow again at once. */
const maxIdleBytes = 262_144;
const notReported = { group: -1, isReport: false };
const noBlocks: readonly number[] = tierNames.map(() => 0);

/**
 * Follows the events of one target's feed. The engine names its blocks by its own hashes. Under each of them the ledger
 * keeps the block's position in the tree of chains, and it reports changes of the chains to the sink. Everything is
 * synchronous and a pure function of the events.
 */
export class FeedLedger {
  readonly #blockSize: number;
  readonly #digests: BlockDigests;
  readonly #limits: LedgerLimits;
  readonly #runs: SinkRuns;
  readonly #report = createLedgerReport();
  #held: HeldBlocks | undefined;
  #engineBlockSize = 0;
  readonly #external: ExternalMemory;
  /** Whether the engine's own blocks, those on its GPU, have said their size. */
  #hasGpuSize = false;
  /** Whether each event so far stored a single block, which may be the tail of a prompt. */
  #hasOnlyTails = true;
  #unusable: UnusableReason | undefined;
  readonly #groups: CacheGroups;
  readonly #partial: PartialHoldings;
  /** The last event, if it began a prompt: its group, and whether it reported a hit. */
  #reported = notReported;
  #adapter: string | undefined;
  #cacheSalt: string | undefined;
  #root: Hash64;

  /** @throws RangeError if the block size is not a positive integer, or a limit is invalid */
  constructor({ blockSize, digests, sink, limits, chunkTokens = defaultChunkTokens }: FeedLedgerOptions) {
    if (!Number.isInteger(blockSize) || blockSize < 1) throw new RangeError(`blockSize is ${blockSize}`);
    this.#blockSize = blockSize;
    this.#digests = digests;
    this.#limits = { ...defaultLedgerLimits, ...limits };
    for (const [name, limit] of Object.entries(this.#limits)) {
      if (!Number.isInteger(limit) || limit < 1 || limit > maxLimit) throw new RangeError(`${name} is ${limit}`);
    }
    this.#runs = new SinkRuns(sink);
    this.#external = new ExternalMemory(blockSize, this.#runs);
    this.#groups = new CacheGroups(chunkTokens);
    this.#partial = new PartialHoldings(this.#groups, this.#limits.maxBlocks, this.#runs);
    this.#root = digests.root(undefined, undefined);
  }

  /** Applies events in order. The report covers this batch, and is reused for the next. */
  apply(batch: EngineEventBatch): LedgerReport {
    resetLedgerReport(this.#report);
    this.#reported = notReported;
    this.#held?.expect(batch.hashes, batch.hashStart[batch.count]!);
    this.#external.blocks?.expect(batch.hashes, batch.hashStart[batch.count]!);
    for (let event = 0; event < batch.count; event++) {
      this.#applyEvent(batch, event);
      this.#held?.presence.reconcile();
      this.#external.blocks?.presence.reconcile();
    }
    if (this.#held) {
      this.#partial.placeSmallBlocks(batch, this.#held, this.#engineBlockSize);
      this.#partial.updatePoints(this.#held);
    }
    this.#runs.flush();
    // Nodes do not move, so memory is freed only when there are none.
    if (this.#held?.isIdle && this.#held.byteLength > maxIdleBytes) this.#held = undefined;
    return this.#report;
  }

  /**
   * Attaches waiting blocks whose position is recognized by their contents; see `AttachHints`. If an engine block is
   * smaller than a router block, it cannot be recognized.
   *
   * @param trees `all` after `find` has learned something, `fresh` after events: what was offered in vain is not offered
   *   again with each of them
   */
  attachFloating(
    find: (contents: Uint32Array, blocks: number) => ChainPath | undefined,
    trees: OfferedTrees = "all",
  ): LedgerReport {
    resetLedgerReport(this.#report);
    this.#held?.attachment.offer(find, trees);
    this.#held?.presence.reconcile();
    if (this.#held) this.#partial.updatePoints(this.#held);
    this.#runs.flush();
    return this.#report;
  }

  /**
   * Writes the present state of the ledger's own sink to an empty sink: blocks tier by tier, parents before children,
   * then holes.
   */
  tellAll(sink: LedgerSink): void {
    const runs = new SinkRuns(sink);
    this.#partial.reportAny(runs);
    if (this.#held) reportAll(this.#held, runs);
    this.#external.reportAll(runs);
    runs.flush();
  }

  /** Discards everything, for a new engine process. */
  clear(): void {
    this.#groups.clear();
    this.#forget();
    this.#engineBlockSize = 0;
    this.#hasGpuSize = false;
    this.#hasOnlyTails = true;
    this.#unusable = undefined;
  }

  /** Whether blocks wait for a parent that the engine never announced, or were dropped while they waited. */
  get lacksParents(): boolean {
    const floating = this.#held?.floating;
    return floating !== undefined && floating.count + floating.dropped > 0;
  }

  /** The chain hash at the end of an engine's block with a known chain, by entry `at` of a list of engine hashes. */
  chainOf(hashes: Uint32Array, at: number): Hash64 | undefined {
    const held = this.#held;
    const node = held?.facts.nodeOf(hashes[2 * at]! | 0, hashes[2 * at + 1]! | 0) ?? 0;
    if (held === undefined || node === 0) return undefined;
    const { words, stride } = held.tree.table;
    const from = node * stride + nodeField.chain;
    return { low: words[from]!, high: words[from + 1]! };
  }

  stats(): LedgerStats {
    const all = [this.#held, this.#external.blocks].filter((one) => one !== undefined);
    const sum = (of: (held: HeldBlocks) => number): number => all.reduce((total, held) => total + of(held), 0);
    return {
      engineBlockSize: this.#engineBlockSize,
      unusable: this.#unusable,
      blocks: noBlocks.map((_, inTier) => sum(({ presence }) => presence.blocks[inTier]!)),
      nodes: sum(({ tree }) => tree.table.live),
      holes: sum(({ presence }) => presence.holes),
      floatingBlocks: sum(({ floating }) => floating.count),
      bytes: sum(({ byteLength }) => byteLength) + this.#partial.byteLength,
    };
  }

  #applyEvent(batch: EngineEventBatch, event: number): void {
    const kind = batch.kind[event]!;
    const hashes = batch.hashStart[event + 1]! - batch.hashStart[event]!;
    const isOutOfBounds = batch.tier[event]! >= tierNames.length || hashes > this.#limits.maxEventHashes;
    if (kind !== eventKind.stored) this.#reported = notReported;
    if (this.#unusable !== undefined || isOutOfBounds) this.#report.refusedEvents++;
    else if (kind === eventKind.stored) this.#applyStored(batch, event);
    else if (kind === eventKind.removed) this.#applyRemoved(batch, event);
    else if (kind === eventKind.cleared) this.#forget();
    else this.#report.refusedEvents++;
  }

  #applyStored(batch: EngineEventBatch, event: number): void {
    const group = batch.group[event]!;
    this.#groups.note(group, batch.attention[event]!, batch.blockSize[event]!, batch.window[event]!);
    const isReport = this.#isReport(batch, event);
    if (batch.attention[event] !== attention.full) {
      const partial = this.#groups.partialOf(group);
      if (partial) this.#partial.store(batch, event, partial, { held: this.#held, isReport });
      else this.#report.skippedEvents++;
      return;
    }
    const tokens = batch.tokenStart[event + 1]! - batch.tokenStart[event]!;
    if (tokens === 0) this.#move(batch, event);
    else if (!this.#store(batch, event, tokens, isReport)) this.#report.refusedEvents++;
  }

  #store(batch: EngineEventBatch, event: number, tokens: number, isReport: boolean): boolean {
    const firstHash = batch.hashStart[event]!;
    const blocks = batch.hashStart[event + 1]! - firstHash;
    const blockSize = batch.blockSize[event]! || this.#engineBlockSize || tokens / blocks;
    if (blockSize * blocks !== tokens || !Number.isInteger(blockSize)) return false;
    // vLLM offloads chunks of several blocks, and fetches whole ones only.
    const isChunk = batch.tier[event] !== tier.gpu && batch.group[event]! >= 0 && this.#hasGpuSize;
    const size = isChunk ? tokens : blockSize;
    const held = this.#heldFor(size, batch.tier[event]!, batch, event);
    if (held === undefined) return false;
    const detail = batch.detail[event];
    const run: NamedRun = {
      tokens: batch.tokens,
      start: batch.tokenStart[event]!,
      blocks: tokens / size,
      keys: detail?.blockKeys,
      firstKey: 0,
      hashes: batch.hashes,
      // A chunk of several blocks has the name of its last.
      firstHash: firstHash + blocks - tokens / size,
      tier: held === this.#external.blocks ? tier.external : batch.tier[event]!,
    };
    // Only vLLM names groups. Those of several groups of full attention are no copies of each other.
    const countsCopies = batch.group[event]! >= 0 && this.#groups.fullGroups === 1 && !isReport;
    if (batch.hasParent[event] === 1) {
      return held.storeBelow(run, batch.parent[2 * event]! | 0, batch.parent[2 * event + 1]! | 0, countsCopies);
    }
    held.storeAtRoot(run, this.#rootOf(detail?.adapter, detail?.cacheSalt), countsCopies);
    return true;
  }

  /**
   * Whether a stored event announces once more, on request (vLLM's `kv_cache_report_mode`), what a prompt could use: an
   * engine computes no copies of that. The events of a prompt follow one another, group by group, and the first decides.
   */
  #isReport(batch: EngineEventBatch, event: number): boolean {
    const group = batch.group[event]!;
    if (batch.hasParent[event] === 1 || group < 0) {
      this.#reported = notReported;
      return false;
    }
    const isNext = group > this.#reported.group && this.#reported.group >= 0;
    const isReport = isNext ? this.#reported.isReport : this.#canUseAll(batch, event);
    this.#reported = { group, isReport };
    return isReport;
  }

  /** Whether the engine could use all blocks of an event before it. */
  #canUseAll({ hashes, hashStart }: EngineEventBatch, event: number): boolean {
    const last = hashStart[event + 1]! - 1;
    if (this.#held === undefined || last <= hashStart[event]!) return false;
    this.#partial.updatePoints(this.#held);
    return this.#held.canUse(hashes[2 * last]! | 0, hashes[2 * last + 1]! | 0);
  }

  #move(batch: EngineEventBatch, event: number): void {
    const { hashes, hashStart } = batch;
    const end = hashStart[event + 1]!;
    if (this.#held === undefined) {
      this.#report.unknownMoves += end - hashStart[event]!;
      return;
    }
    for (let hash = hashStart[event]!; hash < end; hash++) {
      this.#held.move(hashes[2 * hash]! | 0, hashes[2 * hash + 1]! | 0, batch.tier[event]!);
    }
  }

  #applyRemoved(batch: EngineEventBatch, event: number): void {
    const partial = this.#groups.partialOf(batch.group[event]!);
    if (partial) {
      this.#partial.remove(batch, event, partial, this.#held);
      return;
    }
    if (batch.attention[event] !== attention.full || !this.#groups.countsForRemoval(batch.group[event]!)) {
      this.#report.skippedEvents++;
      return;
    }
    const { hashStart } = batch;
    const end = hashStart[event + 1]!;
    const external = batch.tier[event] === tier.gpu ? undefined : this.#external.blocks;
    for (let hash = hashStart[event]!; hash < end; hash++) {
      if (external?.knows(batch.hashes[2 * hash]! | 0, batch.hashes[2 * hash + 1]! | 0))
        external.remove(hash, tier.external);
      else if (this.#held) this.#held.remove(hash, batch.tier[event]!);
      else this.#report.unknownRemovals++;
    }
  }

  /**
   * The blocks of this size; undefined if they cannot be followed. vLLM also announces tails of prompts, a part of a
   * block each, as single blocks of a smaller size: these are left out.
   */
  #heldFor(blockSize: number, inTier: number, batch: EngineEventBatch, event: number): HeldBlocks | undefined {
    const isGpu = inTier === tier.gpu;
    if (this.#engineBlockSize !== 0 && blockSize !== this.#engineBlockSize) {
      if (!isGpu) return this.#externalFor(blockSize, batch, event);
      const isVllm = batch.group[event]! >= 0;
      if (!this.#hasGpuSize) this.#setExternal();
      else if (isVllm && this.#isTail(blockSize, batch, event)) return undefined;
      else if (isVllm && this.#hasOnlyTails && blockSize % this.#engineBlockSize === 0) this.#beginAgain();
      else return this.#refuse("block-size-changed");
    }
    if (batch.hashStart[event + 1]! - batch.hashStart[event]! !== 1) this.#hasOnlyTails = false;
    this.#hasGpuSize ||= isGpu;
    if (this.#held !== undefined) return this.#held;
    this.#held = this.#createHeld(blockSize, batch);
    if (this.#held === undefined) return this.#refuse("block-size-ratio");
    this.#engineBlockSize = blockSize;
    if (inTier === tier.external) this.#external.setChunks(blockSize, false);
    return this.#held;
  }

  #isTail(blockSize: number, { hashStart }: EngineEventBatch, event: number): boolean {
    return this.#engineBlockSize % blockSize === 0 && hashStart[event + 1]! - hashStart[event]! === 1;
  }

  /** The blocks of a cache beside the engine, which has one block size. */
  #externalFor(blockSize: number, batch: EngineEventBatch, event: number): HeldBlocks | undefined {
    const external = this.#external;
    if (external.blocks === undefined) {
      external.blocks = this.#createHeld(blockSize, batch);
      if (external.blocks) external.setChunks(blockSize, batch.group[event]! >= 0);
    }
    return blockSize === external.blocks?.engineBlockSize ? external.blocks : undefined;
  }

  /** What was taken for the engine's blocks are those of a cache beside it. */
  #setExternal(): void {
    this.#held?.shiftTo(tier.external);
    this.#external.blocks = this.#held;
    this.#external.setChunks(this.#engineBlockSize, false);
    this.#held = undefined;
    this.#engineBlockSize = 0;
    this.#hasOnlyTails = true;
  }

  /** @returns undefined if blocks of this size do not fit those of the router */
  #createHeld(blockSize: number, batch: EngineEventBatch): HeldBlocks | undefined {
    const shape = blockShapeOf({ engine: blockSize, router: this.#blockSize });
    if (shape === undefined) return undefined;
    const held = new HeldBlocks({
      shape,
      engineBlockSize: blockSize,
      blockSize: this.#blockSize,
      digests: this.#digests,
      runs: this.#runs,
      report: this.#report,
      maxBlocks: this.#limits.maxBlocks,
      maxFloatingBlocks: this.#limits.maxFloatingBlocks,
    });
    held.expect(batch.hashes, batch.hashStart[batch.count]!);
    return held;
  }

  /** What was taken for blocks were tails of prompts. */
  #beginAgain(): void {
    this.#held = undefined;
    this.#engineBlockSize = 0;
    this.#runs.cleared();
    this.#partial.reportAny(this.#runs);
    this.#external.reportAll(this.#runs);
  }

  #refuse(reason: UnusableReason): undefined {
    this.#forget();
    this.#unusable = reason;
    return undefined;
  }

  #forget(): void {
    this.#held = undefined;
    this.#external.clear();
    this.#partial.clear();
    this.#runs.cleared();
  }

  #rootOf(adapter: string | undefined, cacheSalt: string | undefined): Hash64 {
    if (adapter !== this.#adapter || cacheSalt !== this.#cacheSalt) {
      this.#root = this.#digests.root(adapter, cacheSalt);
      this.#adapter = adapter;
      this.#cacheSalt = cacheSalt;
    }
    return this.#root;
  }
}

/** What is kept beside the engine, in chunks: by a cache such as LMCache (256 tokens), or by vLLM's own offloading. */
class ExternalMemory {
  /** Undefined while its chunks are as large as the engine's own blocks. */
  blocks: HeldBlocks | undefined;
  readonly #blockSize: number;
  readonly #runs: SinkRuns;
  /** Tokens of a chunk; 0 while unknown. */
  #chunkTokens = 0;
  /** Whether vLLM itself keeps these chunks; it fetches whole ones only. */
  #areVllmChunks = false;

  /** @param blockSize tokens per router block */
  constructor(blockSize: number, runs: SinkRuns) {
    this.#blockSize = blockSize;
    this.#runs = runs;
  }

  /** The first size that is known stays. */
  setChunks(tokens: number, areVllmChunks: boolean): void {
    if (this.#chunkTokens !== 0) return;
    this.#chunkTokens = tokens;
    this.#areVllmChunks = areVllmChunks;
    this.#reportChunks(this.#runs);
  }

  reportAll(runs: SinkRuns): void {
    this.#reportChunks(runs);
    if (this.blocks) reportAll(this.blocks, runs);
  }

  clear(): void {
    this.blocks = undefined;
    this.#chunkTokens = 0;
  }

  /** Reports the size of chunks, if they are more than a block of the router. */
  #reportChunks(runs: SinkRuns): void {
    const blocks = this.#chunkTokens / this.#blockSize;
    if (blocks > 1) runs.add("stored", tier.external, externalChunks(blocks, this.#areVllmChunks), 0);
  }
}

/** Reports all held blocks tier by tier, parents before children, then the holes. */
function reportAll(held: HeldBlocks, runs: SinkRuns): void {
  for (let tier = 0; tier < tierNames.length; tier++) {
    if (held.presence.blocks[tier]! > 0) reportTier(held, tier, runs);
  }
  if (held.presence.holes > 0) held.presence.reportHoles(runs);
  held.resume?.reportAll(runs);
}

/**
 * Node numbers are reused, so a parent's may be above its child's. From each node, climbs to the first ancestor already
 * reported, and reports on the way back.
 */
function reportTier({ tree, presence, isReported }: HeldBlocks, tier: Tier | number, runs: SinkRuns): void {
  const { words, stride, end } = tree.table;
  const done = new Uint8Array(end);
  done[0] = 1;
  const path: number[] = [];
  for (let id = 1; id < end; id++) {
    if (done[id] === 1 || !tree.table.isLive(id) || tree.hasFlag(id, nodeFlag.alias)) continue;
    for (let node = id; done[node] === 0; node = tree.parentOf(node)) {
      done[node] = 1;
      path.push(node);
    }
    for (let node = path.pop(); node !== undefined; node = path.pop()) {
      if (((presence.tiersOf(node) >>> tier) & 1) === 0 || !isReported(node)) continue;
      runs.add("stored", tier, words, node * stride + nodeField.chain);
    }
  }
}
