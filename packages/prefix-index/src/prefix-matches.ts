import { tierNames } from "./tiers.ts";

/**
 * What the index knows of one chain: a structure of arrays that is reused between queries. The columns are indexed by
 * target. Only those of the first `count` entries of `targets` are set; the others are zero.
 */
export interface PrefixMatches {
  count: number;
  /** The targets that hold any part of the chain, unordered. */
  readonly targets: Int32Array;
  /** 1 for a target in `targets`. */
  readonly isListed: Uint8Array;
  /** Leading blocks that the target has announced on its GPU. */
  readonly gpuBlocks: Int32Array;
  /** Leading blocks that it has announced in any tier. */
  readonly factBlocks: Int32Array;
  /** As `factBlocks`, with those after the last resume point of a hybrid model. */
  readonly heldBlocks: Int32Array;
  /** By tier: blocks from `gpuBlocks` to `factBlocks` whose fastest tier it is. */
  readonly tierBlocks: readonly Int32Array[];
  /** Leading blocks that it has announced in CPU memory, on its GPU too or not. Only where `countsCpu` is set. */
  readonly cpuBlocks: Int32Array;
  /** Whether queries fill `cpuBlocks`: this walks the chain from its beginning. */
  countsCpu: boolean;
  /** Leading blocks placed there and not expired. */
  readonly placedBlocks: Int32Array;
  /** Milliseconds since the deepest of `placedBlocks` was last used. */
  readonly placementAgeMs: Float64Array;
  /** The router that used it then, by the number given with the placement. */
  readonly placedBy: Int32Array;
  /** Leading blocks that the engine has confirmed by the cached tokens of an answer. */
  readonly confirmedBlocks: Int32Array;
}

/** @param maxTargets that of the index */
export function createPrefixMatches(maxTargets: number): PrefixMatches {
  const column = (): Int32Array => new Int32Array(maxTargets);
  return {
    count: 0,
    targets: column(),
    isListed: new Uint8Array(maxTargets),
    gpuBlocks: column(),
    factBlocks: column(),
    heldBlocks: column(),
    tierBlocks: tierNames.map(column),
    cpuBlocks: column(),
    countsCpu: false,
    placedBlocks: column(),
    placementAgeMs: new Float64Array(maxTargets),
    placedBy: column(),
    confirmedBlocks: column(),
  };
}

/** Zeroes what the last query wrote. */
export function resetPrefixMatches(matches: PrefixMatches): void {
  for (let index = 0; index < matches.count; index++) {
    const target = matches.targets[index]!;
    matches.isListed[target] = 0;
    matches.gpuBlocks[target] = 0;
    matches.factBlocks[target] = 0;
    matches.heldBlocks[target] = 0;
    for (const blocks of matches.tierBlocks) blocks[target] = 0;
    matches.cpuBlocks[target] = 0;
    matches.placedBlocks[target] = 0;
    matches.placementAgeMs[target] = 0;
    matches.placedBy[target] = 0;
    matches.confirmedBlocks[target] = 0;
  }
  matches.count = 0;
}

/** Adds a target to the list, once. */
export function listTarget(matches: PrefixMatches, target: number): void {
  if (matches.isListed[target] === 1) return;
  matches.isListed[target] = 1;
  matches.targets[matches.count++] = target;
}
