import { tier } from "@espalier/prefix-index";
import { describe, expect, test } from "vitest";
import { PromptFeed } from "./prompt-feed.ts";

const holeLines = (feed: PromptFeed): string[] =>
  feed.sink.log.filter((line) => line.startsWith("orphaned") || line.startsWith("holeGone"));

describe("radix nodes", () => {
  test("the cache is emptied at the start, before anything is known", () => {
    const feed = new PromptFeed();
    expect(feed.apply({ kind: "cleared" })).toMatchObject({ refusedEvents: 0 });
    expect(feed.sink.log).toEqual(["cleared"]);
    expect(feed.apply(feed.stored("ab"))).toMatchObject({ storedBlocks: 2 });
    expect(feed.held()).toEqual(["a", "ab"]);
  });

  test.each([
    ["parents first", ["ab", "abc", "abcd"]],
    ["the middle first", ["abc", "ab", "abcd"]],
  ])("a node's pages go in one removal, %s, without a hole", (_, pages) => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abcd"));
    expect(feed.apply(feed.removed(...pages))).toMatchObject({ removedBlocks: 3 });
    expect(feed.held()).toEqual(["a"]);
    expect(holeLines(feed)).toEqual([]);
    expect(feed.stats).toMatchObject({ nodes: 1, holes: 0 });
  });

  test("a removal without hashes, and a store without blocks, are nothing", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab"));
    const report = feed.apply(feed.removed(), feed.moved(tier.cpu));
    expect(report).toMatchObject({ removedBlocks: 0, unknownRemovals: 0, unknownMoves: 0, refusedEvents: 0 });
    expect(feed.stats.blocks).toEqual([2, 0, 0, 0]);
  });
});

describe("namespaces that do not show", () => {
  test("with hashes of their own, blocks are there until the last namespace is gone", () => {
    const feed = new PromptFeed();
    const namespaces = ["", "tenant 1", "tenant 2", "tenant 3"];
    for (const namespace of namespaces) feed.apply(feed.stored("abc", { namespace }));
    expect(feed.sink.log).toEqual(["stored 0 3"]);
    for (const [gone, namespace] of namespaces.entries()) {
      expect(feed.held()).toEqual(["a", "ab", "abc"]);
      feed.apply(feed.removedAs({ namespace }, "abc", "ab", "a"));
      if (gone < 3) expect(feed.stats.holes).toBe(0);
    }
    expect(feed.stats).toMatchObject({ nodes: 0, blocks: [0, 0, 0, 0] });
  });
});

describe("hierarchical cache", () => {
  const { gpu, cpu } = tier;

  test("a backup to the host, eviction from the device, and the load back", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abc"));
    feed.apply(feed.stored("abc", { tier: cpu }));
    expect(feed.stats.blocks).toEqual([3, 3, 0, 0]);
    feed.apply(feed.removed("a", "ab", "abc"));
    expect([feed.held(gpu), feed.held(cpu)]).toEqual([[], ["a", "ab", "abc"]]);
    expect(feed.stats).toMatchObject({ nodes: 3, holes: 0 });
    expect(feed.apply(feed.stored("abc"))).toMatchObject({ storedBlocks: 3 });
    expect([feed.held(gpu), feed.held(cpu)]).toEqual([
      ["a", "ab", "abc"],
      ["a", "ab", "abc"],
    ]);
    expect(feed.sink.log).toEqual(["stored 0 3", "stored 1 3", "removed 0 3", "stored 0 3"]);
  });
});

describe("pages of one token", () => {
  const paged = () => new PromptFeed({ engineUnits: 1, routerUnits: 16 });
  const block = "abcdefghijklmnop";
  const prompt = block.repeat(2);
  const pagesOf = (from: number, to: number): string[] =>
    Array.from({ length: to - from }, (_, at) => prompt.slice(0, from + at + 1));

  test("a block is told with its last page, however the pages come", () => {
    for (const cuts of [[32], [15, 32], [16, 32], [1, 17, 32], Array.from({ length: 32 }, (_, at) => at + 1)]) {
      const feed = paged();
      let from = 0;
      for (const to of cuts) {
        feed.apply(feed.stored(`${prompt.slice(0, from)}|${prompt.slice(from, to)}`.replace(/^\|/, "")));
        expect(feed.held()).toHaveLength(Math.floor(to / 16));
        from = to;
      }
      expect(feed.held()).toEqual([prompt.slice(0, 16), prompt]);
      expect(feed.stats.nodes).toBe(32);
    }
  });

  test("the end of a prompt that fills no block is kept for what follows, and not told", () => {
    const feed = paged();
    feed.apply(feed.stored(prompt.slice(0, 31)));
    expect(feed.stats).toMatchObject({ nodes: 31, blocks: [1, 0, 0, 0] });
    feed.apply(feed.stored(`${prompt.slice(0, 31)}|${prompt[31]}`));
    expect(feed.stats).toMatchObject({ nodes: 32, blocks: [2, 0, 0, 0] });
  });

  test("a block is in a tier when all of its pages are in that tier", () => {
    const feed = paged();
    feed.apply(feed.stored(block), feed.moved(tier.cpu, ...pagesOf(0, 15)));
    expect(feed.stats.blocks).toEqual([1, 0, 0, 0]);
    feed.apply(feed.moved(tier.cpu, block));
    expect(feed.stats.blocks).toEqual([1, 1, 0, 0]);
    feed.apply(feed.removed(pagesOf(0, 1)[0]!));
    expect([feed.held(tier.gpu), feed.held(tier.cpu)]).toEqual([[], [block]]);
  });
});
