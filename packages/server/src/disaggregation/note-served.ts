import { promptWorkMs } from "@espalier/disaggregation";
import type { Selection } from "@espalier/routing";
import type { Target } from "@espalier/workers";
import type { PlannedRequest } from "../data-plane/planned-request.ts";
import type { SplitParts } from "./split-parts.ts";

/** How a request ended, as far as it matters to those that two engines serve. */
export interface SplitEnd {
  /** The client has a whole answer, and no error. */
  readonly isAnswered: boolean;
  /** The engine that answered. */
  readonly selection: Selection<Target> | undefined;
  readonly outputTokens: number;
  /** From the first byte of the answer to its last; 0 for one that came as a whole. */
  readonly writingMs: number;
}

/** Takes in what an answered request made the engines of either role do, and says what follows for their number. */
export function noteServed(
  split: Pick<SplitParts, "probeOf" | "rolesOf" | "metrics">,
  { pool, targets, features: { promptTokens } }: Pick<PlannedRequest, "pool" | "targets" | "features">,
  { selection, outputTokens, writingMs }: SplitEnd,
): void {
  const uncachedTokens = promptTokens - (selection?.matchedTokens ?? 0);
  const { blockCount = Number.NaN, blockSize = Number.NaN } = selection?.target.signals ?? {};
  const roles = split.rolesOf(pool);
  const { balance } = roles;
  balance.observe({
    uncachedTokens,
    outputTokens,
    prefillMs: promptWorkMs(split.probeOf(pool).chosen, { promptTokens, uncachedTokens }),
    heldMs: ((promptTokens + outputTokens) / (blockCount * blockSize)) * writingMs,
  });
  roles.tell();
  const engines = new Set(targets.map(({ engine }) => engine)).size;
  split.metrics.balance(pool.model, balance.prefillShare(), balance.prefillEngines(engines));
}
