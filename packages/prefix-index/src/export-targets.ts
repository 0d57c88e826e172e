import { slowTiers } from "./slow-tiers.ts";
import type { HolderTable } from "./table/holder-table.ts";
import { SetScan } from "./table/table-scans.ts";
import { type FactKind, resumePoint, type Tier, tier } from "./tiers.ts";

/** A part of what a target holds. `depths` are the depths of its holes. */
export type FactsChunk =
  | { readonly kind: "blocks"; readonly tier: FactKind; readonly words: Uint32Array }
  | { readonly kind: "holes"; readonly words: Uint32Array; readonly depths: Uint32Array }
  | { readonly kind: "walked" };

/** Blocks that several targets hold in common. */
export interface FactsGroup {
  readonly targets: readonly number[];
  readonly part: FactsChunk;
}

/** Bounds of a chunk of `PrefixIndex.exportAll`. */
export interface ExportLimits {
  /**
   * Size of a chunk: 8 bytes per block, 12 per hole, 4 per target of a group and 16 for the group. At least 32,768; by
   * default 262,144.
   */
  readonly maxChunkBytes: number;
  /** Pairs of block and target, the cost of importing a chunk. At least 4,096; by default 32,768. */
  readonly maxChunkPairs: number;
}

const defaultExportLimits: ExportLimits = { maxChunkBytes: 262_144, maxChunkPairs: 32_768 };

/** One block that the maximum number of targets hold must fit. */
const minExportLimits: ExportLimits = { maxChunkBytes: 32_768, maxChunkPairs: 4_096 };

/** Reads what targets hold; see `PrefixIndex.exportAll`. */
export function exportTargets(
  tables: FactTables,
  targets: readonly number[] | undefined,
  limits: Partial<ExportLimits> = {},
): Generator<readonly FactsGroup[], void, undefined> {
  const { maxChunkBytes, maxChunkPairs } = { ...defaultExportLimits, ...limits };
  if (!(maxChunkBytes >= minExportLimits.maxChunkBytes)) throw new RangeError(`maxChunkBytes is ${maxChunkBytes}`);
  if (!(maxChunkPairs >= minExportLimits.maxChunkPairs)) throw new RangeError(`maxChunkPairs is ${maxChunkPairs}`);
  const slowHolders = targets?.flatMap((target) =>
    Array.from({ length: slowTiers }, (_, at) => target * slowTiers + at),
  );
  const scans = {
    gpu: new SetScan(tables.gpu, targets),
    slow: new SetScan(tables.slow, slowHolders),
    resume: new SetScan(tables.resume, targets),
  };
  return readTargets(tables, scans, new GroupPacker({ maxChunkBytes, maxChunkPairs }));
}

function* readTargets(
  tables: FactTables,
  scans: Readonly<Record<keyof FactTables, SetScan>>,
  packer: GroupPacker,
): Generator<readonly FactsGroup[], void, undefined> {
  for (const [scan, kind] of [
    [scans.gpu, tier.gpu],
    [scans.resume, resumePoint],
  ] as const) {
    while (!scan.isDone) {
      for (const { holders, words } of scan.step()) {
        packer.add({ targets: holders, part: { kind: "blocks", tier: kind, words } });
      }
      yield* packer.take();
    }
  }
  while (!scans.slow.isDone) {
    for (const { holders, words } of scans.slow.step()) addSlow(packer, holders, words);
    yield* packer.take();
  }
  for (const target of scans.gpu.survivors()) {
    let hasHoles = false;
    for (const part of exportHoles(tables.gpu, target)) {
      packer.add({ targets: [target], part });
      hasHoles = true;
    }
    if (hasHoles) yield* packer.take();
  }
}

/** In the table of slow tiers a target is a different holder for each tier. */
function addSlow(packer: GroupPacker, holders: readonly number[], words: Uint32Array): void {
  for (let slowTier = 1; slowTier <= slowTiers; slowTier++) {
    const ofTier = holders.filter((holder) => holder % slowTiers === slowTier - 1);
    const targets = ofTier.map((holder) => Math.floor(holder / slowTiers));
    if (targets.length > 0) packer.add({ targets, part: { kind: "blocks", tier: slowTier as Tier, words } });
  }
}

/** The tables of an index: blocks on GPUs, blocks in slower tiers, and resume points. */
interface FactTables {
  readonly gpu: HolderTable;
  readonly slow: HolderTable;
  readonly resume: HolderTable;
}

/** Reads the holes of a target, or that they are unknown. */
function* exportHoles(gpu: HolderTable, target: number): Generator<FactsChunk, void, undefined> {
  if (gpu.isWalked(target)) yield { kind: "walked" };
  for (const { words, depths } of gpu.holeChunks(target)) yield { kind: "holes", words, depths };
}

const groupBytes = 16;
const targetBytes = 4;
const blockBytes = 8;
const holeBytes = 12;

/** Packs groups into chunks of bounded size and cost, and splits those that do not fit. */
class GroupPacker {
  readonly #limits: ExportLimits;
  #full: FactsGroup[][] = [];
  #open: FactsGroup[] = [];
  #bytes = 0;
  #pairs = 0;

  constructor(limits: ExportLimits) {
    this.#limits = limits;
  }

  add({ targets, part }: FactsGroup): void {
    const ofGroup = groupBytes + targets.length * targetBytes;
    if (part.kind === "walked") {
      this.#reserve(ofGroup, 0);
      this.#push({ targets, part }, ofGroup, 0);
      return;
    }
    const perBlock = part.kind === "blocks" ? blockBytes : holeBytes;
    const blocks = part.words.length / 2;
    for (let from = 0; from < blocks; ) {
      this.#reserve(ofGroup + perBlock, targets.length);
      const fitBytes = Math.floor((this.#limits.maxChunkBytes - this.#bytes - ofGroup) / perBlock);
      const fitPairs = Math.floor((this.#limits.maxChunkPairs - this.#pairs) / targets.length);
      const to = Math.min(blocks, from + fitBytes, from + fitPairs);
      this.#push(
        { targets, part: slice(part, from, to) },
        ofGroup + (to - from) * perBlock,
        (to - from) * targets.length,
      );
      from = to;
    }
  }

  /** Takes the packed chunks: at least one, which may be empty. */
  take(): FactsGroup[][] {
    const chunks = [...this.#full, this.#open];
    this.#full = [];
    this.#begin();
    return chunks;
  }

  /** Begins another chunk if this does not fit into the present one. */
  #reserve(bytes: number, pairs: number): void {
    const { maxChunkBytes, maxChunkPairs } = this.#limits;
    if (this.#bytes + bytes <= maxChunkBytes && this.#pairs + pairs <= maxChunkPairs) return;
    this.#full.push(this.#open);
    this.#begin();
  }

  #begin(): void {
    this.#open = [];
    this.#bytes = 0;
    this.#pairs = 0;
  }

  #push(group: FactsGroup, bytes: number, pairs: number): void {
    this.#open.push(group);
    this.#bytes += bytes;
    this.#pairs += pairs;
  }
}

function slice(part: Exclude<FactsChunk, { kind: "walked" }>, from: number, to: number): FactsChunk {
  const words = part.words.subarray(from * 2, to * 2);
  return part.kind === "blocks" ? { ...part, words } : { ...part, words, depths: part.depths.subarray(from, to) };
}
