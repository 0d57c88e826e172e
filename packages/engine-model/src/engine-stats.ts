import type { AdapterUse, EngineParameters, EngineStats } from "./types.ts";

type KnownCounts = Pick<EngineStats, "running" | "waiting" | "importing" | "pulling" | "pinned">;

interface BlockCounts {
  freeBlocks(): number;
  cachedBlocks(): number;
  cpuBlocks(): number;
}

/** The gauges and counters of an engine with these requests and blocks. */
export function engineStats(
  known: KnownCounts,
  blocks: BlockCounts,
  { blockCount }: EngineParameters,
  counters: Counters,
): EngineStats {
  const freeBlocks = blocks.freeBlocks();
  return {
    ...known,
    kvUse: (blockCount - freeBlocks) / blockCount,
    cachedBlocks: blocks.cachedBlocks(),
    freeBlocks,
    cpuBlocks: blocks.cpuBlocks(),
    ...counters,
  };
}

/** Counters of an engine since its start. */
export interface Counters {
  steps: number;
  busyMs: number;
  promptTokens: number;
  generatedTokens: number;
  prefixQueries: number;
  prefixHits: number;
  importedTokens: number;
  loadedTokens: number;
  pulledTokens: number;
  pulls: number;
  emptyPulls: number;
  preemptions: number;
  finished: number;
  adapterLoads: number;
}

export function createCounters(): Counters {
  return {
    steps: 0,
    busyMs: 0,
    promptTokens: 0,
    generatedTokens: 0,
    prefixQueries: 0,
    prefixHits: 0,
    importedTokens: 0,
    loadedTokens: 0,
    pulledTokens: 0,
    pulls: 0,
    emptyPulls: 0,
    preemptions: 0,
    finished: 0,
    adapterLoads: 0,
  };
}

/** The distinct adapters of an engine's requests. */
export function adapterUse(
  requests: Iterable<{ readonly chain: { readonly adapter: string | undefined }; readonly state: string }>,
): AdapterUse {
  const running = new Set<string>();
  const waiting = new Set<string>();
  for (const { chain, state } of requests) {
    if (chain.adapter !== undefined) (state === "running" ? running : waiting).add(chain.adapter);
  }
  return { running: [...running], waiting: [...waiting] };
}
