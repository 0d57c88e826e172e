import { slowHolder, slowTiers } from "../prefix-slow-tiers.ts";
import type { HolderTable } from "../table/holder-table.ts";
import { scanHolder } from "../table/scan-holder.ts";
import { type Tier, tier } from "../tiers.ts";
import type { FactsChunk } from "./facts-chunk.ts";

/** The tables of an index: blocks on GPUs, and in slower tiers. */
export interface FactTables {
  readonly gpu: HolderTable;
  readonly slow: HolderTable;
}

/** Reads what one target holds; see `PrefixIndex.exportFacts`. */
export function* exportTarget({ gpu, slow }: FactTables, target: number): Generator<FactsChunk, void, undefined> {
  for (const words of scanHolder(gpu, target)) yield { kind: "blocks", tier: tier.gpu, words };
  for (let slowTier = 1; slowTier <= slowTiers; slowTier++) {
    for (const words of scanHolder(slow, slowHolder(target, slowTier))) {
      yield { kind: "blocks", tier: slowTier as Tier, words };
    }
  }
  yield* exportHoles(gpu, target);
}

/** Reads what a target lacks although it holds what follows, or that this is not known. */
export function* exportHoles(gpu: HolderTable, target: number): Generator<FactsChunk, void, undefined> {
  if (gpu.isWalked(target)) yield { kind: "walked" };
  for (const { words, depths } of gpu.holeChunks(target)) yield { kind: "holes", words, depths };
}
