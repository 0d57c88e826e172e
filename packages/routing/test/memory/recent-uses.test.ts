import { createSeededRandom } from "@espalier/core";
import { promptOf, tokensOf } from "@espalier/testing";
import { expect, test } from "vitest";
import { maxRecentUses, RecentUses } from "../../src/memory/recent-uses.ts";

/** The first blocks of a text that is named by a letter. */
const text = (letter: string, blocks: number) => promptOf(tokensOf(letter, 16 * blocks));
const own = { usedMs: 0, isOwn: true };

function add(uses: RecentUses, target: number, letter: string, blocks: number, usedMs = 0): void {
  const { chain, blockCount } = text(letter, blocks);
  uses.add(target, chain, blockCount, { ...own, usedMs });
}

const before = (uses: RecentUses, letter: string, blocks: number) => uses.before(text(letter, blocks).chain, blocks);

test("one that goes on elsewhere leaves behind what nobody is expected to come back for", () => {
  const uses = new RecentUses();
  add(uses, 0, "a", 10);
  add(uses, 1, "a", 14);
  expect([...uses.at(0)]).toMatchObject([{ blocks: 10, isOver: true }]);
  expect([...uses.at(1)]).toMatchObject([{ blocks: 14, isOver: false }]);
  expect(before(uses, "a", 20)).toMatchObject({ target: 1 });
  expect([...uses.all()]).toHaveLength(1);
});

test("the same prompt again is a later use of it", () => {
  const uses = new RecentUses();
  add(uses, 0, "a", 10);
  add(uses, 0, "b", 10);
  add(uses, 0, "a", 10, 5);
  expect([...uses.at(0)].map(({ usedMs }) => usedMs)).toEqual([0, 5]);
  expect(uses.blocksAt(0)).toBe(20);
});

test("what a target has lost can still be gone on with, as something new to that target", () => {
  const uses = new RecentUses();
  add(uses, 0, "a", 10);
  uses.drop(before(uses, "a", 10)!);
  expect([[...uses.at(0)], uses.blocksAt(0)]).toEqual([[], 0]);
  expect(before(uses, "a", 12)).toMatchObject({ blocks: 10 });
  add(uses, 0, "a", 12);
  expect(uses.blocksAt(0)).toBe(12);
});

test("what is removed is gone altogether, and a prompt without a full block is none", () => {
  const uses = new RecentUses();
  add(uses, 0, "a", 10);
  uses.remove(before(uses, "a", 10)!);
  expect([before(uses, "a", 12), [...uses.at(0)], [...uses.all()]]).toEqual([undefined, [], []]);
  add(uses, 0, "a", 0);
  expect([[...uses.all()], uses.blocksAt(7), before(uses, "a", 0)]).toEqual([[], 0, undefined]);
});

test("of more prompts than are remembered the one that was used longest ago is forgotten", () => {
  const uses = new RecentUses();
  const word = new Uint32Array(2);
  for (let count = 0; count <= maxRecentUses; count++) {
    word[0] = count;
    uses.add(count % 3, word, 1, own);
  }
  expect(uses.before(new Uint32Array([0, 0]), 1)).toBeUndefined();
  expect(uses.before(new Uint32Array([1, 0]), 1)).toBeDefined();
  expect(uses.blocksAt(0) + uses.blocksAt(1) + uses.blocksAt(2)).toBe(maxRecentUses);
});

test("what is left behind is bounded as well", () => {
  const uses = new RecentUses();
  const chain = new Uint32Array(4);
  for (let count = 0; count <= maxRecentUses; count++) {
    chain[0] = count;
    chain[2] = count;
    uses.add(0, chain, 1, own);
    uses.add(1, chain, 2, own);
  }
  expect(uses.blocksAt(0)).toBe(maxRecentUses);
});

test.each([1, 2, 3])("it knows what a list of all prompts knows (seed %i)", (seed) => {
  const random = createSeededRandom(seed);
  const uses = new RecentUses();
  let known: { letter: string; blocks: number; target: number }[] = [];
  for (let count = 0; count < 400; count++) {
    const letter = "abcdef"[random.integer(6)]!;
    const blocks = 1 + random.integer(20);
    const target = random.integer(3);
    const longest = known
      .filter((one) => one.letter === letter && one.blocks <= blocks)
      .sort((one, other) => other.blocks - one.blocks)[0];
    const found = before(uses, letter, blocks);
    expect(found?.target).toBe(longest?.target);
    add(uses, target, letter, blocks);
    known = [...known.filter((one) => one !== longest), { letter, blocks, target }];
    expect([...uses.all()]).toHaveLength(known.length);
    for (const at of [0, 1, 2]) {
      expect(uses.blocksAt(at)).toBe([...uses.at(at)].reduce((sum, use) => sum + use.blocks, 0));
    }
  }
});
