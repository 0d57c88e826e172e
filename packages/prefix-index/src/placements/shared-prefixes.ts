import type { Placements } from "./placements.ts";
import { noSegment } from "./segments.ts";

/** A prefix that several chains or several targets share. */
export interface SharedPrefix {
  /** The hash of its last block, low word first. */
  readonly hash: Uint32Array;
  readonly blocks: number;
  /** The targets that it is placed on, ascending. */
  readonly targets: readonly number[];
  /** Number of different blocks that continue it. */
  readonly continuations: number;
  /** Index in the list of the longest prefix that it continues; -1 if it continues none. */
  readonly parent: number;
}

/** Bound of blocks examined per call; beyond it, only the most recently used chains of each target count. */
export const maxVisitedBlocks = 16_384;
const slots = maxVisitedBlocks * 2;
const none = -1;

/** Distinct blocks as columns, found by open addressing. */
interface Blocks {
  readonly low: Uint32Array;
  readonly high: Uint32Array;
  readonly parent: Int32Array;
  readonly depth: Int32Array;
  /** Number of targets it is on; 0 marks an empty slot. */
  readonly targets: Uint16Array;
  readonly continuations: Uint32Array;
  /** The largest number of targets that any block continuing it is on. */
  readonly widest: Uint16Array;
}

type Visit = (target: number, low: number, high: number, parent: number) => number;

/**
 * Finds the shared prefixes with the largest product of blocks and targets, largest first. For people to look at: it
 * takes some milliseconds, whatever the number of placements.
 *
 * @param limit bound of prefixes to return
 * @param below the hash of a block, low word first: then only what continues it, after the prefix that ends in it, if that is known
 */
export function largestSharedPrefixes(
  placements: Placements,
  limit: number,
  nowMs: number,
  below?: Uint32Array,
): SharedPrefix[] {
  const blocks: Blocks = {
    low: new Uint32Array(slots),
    high: new Uint32Array(slots),
    parent: new Int32Array(slots),
    depth: new Int32Array(slots),
    targets: new Uint16Array(slots),
    continuations: new Uint32Array(slots),
    widest: new Uint16Array(slots),
  };
  walkPlacements(placements, nowMs, (_target, low, high, parent) => count(blocks, low, high, parent));
  const root = below ? slotOf(blocks, below[0]!, below[1]!) : none;
  if (root !== none && blocks.targets[root] === 0) return [];
  const best = root === none ? chooseBest(blocks, limit) : [root, ...chooseBest(blocks, limit - 1, root)];
  const targets = new Map<number, number[]>(best.map((slot) => [slot, []]));
  walkPlacements(placements, nowMs, (target, low, high) => {
    const slot = slotOf(blocks, low, high);
    targets.get(slot)?.push(target);
    return slot;
  });
  const places = new Map(best.map((slot, place) => [slot, place]));
  return best.map((slot) => ({
    hash: Uint32Array.of(blocks.low[slot]!, blocks.high[slot]!),
    blocks: blocks.depth[slot]! + 1,
    targets: targets.get(slot)!,
    continuations: blocks.continuations[slot]!,
    parent: nearestAbove(blocks, slot, places),
  }));
}

function nearestAbove({ parent }: Blocks, slot: number, places: ReadonlyMap<number, number>): number {
  let above = parent[slot]!;
  while (above !== none && !places.has(above)) above = parent[above]!;
  return places.get(above) ?? -1;
}

/**
 * Visits live blocks, the same number of every target, each after its parent; `visit` returns what its children get.
 */
function walkPlacements(placements: Placements, nowMs: number, visit: Visit): void {
  const { segments } = placements.storage;
  const targets = placements.placedTargets();
  for (const target of targets) {
    let left = Math.floor(maxVisitedBlocks / targets.length);
    const tree = placements.treeOf(target)!;
    const ends = new Map<number, number>();
    for (let segment = tree.newest; segment !== noSegment && left > 0; segment = segments.older[segment]!) {
      if (segments.expiryMs[segment]! <= nowMs) continue;
      const pool = segments.pool.words;
      const offset = segments.offset[segment]!;
      let parent = segments.parent[segment] === noSegment ? none : (ends.get(segments.parent[segment]!) ?? none);
      const visited = Math.min(left, segments.length[segment]!);
      for (let at = offset; at < offset + visited * 2; at += 2)
        parent = visit(target, pool[at]!, pool[at + 1]!, parent);
      left -= visited;
      ends.set(segment, parent);
    }
  }
}

function slotOf({ low, high, targets }: Blocks, lowWord: number, highWord: number): number {
  let slot = lowWord & (slots - 1);
  while (targets[slot] !== 0 && (low[slot] !== lowWord || high[slot] !== highWord)) slot = (slot + 1) & (slots - 1);
  return slot;
}

function count(blocks: Blocks, low: number, high: number, parent: number): number {
  const slot = slotOf(blocks, low, high);
  if (blocks.targets[slot]!++ > 0) return slot;
  blocks.low[slot] = low;
  blocks.high[slot] = high;
  blocks.parent[slot] = parent;
  if (parent !== none) {
    blocks.depth[slot] = blocks.depth[parent]! + 1;
    blocks.continuations[parent]!++;
  }
  return slot;
}

/** @param root `none`, or the slot of a block that all must continue */
function chooseBest(blocks: Blocks, limit: number, root = none): number[] {
  const { targets, parent, depth, continuations, widest } = blocks;
  const isBelow = (slot: number): boolean => {
    let above = parent[slot]!;
    while (above !== root && above !== none && depth[above]! > depth[root]!) above = parent[above]!;
    return above === root;
  };
  for (let slot = 0; slot < slots; slot++) {
    const above = parent[slot]!;
    if (targets[slot] !== 0 && above !== none) widest[above] = Math.max(widest[above]!, targets[slot]!);
  }
  const blocksSaved = (slot: number): number => (depth[slot]! + 1) * targets[slot]!;
  let best: number[] = [];
  for (let slot = 0; slot < slots; slot++) {
    if (targets[slot]! < 2 && continuations[slot]! < 2) continue;
    // If one block continues it on all its targets, the longer prefix replaces this one.
    if (continuations[slot] === 1 && widest[slot] === targets[slot]) continue;
    if (root !== none && !isBelow(slot)) continue;
    best.push(slot);
    if (best.length < limit * 2 + 64) continue;
    best = best.sort((one, other) => blocksSaved(other) - blocksSaved(one)).slice(0, limit);
  }
  return best.sort((one, other) => blocksSaved(other) - blocksSaved(one)).slice(0, limit);
}
