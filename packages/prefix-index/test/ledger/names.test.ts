import { tier } from "@espalier/prefix-index";
import { describe, expect, test } from "vitest";
import type { TestEvent } from "./helpers.ts";
import { PromptFeed, type PromptFeedOptions } from "./prompt-feed.ts";

/** The event of a prompt under hashes given by hand. */
const named = (
  feed: PromptFeed,
  prompt: string,
  hashes: readonly bigint[],
  more: Partial<TestEvent> = {},
): TestEvent => ({
  ...feed.stored(prompt),
  hashes,
  ...more,
});
const below = (feed: PromptFeed, parent: bigint, prompt: string, ...hashes: readonly bigint[]): TestEvent =>
  named(feed, prompt, hashes, { parent });
const removed = (...hashes: readonly bigint[]): TestEvent => ({ kind: "removed", hashes });
const moved = (to: number, ...hashes: readonly bigint[]): TestEvent => ({
  kind: "stored",
  hashes,
  tokens: [],
  tier: to,
});

describe("a hash that stands for another block than before", () => {
  test.each([
    ["a leaf", "ab", 2n, "xy", ["a", "x", "xy"], {}],
    ["a root with a block below it", "ab", 1n, "xy", ["ab", "x", "xy"], { a: 0 }],
    ["a block between others", "abc", 2n, "xy", ["a", "abc", "x", "xy"], { ab: 1 }],
  ])("%s: the old block goes, what is below it stays", (_, first, hash, second, held, holes) => {
    const feed = new PromptFeed();
    feed.apply(named(feed, first, [1n, 2n, 3n].slice(0, first.length)));
    feed.apply(named(feed, second, [100n, hash]));
    expect(feed.held()).toEqual(held);
    expect(feed.holes()).toEqual(holes);
    feed.apply(removed(100n, hash));
    expect(feed.held()).toEqual(held.filter((name) => !name.startsWith("x")));
    feed.apply(removed(1n, 2n, 3n));
    expect(feed.stats).toMatchObject({ nodes: 0, holes: 0 });
  });

  test("the old block goes from every tier that the hash was in, and the new one is in its own only", () => {
    const feed = new PromptFeed();
    feed.apply(named(feed, "a", [1n]), moved(tier.cpu, 1n), moved(tier.disk, 1n));
    expect(feed.stats.blocks).toEqual([1, 1, 1, 0]);
    feed.apply(named(feed, "x", [1n], { tier: tier.cpu }));
    expect(feed.stats.blocks).toEqual([0, 1, 0, 0]);
    expect(feed.held(tier.cpu)).toEqual(["x"]);
  });

  test("the same tokens below another parent are another block", () => {
    const feed = new PromptFeed();
    feed.apply(named(feed, "a", [1n]), named(feed, "b", [2n]), below(feed, 1n, "a|c", 3n));
    feed.apply(below(feed, 2n, "b|c", 3n));
    expect(feed.held()).toEqual(["a", "b", "bc"]);
    feed.apply(removed(3n), removed(2n), removed(1n));
    expect(feed.stats.nodes).toBe(0);
  });

  test("two hashes change places within an event", () => {
    const feed = new PromptFeed();
    feed.apply(named(feed, "a", [1n]), named(feed, "b", [2n]));
    feed.apply(named(feed, "b", [1n]), named(feed, "a", [2n]));
    expect(feed.held()).toEqual(["a", "b"]);
    feed.apply(removed(1n));
    expect(feed.held()).toEqual(["a"]);
    feed.apply(removed(2n));
    expect(feed.held()).toEqual([]);
  });

  test("a block whose hash was taken can be stored under a new one, with what is below it", () => {
    const feed = new PromptFeed();
    feed.apply(named(feed, "abc", [1n, 2n, 3n]), named(feed, "x", [2n]));
    feed.apply(below(feed, 1n, "a|b", 20n), below(feed, 20n, "ab|d", 4n));
    expect(feed.held()).toEqual(["a", "ab", "abc", "abd", "x"]);
    expect(feed.holes()).toEqual({});
    feed.apply(below(feed, 2n, "x|y", 5n));
    expect(feed.held()).toContain("xy");
  });

  test.each([
    ["a hash that comes again in its run", [1n, 2n, 1n], ["ab", "abc"]],
    ["one hash throughout", [1n, 1n, 1n], ["abc"]],
    ["the first hash again at once", [1n, 1n, 2n], ["ab", "abc"]],
  ])("%s stands for the last of the blocks", (_, hashes, held) => {
    const feed = new PromptFeed();
    feed.apply(named(feed, "abc", hashes));
    expect(feed.held()).toEqual(held);
    feed.apply(removed(...new Set(hashes)));
    expect(feed.stats).toMatchObject({ nodes: 0, holes: 0 });
  });

  test("the hash of an ancestor for a block below it", () => {
    const feed = new PromptFeed();
    feed.apply(named(feed, "abc", [1n, 2n, 3n]), below(feed, 3n, "abc|d", 1n));
    expect(feed.held()).toEqual(["ab", "abc", "abcd"]);
    expect(feed.holes()).toEqual({ a: 0 });
    feed.apply(below(feed, 1n, "abcd|e", 5n));
    expect(feed.held()).toContain("abcde");
  });
});

