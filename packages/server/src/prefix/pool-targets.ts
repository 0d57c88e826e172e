import type { TargetIndex } from "@espalier/common";
import type { KvPoolConfig } from "@espalier/config";
import type { FeedTarget, KnownPool } from "@espalier/routing";

/** A configured pool of KV blocks as its events are read: like an engine's, of a target that takes no requests. */
export interface PoolTarget extends KnownPool, FeedTarget {
  readonly config: KvPoolConfig;
}

/** The key of a pool, the same in every router. Ids of engines have no spaces, so no target has the same. */
export function poolKey(name: string): string {
  return `pool ${name}`;
}

/** @param indexOf the number of a pool among all targets, by its key and its place in the configuration */
export function poolTargets(
  configs: readonly KvPoolConfig[],
  indexOf: (key: string, at: number) => TargetIndex,
): readonly PoolTarget[] {
  return configs.map((config, at) => {
    const key = poolKey(config.name);
    return { name: config.name, key, index: indexOf(key, at), config };
  });
}
