import type { Accounting } from "./accounting.ts";
import type { EngineParameters, EngineStats } from "./types.ts";

type KnownCounts = Pick<EngineStats, "running" | "waiting" | "importing" | "pinned" | "cpuBlocks">;

interface BlockCounts {
  freeBlocks(): number;
  cachedBlocks(): number;
}

/** The gauges and counters of an engine with these requests and blocks. */
export function engineStats(
  known: KnownCounts,
  blocks: BlockCounts,
  { blockCount }: EngineParameters,
  accounting: Accounting,
): EngineStats {
  const freeBlocks = blocks.freeBlocks();
  return {
    ...known,
    kvUse: (blockCount - freeBlocks) / blockCount,
    cachedBlocks: blocks.cachedBlocks(),
    freeBlocks,
    ...accounting,
  };
}
