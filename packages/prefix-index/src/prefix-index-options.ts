/** The most targets that one index can be made for. */
export const maxPrefixTargets = 4_096;

/** The bounds of an index. Address space is reserved for them; memory is taken as it is needed. */
export interface PrefixIndexOptions {
  /** Targets are 0 to this, exclusive. Default and maximum: 4,096. */
  readonly maxTargets?: number;
  /** Distinct blocks that targets have on GPUs, and as many in slower tiers. Default: 67,108,864. */
  readonly maxBlocks?: number;
  /** Distinct sets of two or more targets that have a block. Default: 262,144. */
  readonly maxSets?: number;
  /** Holes of one target; with more it is walked block by block. Default: 65,536. */
  readonly maxHoles?: number;
  /** Placed blocks of one target. Default: 65,536. */
  readonly maxPlacedBlocksPerTarget?: number;
  /** Placed blocks of all targets. Default: 16,777,216. */
  readonly maxPlacedBlocks?: number;
  /** Stretches between the points where placed chains part. Default: 1,048,576. */
  readonly maxPlacedSegments?: number;
}

/** @throws RangeError when there can be no such index */
export function completeOptions(options: PrefixIndexOptions): Required<PrefixIndexOptions> {
  const maxTargets = options.maxTargets ?? maxPrefixTargets;
  if (!Number.isInteger(maxTargets) || maxTargets < 1 || maxTargets > maxPrefixTargets) {
    throw new RangeError(`maxTargets must be a whole number from 1 to ${maxPrefixTargets}`);
  }
  return {
    maxTargets,
    maxBlocks: options.maxBlocks ?? 67_108_864,
    maxSets: options.maxSets ?? 262_144,
    maxHoles: options.maxHoles ?? 65_536,
    maxPlacedBlocksPerTarget: options.maxPlacedBlocksPerTarget ?? 65_536,
    maxPlacedBlocks: options.maxPlacedBlocks ?? 16_777_216,
    maxPlacedSegments: options.maxPlacedSegments ?? 1_048_576,
  };
}
