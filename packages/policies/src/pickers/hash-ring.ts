import type { Decision } from "../decision.ts";
import { hashString } from "../hash.ts";
import { weightOf } from "../weights.ts";

/** Most points of one candidate. A heavier candidate gets less than its share. */
export const maxPointsPerCandidate = 16_384;

/** Points of absent candidates are kept up to this many, or four times the present ones, whichever is more. */
export const maxIdlePoints = 65_536;

/** A hash and the ordinal of a point share the 53 bits of a float, so points sort as plain numbers. */
const maxBatchPoints = 2 ** 21;

interface Member {
  readonly key: string;
  /** Number of its points on the ring. */
  points: number;
  /** The last decision that had it as a candidate, its index there, and how many of its points count. */
  stamp: number;
  index: number;
  livePoints: number;
}

/**
 * A consistent-hashing ring over candidate keys (Karger et al. 1997). The points of a candidate depend only on its key
 * and weight. The walk skips a point if its owner is absent, or if its number is beyond its owner's present weight.
 * This is exactly the walk over a ring without it. So the ring adds points only for a new or heavier candidate, and
 * leaving a candidate out for one retry costs nothing.
 */
export interface HashRing {
  /** Number of points, of present and absent candidates. */
  readonly size: number;
  /** Makes the eligible candidates of a decision the present ones. */
  enter(decision: Decision): void;
  /** Position of the first point at or after `hash`, clockwise. */
  seek(hash: number): number;
  /** Index of the candidate that owns the point at `position`; -1 if the point does not count now. */
  candidateAt(position: number): number;
}

/** @param pointsPerWeight points of a candidate of weight 1 */
export function createHashRing(pointsPerWeight: number): HashRing {
  let members = new Map<string, Member>();
  let ring = emptyPoints;
  let stamp = 0;

  const enter = ({ candidates, eligible, eligibleCount }: Decision): void => {
    stamp += 1;
    let lacking = 0;
    let livePoints = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      const key = candidates.key[index]!;
      let member = members.get(key);
      if (member === undefined) {
        member = { key, points: 0, stamp, index, livePoints: 0 };
        members.set(key, member);
      }
      member.stamp = stamp;
      member.index = index;
      member.livePoints = pointsOf(weightOf(candidates, index), pointsPerWeight);
      livePoints += member.livePoints;
      if (member.livePoints > member.points) lacking += 1;
    }
    if (lacking > 0) extend(livePoints);
  };
  const extend = (livePoints: number): void => {
    if (ring.owners.length > Math.max(maxIdlePoints, 4 * livePoints)) {
      members = new Map([...members].filter(([, member]) => member.stamp === stamp));
      for (const member of members.values()) member.points = 0;
      ring = emptyPoints;
    }
    let batch: Member[] = [];
    let batchPoints = 0;
    const flush = (): void => {
      ring = merge(ring, createPoints(batch));
      batch = [];
      batchPoints = 0;
    };
    // In key order, because points of equal hash keep the order in which they were created.
    const lacking = [...members.values()].filter((member) => member.livePoints > member.points).sort(compareKeys);
    for (const member of lacking) {
      const points = member.livePoints - member.points;
      if (batchPoints + points > maxBatchPoints) flush();
      batch.push(member);
      batchPoints += points;
    }
    flush();
  };

  return {
    get size() {
      return ring.owners.length;
    },
    enter,
    seek: (hash) => firstAtOrAfter(ring.hashes, hash),
    candidateAt(position) {
      const owner = ring.owners[position]!;
      if (owner.stamp !== stamp || ring.numbers[position]! >= owner.livePoints) return -1;
      return owner.index;
    },
  };
}

/** By bisection; wraps from the last point to the first. */
function firstAtOrAfter(hashes: Uint32Array, hash: number): number {
  let low = 0;
  let high = hashes.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (hashes[middle]! < hash) low = middle + 1;
    else high = middle;
  }
  return low === hashes.length ? 0 : low;
}

/** Points in clockwise order: by hash, then the owner's key, then number. All routers have the same order. */
interface Points {
  readonly hashes: Uint32Array;
  readonly owners: readonly Member[];
  /** The number of the point among its owner's. */
  readonly numbers: Uint16Array;
}

const emptyPoints: Points = { hashes: new Uint32Array(0), owners: [], numbers: new Uint16Array(0) };

function pointsOf(weight: number, pointsPerWeight: number): number {
  return Math.min(maxPointsPerCandidate, Math.max(1, Math.round(weight * pointsPerWeight)));
}

/** Creates the points that these members lack, at most `maxBatchPoints`. Members must be in key order. */
function createPoints(lacking: readonly Member[]): Points {
  const size = lacking.reduce((sum, owner) => sum + owner.livePoints - owner.points, 0);
  const order = new Float64Array(size);
  const created: Member[] = [];
  const createdNumbers = new Uint16Array(size);
  for (const owner of lacking) {
    for (let number = owner.points; number < owner.livePoints; number++) {
      order[created.length] = hashString(owner.key, number) * maxBatchPoints + created.length;
      createdNumbers[created.length] = number;
      created.push(owner);
    }
    owner.points = owner.livePoints;
  }
  order.sort();
  const hashes = new Uint32Array(size);
  const owners: Member[] = [];
  const numbers = new Uint16Array(size);
  for (let at = 0; at < size; at++) {
    const packed = order[at]!;
    const ordinal = packed % maxBatchPoints;
    hashes[at] = Math.floor(packed / maxBatchPoints);
    owners.push(created[ordinal]!);
    numbers[at] = createdNumbers[ordinal]!;
  }
  return { hashes, owners, numbers };
}

function merge(left: Points, right: Points): Points {
  if (left.owners.length === 0) return right;
  const size = left.owners.length + right.owners.length;
  const hashes = new Uint32Array(size);
  const owners: Member[] = [];
  const numbers = new Uint16Array(size);
  let fromLeft = 0;
  let fromRight = 0;
  for (let to = 0; to < size; to++) {
    const useLeft =
      fromRight === right.owners.length ||
      (fromLeft < left.owners.length && comparePoints(left, fromLeft, right, fromRight) < 0);
    const source = useLeft ? left : right;
    const from = useLeft ? fromLeft++ : fromRight++;
    hashes[to] = source.hashes[from]!;
    owners.push(source.owners[from]!);
    numbers[to] = source.numbers[from]!;
  }
  return { hashes, owners, numbers };
}

function comparePoints(one: Points, at: number, other: Points, otherAt: number): number {
  return (
    one.hashes[at]! - other.hashes[otherAt]! ||
    compareKeys(one.owners[at]!, other.owners[otherAt]!) ||
    one.numbers[at]! - other.numbers[otherAt]!
  );
}

function compareKeys(one: Member, other: Member): number {
  return one.key < other.key ? -1 : one.key > other.key ? 1 : 0;
}
