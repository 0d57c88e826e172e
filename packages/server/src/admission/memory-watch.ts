import type { Clock, TargetIndex } from "@espalier/common";
import type { AdmissionConfig } from "@espalier/config";
import type { PrefixIndex } from "@espalier/prefix-index";
import { ColdPrompt, type FeedStanding, MemoryWatch, type RoutingTarget, servesAlone } from "@espalier/routing";
import type { Target } from "@espalier/workers";
import type { RouterContext } from "../data-plane/router-context.ts";
import type { PlannedRequest } from "../request/planned-request.ts";

export interface MemoryWatchOptions {
  readonly config: AdmissionConfig;
  readonly clock: Clock;
  readonly index: PrefixIndex;
  readonly standingOf: (target: TargetIndex) => FeedStanding;
}

/**
 * Begins to watch what engines have in memory, by what all routers send them.
 *
 * @returns undefined where no class has patience: then nobody asks
 */
export function watchMemory({ config, clock, index, standingOf }: MemoryWatchOptions): MemoryWatch | undefined {
  if (!config.isOn || config.classes.every(({ patienceMs }) => patienceMs === 0)) return undefined;
  const watch = new MemoryWatch({ clock, index, standingOf });
  index.setPlacedListener((target, words, blockCount, { by = 0 }) => watch.sent(target, words, blockCount, by === 0));
  return watch;
}

const noneTried: ReadonlySet<string> = new Set();

/**
 * What a request would drive out of engines' memory.
 *
 * @returns undefined where nobody asks, for one without a prompt, and in a pool whose engines serve requests together
 */
export function coldPromptOf(
  context: Pick<RouterContext, "memory" | "quietSelector" | "mesh">,
  plan: PlannedRequest,
): ColdPrompt<Target> | undefined {
  const { memory, quietSelector, mesh } = context;
  const { pool, prompt, targets, onlyEngine } = plan;
  if (!memory || !prompt || targets.some(({ engine }) => engine.kvTransfer)) return undefined;
  const pendingTokens = ({ index, load }: RoutingTarget): number =>
    load.pendingPrefillTokens + (mesh?.load.pendingPrefillTokens[index] ?? 0);
  const parts = { watch: memory, quietSelector, pool, pendingTokens };
  return new ColdPrompt<Target>(parts, plan, { tried: noneTried, onlyEngine, accepts: servesAlone });
}
