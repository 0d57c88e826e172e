import { createSeededRandom } from "@espalier/core";
import { randomRuns } from "@espalier/testing";
import { expect, test } from "vitest";
import { createSetPairs, HolderSets, maxSetHolders, pairWords } from "../../src/table/holder-sets.ts";

function membersOf(sets: HolderSets, set: number): number[] {
  const pairs = createSetPairs();
  sets.pairsOf(set, pairs);
  const members: number[] = [];
  for (let pair = pairs.at; pair < pairs.at + pairs.count * pairWords; pair += pairWords) {
    for (let bit = 0; bit < 32; bit++) {
      if ((pairs.words[pair + 1]! >>> bit) & 1) members.push(pairs.words[pair]! * 32 + bit);
    }
  }
  return members;
}

function maskOf(holders: readonly number[], maxHolders: number): Uint32Array {
  const mask = new Uint32Array(Math.ceil(maxHolders / 32));
  for (const holder of holders) mask[holder >>> 5]! |= 1 << (holder & 31);
  return mask;
}

/** Makes a set of several holders, with one reference. */
function setOf(sets: HolderSets, holders: readonly number[]): number {
  let set = 0;
  for (const holder of holders) {
    const next = sets.plus(set, holder);
    sets.retain(next, 1);
    sets.release(set, 1);
    set = next;
  }
  return set;
}

test("a set goes with its last reference, and numbers that are used again mislead no remembered transition", () => {
  const sets = new HolderSets({ maxHolders: 64, maxSets: 100 });
  for (let round = 0; round < 200; round++) {
    const holders = [round % 60, (round * 7 + 1) % 60, (round * 13 + 2) % 60];
    const set = setOf(sets, holders);
    const bigger = sets.plus(set, 63);
    sets.retain(bigger, 1);
    expect(membersOf(sets, bigger)).toEqual([...new Set([...holders, 63])].sort((a, b) => a - b));
    sets.release(set, 1);
    sets.release(bigger, 1);
    expect(sets.sharedCount).toBe(0);
  }
});

test("random sets are what they should be", () => {
  const maxHolders = 300;
  const random = createSeededRandom(5);
  const sets = new HolderSets({ maxHolders, maxSets: 5_000 });
  const live: { set: number; holders: Set<number> }[] = [];
  for (let operation = 0; operation < randomRuns(20_000); operation++) {
    const at = random.integer(live.length + 1);
    const entry = live[at] ?? { set: 0, holders: new Set<number>() };
    if (at === live.length) live.push(entry);
    const holder = random.integer(maxHolders);
    const kind = random.integer(10);
    let next = entry.set;
    if (kind < 6) {
      entry.holders.add(holder);
      next = sets.plus(entry.set, holder);
    } else if (kind < 9) {
      entry.holders.delete(holder);
      next = sets.minus(entry.set, holder);
    } else {
      const gone = [holder, random.integer(maxHolders), random.integer(maxHolders)];
      for (const one of gone) entry.holders.delete(one);
      next = sets.without(entry.set, maskOf(gone, maxHolders));
    }
    sets.retain(next, 1);
    sets.release(entry.set, 1);
    entry.set = next;
    const members = [...entry.holders].sort((one, other) => one - other);
    expect(membersOf(sets, next)).toEqual(members);
    const asked = [random.integer(maxHolders), holder, ...members.slice(0, 2)];
    for (const one of asked) expect(sets.has(next, one)).toBe(entry.holders.has(one));
    const mask = maskOf(asked, maxHolders);
    expect(sets.countIn(next, mask)).toBe(members.filter((one) => asked.includes(one)).length);
    if (live.length > 300) {
      const [dropped] = live.splice(random.integer(live.length), 1);
      sets.release(dropped!.set, 1);
    }
  }
  for (const { set } of live) sets.release(set, 1);
  expect(sets.sharedCount).toBe(0);
});

test("one set beyond the bound is refused, and fits once another one has gone", () => {
  const sets = new HolderSets({ maxHolders: 64, maxSets: 2 });
  const one = setOf(sets, [1, 2]);
  const other = setOf(sets, [1, 3]);
  expect(sets.plus(sets.plus(0, 1), 4)).toBe(0);
  expect(sets.plus(one, 3)).toBe(0);
  sets.release(other, 1);
  const next = sets.plus(one, 3);
  expect(membersOf(sets, next)).toEqual([1, 2, 3]);
  sets.retain(next, 1);
  expect(sets.minus(next, 3)).toBe(one);
});

test("where even a smaller set has no room, that is said", () => {
  const sets = new HolderSets({ maxHolders: 64, maxSets: 3 });
  const set = setOf(sets, [1, 2, 3]);
  for (const holders of [
    [4, 5],
    [6, 7],
  ])
    setOf(sets, holders);
  expect(sets.minus(set, 1)).toBe(-1);
  expect(sets.without(set, maskOf([1], 64))).toBe(-1);
  expect(sets.without(set, maskOf([1, 2], 64))).toBe(4);
  expect(sets.without(set, maskOf([1, 2, 3], 64))).toBe(0);
  expect(sets.without(set, maskOf([9], 64))).toBe(set);
});

test("the largest sets have room, and holders beyond them are refused", () => {
  const sets = new HolderSets({ maxHolders: maxSetHolders, maxSets: 10 });
  const everySo = Array.from({ length: maxSetHolders / 32 }, (_, word) => word * 32 + (word % 32));
  let set = sets.plus(0, everySo[0]!);
  for (const holder of everySo.slice(1)) {
    const next = sets.plus(set, holder);
    sets.retain(next, 1);
    sets.release(set, 1);
    set = next;
  }
  expect(membersOf(sets, set)).toEqual(everySo);
  expect(() => new HolderSets({ maxHolders: maxSetHolders + 1, maxSets: 10 })).toThrow(RangeError);
});