describe("several hashes of one block", () => {
  const names = [1n, 2n, 3n, 4n, 5n];

  test.each([
    ["as they came", [1n, 2n, 3n, 4n, 5n]],
    ["backwards", [5n, 4n, 3n, 2n, 1n]],
    ["from the middle", [3n, 2n, 4n, 1n, 5n]],
    ["the first and the last first", [1n, 5n, 2n, 4n, 3n]],
  ])("the block goes with the last of them, %s", (_, order) => {
    const feed = new PromptFeed();
    feed.apply(...names.map((name) => named(feed, "a", [name])), named(feed, "a", [2n]));
    expect(feed.sink.log).toEqual(["stored 0 1"]);
    for (const name of order.slice(0, -1))
      expect(feed.apply(removed(name, name))).toMatchObject({ unknownRemovals: 1 });
    expect(feed.held()).toEqual(["a"]);
    feed.apply(removed(order.at(-1)!));
    expect(feed.stats).toMatchObject({ nodes: 0, blocks: [0, 0, 0, 0] });
  });

  test("any of them is a parent, and stays one while another is there", () => {
    const feed = new PromptFeed();
    feed.apply(...names.map((name) => named(feed, "a", [name])));
    for (const name of names) feed.apply(below(feed, name, `a|${"bcdef"[Number(name) - 1]}`, 10n + name));
    expect(feed.held()).toEqual(["a", "ab", "ac", "ad", "ae", "af"]);
    feed.apply(removed(2n, 4n));
    expect(feed.apply(below(feed, 3n, "a|g", 20n))).toMatchObject({ storedBlocks: 1 });
    expect(feed.apply(below(feed, 2n, "a|h", 21n))).toMatchObject({ floatedBlocks: 1 });
  });

  test("each has tiers of its own", () => {
    const feed = new PromptFeed();
    feed.apply(named(feed, "a", [1n]), named(feed, "a", [2n], { tier: tier.cpu }), moved(tier.disk, 1n, 2n));
    expect(feed.stats.blocks).toEqual([1, 1, 1, 0]);
    feed.apply({ ...removed(1n), tier: tier.disk });
    expect(feed.stats.blocks).toEqual([1, 1, 1, 0]);
    expect(feed.apply({ ...removed(2n), tier: tier.gpu })).toMatchObject({ unknownRemovals: 1 });
    feed.apply({ ...removed(2n), tier: tier.disk });
    expect(feed.stats.blocks).toEqual([1, 1, 0, 0]);
    feed.apply(removed(1n));
    expect(feed.stats.blocks).toEqual([0, 1, 0, 0]);
    expect(feed.apply({ ...removed(2n), tier: tier.cpu })).toMatchObject({ removedBlocks: 1 });
    expect(feed.stats.nodes).toBe(0);
  });

  test("one that comes to stand for another block leaves the others theirs", () => {
    const feed = new PromptFeed();
    feed.apply(named(feed, "a", [1n]), named(feed, "a", [2n], { tier: tier.cpu }), named(feed, "x", [2n]));
    expect([feed.held(tier.gpu), feed.held(tier.cpu)]).toEqual([["a", "x"], []]);
    feed.apply(removed(1n));
    expect(feed.held()).toEqual(["x"]);
    expect(feed.stats.nodes).toBe(1);
  });

  test("the last name stays with a block that is there only for what is below it", () => {
    const feed = new PromptFeed();
    feed.apply(named(feed, "a", [1n]), named(feed, "a", [2n]), below(feed, 1n, "a|b", 3n), removed(1n, 2n));
    expect(feed.holes()).toEqual({ a: 0 });
    expect(feed.apply(below(feed, 2n, "a|c", 4n))).toMatchObject({ storedBlocks: 1 });
    expect(feed.apply(below(feed, 1n, "a|d", 5n))).toMatchObject({ floatedBlocks: 1 });
    feed.apply(removed(3n, 4n));
    expect(feed.stats).toMatchObject({ nodes: 0, holes: 0, floatingBlocks: 2 });
  });

  test("a block that is there only for others takes the name that it is stored under", () => {
    const feed = new PromptFeed();
    feed.apply(named(feed, "ab", [1n, 2n]), removed(1n), named(feed, "a", [10n]));
    expect(feed.holes()).toEqual({});
    expect(feed.apply(removed(1n))).toMatchObject({ unknownRemovals: 1 });
    expect(feed.apply(below(feed, 1n, "a|c", 3n))).toMatchObject({ floatedBlocks: 1 });
    expect(feed.apply(below(feed, 10n, "a|d", 4n))).toMatchObject({ storedBlocks: 1 });
  });

  test("a block that gets a new name over and over takes no more memory", () => {
    const feed = new PromptFeed();
    feed.apply(named(feed, "ab", [1n, 2n]));
    const { bytes } = feed.stats;
    for (let name = 3n; name < 3_000n; name++)
      feed.apply(removed(name === 3n ? 1n : name - 1n), named(feed, "a", [name]));
    expect(feed.stats).toMatchObject({ bytes, nodes: 2, holes: 0 });
  });
});

