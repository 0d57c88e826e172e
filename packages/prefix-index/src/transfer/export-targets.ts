import { slowTiers } from "../prefix-slow-tiers.ts";
import { SetScan } from "../table/scan-sets.ts";
import { type Tier, tier } from "../tiers.ts";
import { exportHoles, type FactTables } from "./export-target.ts";
import type { FactsGroup } from "./facts-group.ts";
import { GroupPacker } from "./group-packer.ts";

/** Bounds of a chunk of `PrefixIndex.exportAll`. */
export interface ExportLimits {
  /**
   * Its size, counting 8 bytes per block, 12 per hole, 4 per target of a group and 16 for the group. At least 32,768;
   * by default 262,144.
   */
  readonly maxChunkBytes: number;
  /** Pairs of block and target, which is what importing it costs. At least 4,096; by default 32,768. */
  readonly maxChunkPairs: number;
}

const defaultExportLimits: ExportLimits = { maxChunkBytes: 262_144, maxChunkPairs: 32_768 };

/** One block that as many targets have as there can be has to fit. */
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
  const scans = { gpu: new SetScan(tables.gpu, targets), slow: new SetScan(tables.slow, slowHolders) };
  return readTargets(tables, scans, new GroupPacker({ maxChunkBytes, maxChunkPairs }));
}

function* readTargets(
  tables: FactTables,
  scans: { readonly gpu: SetScan; readonly slow: SetScan },
  packer: GroupPacker,
): Generator<readonly FactsGroup[], void, undefined> {
  while (!scans.gpu.isDone) {
    for (const { holders, words } of scans.gpu.step()) {
      packer.add({ targets: holders, part: { kind: "blocks", tier: tier.gpu, words } });
    }
    yield* packer.take();
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

/** In the table of slow tiers a target is another holder for each tier. */
function addSlow(packer: GroupPacker, holders: readonly number[], words: Uint32Array): void {
  for (let slowTier = 1; slowTier <= slowTiers; slowTier++) {
    const ofTier = holders.filter((holder) => holder % slowTiers === slowTier - 1);
    const targets = ofTier.map((holder) => Math.floor(holder / slowTiers));
    if (targets.length > 0) packer.add({ targets, part: { kind: "blocks", tier: slowTier as Tier, words } });
  }
}
