import type { KnownPool, PoolReach } from "@espalier/routing";
import type { EngineRecord, Fleet } from "@espalier/workers";
import { globPattern } from "../routing/glob-pattern.ts";
import type { PoolTarget } from "./pool-targets.ts";

/** Which pools the engines of a fleet can fetch from, by their models and labels. */
export interface FleetPoolReach extends PoolReach {
  /** Follows the fleet no more. */
  stop(): void;
}

const none: readonly KnownPool[] = [];

export function createFleetPoolReach(
  fleet: Pick<Fleet, "engines" | "onChange">,
  pools: readonly PoolTarget[],
): FleetPoolReach {
  const byTarget: (readonly KnownPool[] | undefined)[] = [];
  const reaches = pools.map(({ config }) => reachOf(config));
  const look = (engine: EngineRecord): void => {
    const reached = pools.filter((_, at) => reaches[at]!(engine));
    for (const { index } of engine.targets) byTarget[index] = reached;
  };
  for (const engine of fleet.engines) look(engine);
  const unsubscribe = fleet.onChange((change, engine) => {
    if (change === "gone") for (const { index } of engine.targets) byTarget[index] = undefined;
    else if (change === "added" || change === "spec" || change === "models") look(engine);
  });
  return {
    poolsOf: (target) => byTarget[target] ?? none,
    stop: unsubscribe,
  };
}

function reachOf({ models, labels }: PoolTarget["config"]): (engine: EngineRecord) => boolean {
  const patterns = models.map(globPattern);
  const wanted = Object.entries(labels);
  return (engine) =>
    wanted.every(([name, value]) => engine.labels[name] === value) &&
    (engine.models ?? []).some(({ id }) => patterns.some((pattern) => pattern.test(id)));
}
