import type { PromptBlocks, RoutingTarget } from "@espalier/routing";
import type { SharedLoad } from "@espalier/shared-tree";
import { createNaiveIndex } from "./prefix-index-naive.ts";
import { blockSize, type ScoringFleet } from "./scoring-fleet.ts";

/** The least work by the simplest means: a Map of Sets, an object per candidate, a sort. */
export interface NaiveSelector {
  select(prompt: PromptBlocks): RoutingTarget;
  /** Prefill tokens before the first token of the answer. */
  workOf(target: RoutingTarget, prompt: PromptBlocks): number;
}

export function createNaiveSelector({ targets, prompts, shared, depthOf }: ScoringFleet): NaiveSelector {
  const index = createNaiveIndex();
  for (const { chain } of prompts) for (const at of targets.keys()) index.store(at, chain, 0, depthOf(at));
  const workOf = (target: RoutingTarget, prompt: PromptBlocks): number => {
    const held = Math.min(index.depthOf(target.index) * blockSize, prompt.tokens - 1);
    return waiting(target, shared) + Math.max(1, prompt.tokens - Math.floor(held / blockSize) * blockSize);
  };
  return {
    select(prompt) {
      index.match(prompt.chain, prompt.blockCount);
      const candidates = targets.map((target) => ({ target, work: workOf(target, prompt) }));
      candidates.sort((one, other) => one.work - other.work);
      return candidates[0]!.target;
    },
    workOf,
  };
}

function waiting({ load, index }: RoutingTarget, shared: SharedLoad): number {
  return load.pendingPrefillTokens + shared.pendingPrefillTokens[index]!;
}
