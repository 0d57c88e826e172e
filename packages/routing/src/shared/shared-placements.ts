import type { TargetIndex } from "@espalier/common";
import type { PlacementLog, TargetSlots } from "@espalier/replication";
import type { PlacementWriter } from "../prefix/prefix-knowledge.ts";
import type { PromptBlocks } from "../prefix/prompt-blocks.ts";

/**
 * Guesses that all routers are told of. What this router guesses is in its own index at once. Of an engine that has left
 * meanwhile, nothing is told.
 */
export function createSharedPlacements(log: PlacementLog, slots: TargetSlots): PlacementWriter {
  const place = (
    index: TargetIndex,
    { chain, blockCount }: PromptBlocks,
    ttlMs: number,
    isConfirmed: boolean,
  ): void => {
    const target = slots.keyOf(index);
    if (target !== undefined) log.place(target, chain, blockCount, { ttlMs, isConfirmed });
  };
  return {
    place: (index, prompt, ttlMs) => place(index, prompt, ttlMs, false),
    confirm: (index, prompt, ttlMs) => place(index, prompt, ttlMs, true),
    refute(index, { chain, blockCount }, from) {
      const target = slots.keyOf(index);
      if (target !== undefined) log.refute(target, chain, { from, blockCount });
    },
  };
}
