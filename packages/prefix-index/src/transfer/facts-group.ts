import type { FactsChunk } from "./facts-chunk.ts";

/** A part of what several targets hold alike. */
export interface FactsGroup {
  readonly targets: readonly number[];
  readonly part: FactsChunk;
}
