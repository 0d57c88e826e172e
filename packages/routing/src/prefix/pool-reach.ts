import type { TargetIndex } from "@espalier/common";

/** A pool of KV blocks outside the engines: a target that announces what it holds and takes no requests. */
export interface KnownPool {
  readonly name: string;
  /** By which the prefix index knows it. */
  readonly index: TargetIndex;
}

/** Which pools engines can fetch from. Asked for every candidate of every request. */
export interface PoolReach {
  /** The same array until the engine or the configuration changes. */
  poolsOf(target: TargetIndex): readonly KnownPool[];
}

const none: readonly KnownPool[] = [];

/** Where no pool is configured. */
export const noPools: PoolReach = { poolsOf: () => none };
