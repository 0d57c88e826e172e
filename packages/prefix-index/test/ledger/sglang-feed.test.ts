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

  test("prompt and answer are stored at the end of a request, below the node that they share", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abcd"));
    feed.apply(feed.stored("ab|xy"));
    feed.apply(feed.stored("abx|z"));
    expect(feed.held()).toEqual(["a", "ab", "abc", "abcd", "abx", "abxy", "abxz"]);
  });

  test.each([
    ["parents first", ["ab", "abc", "abcd"]],
    ["children first", ["abcd", "abc", "ab"]],
    ["the middle first", ["abc", "ab", "abcd"]],
    ["the middle last", ["ab", "abcd", "abc"]],
  ])("a node's pages go in one removal, %s, without a hole", (_, pages) => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abcd"));
    expect(feed.apply(feed.removed(...pages))).toMatchObject({ removedBlocks: 3 });
    expect(feed.held()).toEqual(["a"]);
    expect(holeLines(feed)).toEqual([]);
    expect(feed.stats).toMatchObject({ nodes: 1, holes: 0 });
  });

  test("removing parents and children in two events tells the holes in between", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abcd"));
    feed.apply(feed.removed("ab"), feed.removed("abc"), feed.removed("abcd"));
    expect(holeLines(feed)).toEqual(["orphaned 0 1", "orphaned 0 2", "holeGone 0", "holeGone 0"]);
    expect(feed.held()).toEqual(["a"]);
  });

  test("a removal that leaves one of two branches leaves holes above that", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abcd"), feed.stored("ab|xy"));
    feed.apply(feed.removed("ab", "abc", "abcd"));
    expect(feed.held()).toEqual(["a", "abx", "abxy"]);
    expect(feed.holes()).toEqual({ ab: 1 });
    feed.apply(feed.removed("abx", "abxy"));
    expect(feed.holes()).toEqual({});
    expect(feed.stats.nodes).toBe(1);
  });

  test("a removal with a hash twice, and hashes unknown, counts each for what it is", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab"));
    expect(feed.apply(feed.removed("ab", "xyz", "ab", "a"))).toMatchObject({ removedBlocks: 2, unknownRemovals: 2 });
    expect(feed.stats.nodes).toBe(0);
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
  test("with the same hashes, a namespaced prompt is the plain one, which goes with the first removal", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abc"), feed.stored("abc"));
    feed.apply(feed.removed("abc", "ab", "a"));
    expect(feed.held()).toEqual([]);
    expect(feed.apply(feed.removed("a", "ab", "abc"))).toMatchObject({ unknownRemovals: 3 });
  });

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

  test("the namespaces' own branches hang below the same blocks", () => {
    const feed = new PromptFeed();
    const other = { namespace: "tenant" };
    feed.apply(feed.stored("ab"), feed.stored("ab", other));
    feed.apply(feed.stored("ab|c"), feed.stored("ab|d", other));
    expect(feed.held()).toEqual(["a", "ab", "abc", "abd"]);
    feed.apply(feed.removed("abc", "ab", "a"));
    expect(feed.held()).toEqual(["a", "ab", "abd"]);
    feed.apply(feed.removedAs(other, "abd", "ab", "a"));
    expect(feed.stats.nodes).toBe(0);
  });

  test("blocks that one namespace lacks are there by the other", () => {
    const feed = new PromptFeed();
    const other = { namespace: "tenant" };
    feed.apply(feed.stored("abc"), feed.stored("abc", other));
    feed.apply(feed.removed("ab"), feed.removedAs(other, "abc"));
    expect(feed.held()).toEqual(["a", "ab", "abc"]);
    expect(feed.holes()).toEqual({});
    feed.apply(feed.removedAs(other, "ab"));
    expect(feed.holes()).toEqual({ ab: 1 });
  });

  test("a salted event is a chain of its own; the plain one of the same tokens is another", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab", { cacheSalt: "s" }), feed.stored("ab"));
    feed.apply(feed.stored("ab|c", { cacheSalt: "s" }));
    expect(feed.held()).toEqual(["/s:a", "/s:ab", "/s:abc", "a", "ab"]);
  });
});

