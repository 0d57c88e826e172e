import type { Target } from "@espalier/workers";
import type { PoolSettings } from "../routing/pools.ts";

/** A rank of an engine with several is asked for by the header that vLLM and SGLang know. */
export function upstreamHeaders(
  { upstreamHeaders: credentials }: PoolSettings,
  { engine, rank }: Target,
): readonly string[] {
  return engine.targets.length === 1 ? credentials : [...credentials, "x-data-parallel-rank", String(rank)];
}
