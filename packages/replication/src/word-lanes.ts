/**
 * A hash of 64 bits in two lanes of 32, for sums that replicas compare: each word goes into both, then `finishLane`, the
 * finalizer of MurmurHash3 (Austin Appleby), makes every bit of a lane depend on all.
 */
export function firstLane(lane: number, word: number): number {
  const mixed = Math.imul(lane ^ word, 0x9e3779b1);
  return mixed ^ (mixed >>> 15);
}

export function secondLane(lane: number, word: number): number {
  return Math.imul(lane + word, 0xc2b2ae3d) ^ (lane >>> 15);
}

/** @returns an unsigned number of 32 bits */
export function finishLane(lane: number): number {
  const mixed = Math.imul(lane ^ (lane >>> 16), 0x85ebca6b);
  const again = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (again ^ (again >>> 16)) >>> 0;
}