describe("hierarchical cache", () => {
  const { gpu, cpu, disk } = tier;

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

  test("blocks stored on the host first are known there", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab", { tier: cpu }));
    expect(feed.stats.blocks).toEqual([0, 2, 0, 0]);
    feed.apply(feed.stored("ab|c"));
    expect(feed.holes(gpu)).toEqual({ a: 0, ab: 1 });
    expect(feed.holes(cpu)).toEqual({});
    feed.apply(feed.removedAs({ tier: cpu }, "a", "ab"));
    expect(feed.stats).toMatchObject({ blocks: [1, 0, 0, 0], holes: 2, nodes: 3 });
  });

  test("a removal in one tier leaves the other, and one where it is not is unknown", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("a"), feed.stored("a", { tier: disk }));
    expect(feed.apply(feed.removedAs({ tier: cpu }, "a"))).toMatchObject({ unknownRemovals: 1 });
    expect(feed.apply(feed.removedAs({ tier: disk }, "a"))).toMatchObject({ removedBlocks: 1 });
    expect(feed.apply(feed.removedAs({ tier: disk }, "a"))).toMatchObject({ unknownRemovals: 1 });
    expect(feed.stats.blocks).toEqual([1, 0, 0, 0]);
  });

  test("leaves that move to the host one by one leave holes there until all of the prefix has", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abc"));
    feed.apply(feed.stored("ab|c", { tier: cpu }), feed.removed("abc"));
    expect(feed.holes(cpu)).toEqual({ a: 0, ab: 1 });
    feed.apply(feed.stored("a|b", { tier: cpu }), feed.removed("ab"));
    expect(feed.holes(cpu)).toEqual({ a: 0 });
    feed.apply(feed.stored("a", { tier: cpu }), feed.removed("a"));
    expect(feed.holes(cpu)).toEqual({});
    expect(feed.stats).toMatchObject({ blocks: [0, 3, 0, 0], holes: 0 });
  });

  test("tiers of two namespaces are told together", () => {
    const feed = new PromptFeed();
    const other = { namespace: "tenant", tier: cpu };
    feed.apply(feed.stored("ab"), feed.stored("ab", other));
    expect(feed.stats.blocks).toEqual([2, 2, 0, 0]);
    feed.apply(feed.removed("ab"));
    expect([feed.held(gpu), feed.held(cpu)]).toEqual([["a"], ["a", "ab"]]);
    feed.apply(feed.removedAs({ ...other, tier: gpu }, "a"));
    expect(feed.held(gpu)).toEqual(["a"]);
    feed.apply(feed.removedAs(other, "a"));
    expect(feed.held(cpu)).toEqual(["ab"]);
    expect(feed.holes(cpu)).toEqual({ a: 0 });
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

  test.each([
    ["first", 0],
    ["second", 1],
    ["middle", 8],
    ["last", 15],
  ])("without its %s page a block is gone, and stored again it is back", (_, at) => {
    const feed = paged();
    feed.apply(feed.stored(prompt));
    const page = prompt.slice(0, at + 1);
    expect(feed.apply(feed.removed(page))).toMatchObject({ removedBlocks: 1 });
    expect(feed.held()).toEqual([prompt]);
    expect(feed.holes()).toEqual({ [prompt.slice(0, 16)]: 0 });
    const before = prompt.slice(0, at);
    feed.apply(feed.stored(at === 0 ? page : `${before}|${page.slice(at)}`));
    expect(feed.held()).toEqual([prompt.slice(0, 16), prompt]);
    expect(feed.holes()).toEqual({});
  });

  test("several pages missing have to come back all", () => {
    const feed = paged();
    feed.apply(feed.stored(prompt));
    feed.apply(feed.removed(...pagesOf(20, 24)));
    expect(feed.held()).toEqual([prompt.slice(0, 16)]);
    feed.apply(feed.stored(`${prompt.slice(0, 21)}|${prompt.slice(21, 24)}`));
    expect(feed.held()).toEqual([prompt.slice(0, 16)]);
    feed.apply(feed.stored(`${prompt.slice(0, 20)}|${prompt.slice(20, 21)}`));
    expect(feed.held()).toEqual([prompt.slice(0, 16), prompt]);
  });

  test("branches inside of a block share its first pages", () => {
    const feed = paged();
    feed.apply(feed.stored(prompt));
    feed.apply(feed.stored(`${block}abcdefgh|xxxxxxxx`));
    const [plain, branched] = [prompt, `${block}abcdefghxxxxxxxx`];
    expect(feed.held()).toEqual([block, plain, branched]);
    feed.apply(feed.removed(prompt.slice(0, 20)));
    expect(feed.held()).toEqual([block]);
    feed.apply(feed.stored(`${prompt.slice(0, 19)}|${prompt.slice(19, 20)}`));
    expect(feed.held()).toEqual([block, plain, branched]);
    feed.apply(feed.removed(...pagesOf(24, 32)));
    expect(feed.held()).toEqual([block, branched]);
  });

  test("the pages of a radix node go in one removal", () => {
    const feed = paged();
    feed.apply(feed.stored(prompt));
    feed.apply(feed.removed(...pagesOf(5, 32)));
    expect(feed.held()).toEqual([]);
    expect(holeLines(feed)).toEqual([]);
    expect(feed.stats.nodes).toBe(5);
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
