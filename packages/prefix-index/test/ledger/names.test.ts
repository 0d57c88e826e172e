import { tier } from "@espalier/prefix-index";
import { describe, expect, test } from "vitest";
import type { TestEvent } from "./helpers.ts";
import { PromptFeed } from "./prompt-feed.ts";

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

  test.each([
    ["a hash that comes again in its run", [1n, 2n, 1n], ["ab", "abc"]],
    ["one hash throughout", [1n, 1n, 1n], ["abc"]],
  ])("%s stands for the last of the blocks", (_, hashes, held) => {
    const feed = new PromptFeed();
    feed.apply(named(feed, "abc", hashes));
    expect(feed.held()).toEqual(held);
    feed.apply(removed(...new Set(hashes)));
    expect(feed.stats).toMatchObject({ nodes: 0, holes: 0 });
  });
});

describe("several hashes of one block", () => {
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