describe("hashes of blocks that wait", () => {
  test("with other tokens the newest counts, and what waited below the old one stays there", () => {
    const feed = new PromptFeed();
    feed.apply(below(feed, 1n, "a|bc", 2n, 3n), below(feed, 1n, "a|x", 2n), below(feed, 2n, "ax|y", 4n));
    feed.apply(named(feed, "a", [1n]));
    expect(feed.held()).toEqual(["a", "abc", "ax", "axy"]);
    expect(feed.holes()).toEqual({ ab: 1 });
    expect(feed.apply(removed(2n, 3n, 4n, 1n))).toMatchObject({ removedBlocks: 4 });
    expect(feed.stats).toMatchObject({ nodes: 0, floatingBlocks: 0 });
  });

  test("one that is stored with other tokens is no more what waited, and what was below it waits on", () => {
    const feed = new PromptFeed();
    feed.apply(below(feed, 1n, "a|bc", 2n, 3n));
    expect(feed.apply(named(feed, "x", [2n]))).toMatchObject({ storedBlocks: 1, attachedBlocks: 0 });
    expect(feed.held()).toEqual(["x"]);
    feed.apply(named(feed, "a", [1n]));
    expect(feed.held()).toEqual(["a", "abc", "x"]);
    expect(feed.holes()).toEqual({ ab: 1 });
  });

  test("one that is stored with its tokens takes what is below it along, and its tiers", () => {
    const feed = new PromptFeed();
    feed.apply(below(feed, 2n, "ab|cd", 3n, 4n), moved(tier.cpu, 3n), named(feed, "ab", [1n, 20n]));
    expect(feed.apply(below(feed, 20n, "ab|c", 3n))).toMatchObject({ storedBlocks: 1, attachedBlocks: 1 });
    expect([feed.held(tier.gpu), feed.held(tier.cpu)]).toEqual([["a", "ab", "abc", "abcd"], ["abc"]]);
    expect(feed.stats.floatingBlocks).toBe(0);
  });

  test.each([
    ["its own parent", [[7n, [7n]]]],
    [
      "its grandparent",
      [
        [9n, [8n]],
        [8n, [9n]],
      ],
    ],
    ["the last of its own run", [[7n, [5n, 6n, 7n]]]],
    [
      "far below itself",
      [
        [4n, [5n, 6n]],
        [3n, [4n]],
        [6n, [2n, 3n]],
      ],
    ],
  ] as const)("a block that would be %s is refused, and what waits can still go", (_, runs) => {
    const feed = new PromptFeed();
    let refused = 0;
    for (const [parent, hashes] of runs) {
      refused += feed.apply(below(feed, parent, `z|${"abc".slice(0, hashes.length)}`, ...hashes)).refusedEvents;
    }
    expect(refused).toBe(1);
    feed.apply(removed(...runs.flatMap(([, hashes]) => hashes)));
    expect(feed.stats).toMatchObject({ nodes: 0, floatingBlocks: 0 });
  });
});

describe("names of blocks that are not of the router's size", () => {
  test.each<[string, PromptFeedOptions]>([
    ["larger", { engineUnits: 4 }],
    ["smaller", { routerUnits: 4 }],
  ])("%s ones go with the last name, too", (_, options) => {
    const feed = new PromptFeed(options);
    const namespaces = ["", "one", "two"];
    for (const namespace of namespaces) feed.apply(feed.stored("abcdefgh", { namespace }));
    const held = feed.held();
    expect(feed.sink.log).toEqual([`stored 0 ${held.length}`]);
    const all = Array.from({ length: 8 / feed.engineUnits }, (_, at) =>
      "abcdefgh".slice(0, (at + 1) * feed.engineUnits),
    );
    for (const namespace of namespaces) {
      expect(feed.held()).toEqual(held);
      feed.apply(feed.removedAs({ namespace }, ...all));
    }
    expect(feed.stats).toMatchObject({ nodes: 0, blocks: [0, 0, 0, 0], holes: 0 });
  });

  test.each<[string, PromptFeedOptions]>([
    ["larger", { engineUnits: 2 }],
    ["smaller", { routerUnits: 2 }],
  ])("%s ones that stand for other blocks leave nothing behind", (_, options) => {
    const feed = new PromptFeed(options);
    const first = feed.stored("abcd");
    feed.apply(first, { ...feed.stored("wxyz"), hashes: first.hashes! });
    const other = new PromptFeed(options);
    other.apply(other.stored("wxyz"));
    expect(feed.held()).toEqual(other.held());
    feed.apply({ kind: "removed", hashes: first.hashes! });
    expect(feed.stats).toMatchObject({ nodes: 0, holes: 0 });
  });
});
