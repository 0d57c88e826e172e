import { createSeededRandom, type Random } from "@espalier/core";

/** A forest of blocks: block i follows `parent[i]`, -1 for a first one. */
export interface ChainForest {
  readonly blockCount: number;
  readonly parent: Int32Array;
  readonly depth: Int32Array;
  readonly children: readonly number[][];
  /** Two words per block, low word first. */
  readonly hashes: Uint32Array;
  /** The blocks from the first one to a block. */
  pathTo(block: number): number[];
  /** The hashes of blocks, one after the other. */
  wordsOf(blocks: readonly number[]): Uint32Array;
}

/** Random hashes, some of which share their low word, as equal homes must not matter. */
export function randomHashes(count: number, random: Random): Uint32Array {
  const hashes = new Uint32Array(count * 2);
  for (let block = 0; block < count; block++) {
    const shares = block > 0 && random.integer(32) === 0;
    hashes[block * 2] = shares ? hashes[(block - 1) * 2]! : random.integer(0x1_0000_0000);
    hashes[block * 2 + 1] = random.integer(0x1_0000_0000);
  }
  return hashes;
}

export interface ForestShape {
  readonly maxDepth: number;
  /** One in this many blocks begins a chain. */
  readonly rootEvery: number;
  /** One in this many blocks follows some other block than the one before. */
  readonly branchEvery: number;
}

const usualShape: ForestShape = { maxDepth: 80, rootEvery: 40, branchEvery: 6 };

export function createChainForest(seed: number, blockCount: number, shape = usualShape): ChainForest {
  const { maxDepth, rootEvery, branchEvery } = shape;
  const random = createSeededRandom(seed);
  const parent = new Int32Array(blockCount).fill(-1);
  const depth = new Int32Array(blockCount);
  const children: number[][] = Array.from({ length: blockCount }, () => []);
  for (let block = 0; block < blockCount; block++) {
    if (block > 0 && random.integer(rootEvery) > 0) {
      const above = random.integer(branchEvery) > 0 ? block - 1 : random.integer(block);
      if (depth[above]! + 1 < maxDepth) {
        parent[block] = above;
        depth[block] = depth[above]! + 1;
        children[above]!.push(block);
      }
    }
  }
  const hashes = randomHashes(blockCount, random);
  return {
    blockCount,
    parent,
    depth,
    children,
    hashes,
    pathTo(block) {
      const path: number[] = [];
      for (let at = block; at >= 0; at = parent[at]!) path.push(at);
      return path.reverse();
    },
    wordsOf(blocks) {
      const words = new Uint32Array(blocks.length * 2);
      for (const [index, block] of blocks.entries()) words.set(hashes.subarray(block * 2, block * 2 + 2), index * 2);
      return words;
    },
  };
}
