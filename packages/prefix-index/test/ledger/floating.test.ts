import { type ChainPath, tier } from "@espalier/prefix-index";
import { describe, expect, test } from "vitest";
import { type TestEvent, wordsOf } from "./helpers.ts";
import { PromptFeed } from "./prompt-feed.ts";

const waiting = (feed: PromptFeed): number => feed.stats.floatingBlocks;

/** The path of a prompt, as a request that is under way would have it. */
function pathOf(feed: PromptFeed, prompt: string): ChainPath {
  const words = wordsOf(feed.chain(prompt));
  return { words, blocks: words.length / 2 };
}

describe("blocks before their parents", () => {
  test.each([
    ["one level", ["ab|c", "ab"]],
    ["two levels, the deepest first", ["abc|d", "ab|c", "ab"]],
    ["two levels, the middle first", ["ab|c", "abc|d", "ab"]],
    ["the parent block by block", ["ab|cd", "a|b", "a"]],
    ["a parent in the middle of a run", ["ab|x", "abcd"]],
    ["a run over several unknown parents", ["a|x", "ab|y", "abc|z", "abc"]],
    ["a run across what floats", ["abcd|e", "ab|cd", "ab"]],
  ])("%s: nothing is told before, everything afterwards", (_, prompts) => {
    const feed = new PromptFeed();
    const last = prompts.at(-1)!;
    for (const prompt of prompts.slice(0, -1)) {
      expect(feed.apply(feed.stored(prompt))).toMatchObject({ storedBlocks: 0, attachedBlocks: 0 });
    }
    expect(feed.sink.log).toEqual([]);
    feed.apply(feed.stored(last));
    const expected = new PromptFeed();
    for (const prompt of prompts) expected.apply(expected.stored(prompt.replace("|", "")));
    expect(feed.sink.blocks).toEqual(expected.sink.blocks);
    expect(feed.stats).toMatchObject({ floatingBlocks: 0, holes: 0, nodes: expected.stats.nodes });
  });

  test.each([
    ["as large as", {}],
    ["larger than", { engineUnits: 2 }],
    ["smaller than", { routerUnits: 2 }],
  ])("a run longer than is worked on at a time, of blocks %s the router's", (_, sizes) => {
    const feed = new PromptFeed(sizes);
    const text = `zz${"abcdefgh".repeat(80)}`;
    const blocks = 640 / feed.engineUnits;
    expect(feed.apply(feed.stored(text.replace("zz", "zz|")))).toMatchObject({ floatedBlocks: blocks });
    expect(feed.apply(feed.stored("zz"))).toMatchObject({ attachedBlocks: blocks });
    expect(feed.sink.blocks[tier.gpu]).toEqual(new Set(feed.chain(text)));
  });

  test("two runs under one unknown parent come out together", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab|c"), feed.stored("ab|d"), feed.stored("ab|ef"));
    expect(waiting(feed)).toBe(5);
    expect(feed.apply(feed.stored("ab"))).toMatchObject({ attachedBlocks: 4, storedBlocks: 2 });
    expect(feed.held()).toEqual(["a", "ab", "abc", "abd", "abe", "abef"]);
  });

  test("trees under different parents wait each for its own", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("a|b"), feed.stored("x|y"));
    expect(feed.apply(feed.stored("x"))).toMatchObject({ attachedBlocks: 1 });
    expect(feed.held()).toEqual(["x", "xy"]);
    expect(waiting(feed)).toBe(2);
    feed.apply(feed.stored("a"));
    expect(feed.held()).toEqual(["a", "ab", "x", "xy"]);
  });

  test("a parent that floats itself joins two trees", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abc|d"), feed.stored("a|bc"));
    expect(waiting(feed)).toBe(4);
    expect(feed.apply(feed.stored("a"))).toMatchObject({ attachedBlocks: 3 });
    expect(feed.held()).toEqual(["a", "ab", "abc", "abcd"]);
  });

  test("announced again while they wait, blocks are counted, and wait once", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab|cd"));
    expect(feed.apply(feed.stored("ab|cd"), feed.stored("abc|d"))).toMatchObject({ floatedBlocks: 3 });
    expect(waiting(feed)).toBe(3);
  });
});

describe("what blocks that wait keep", () => {
  test("a prompt with an unknown parent whose blocks are known is stored where they are", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abcd"));
    const lost = feed.stored("abcd|ef");
    const event: TestEvent = { ...feed.stored("abc|def"), parent: 12_345n };
    expect(feed.apply(event)).toMatchObject({ storedBlocks: 3, floatedBlocks: 0, refusedEvents: 0 });
    expect(feed.held()).toEqual(["a", "ab", "abc", "abcd", "abcde", "abcdef"]);
    expect(feed.apply(lost)).toMatchObject({ storedBlocks: 2 });
    expect(feed.stats).toMatchObject({ nodes: 6, floatingBlocks: 0 });
  });

  test("blocks that are known are stored in another tier, too, and do not wait", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab"));
    feed.apply({ ...feed.stored("a|bc", { tier: tier.cpu }), parent: 12_345n });
    expect([feed.held(tier.gpu), feed.held(tier.cpu)]).toEqual([
      ["a", "ab"],
      ["ab", "abc"],
    ]);
    expect(feed.holes(tier.gpu)).toEqual({});
    expect(feed.holes(tier.cpu)).toEqual({ a: 0 });
    expect(feed.stats.floatingBlocks).toBe(0);
  });

  test("keys, adapters and tiers are kept while blocks wait", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab|Cd", { tier: tier.cpu }));
    feed.apply(feed.stored("ab|x"));
    feed.apply(feed.stored("ab", { tier: tier.disk }));
    expect([feed.held(tier.gpu), feed.held(tier.cpu), feed.held(tier.disk)]).toEqual([
      ["abx"],
      ["abC", "abCd"],
      ["a", "ab"],
    ]);
    expect([feed.holes(tier.gpu), feed.holes(tier.cpu), feed.holes(tier.disk)]).toEqual([
      { a: 0, ab: 1 },
      { a: 0, ab: 1 },
      {},
    ]);
    const salted = new PromptFeed();
    const options = { adapter: "lora", cacheSalt: "salt" };
    salted.apply(salted.stored("a|b", options), salted.stored("a", options));
    expect(salted.held()).toEqual(["lora/salt:a", "lora/salt:ab"]);
  });

  test("what floats is moved between tiers by its hashes", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("a|bc"));
    expect(feed.apply(feed.moved(tier.cpu, "abc", "ab", "a"))).toMatchObject({ floatedBlocks: 2, unknownMoves: 1 });
    expect(feed.apply(feed.removed("abc"))).toMatchObject({ removedBlocks: 1 });
    feed.apply(feed.stored("a"));
    expect([feed.held(tier.gpu), feed.held(tier.cpu)]).toEqual([
      ["a", "ab"],
      ["ab", "abc"],
    ]);
    expect(feed.holes(tier.cpu)).toEqual({ a: 0 });
  });
});

describe("removals while blocks wait", () => {
  test.each([
    ["the only block", ["c"], ["abc"], []],
    ["a leaf", ["cd"], ["abcd"], ["abc"]],
    ["the first block of two", ["cd"], ["abc"], ["abcd"]],
    ["both, the parent first", ["cd"], ["abc", "abcd"], []],
    ["both, the child first", ["cd"], ["abcd", "abc"], []],
    ["one of two branches", ["c", "d"], ["abd"], ["abc"]],
    ["the middle of three", ["cde"], ["abcd"], ["abc", "abcde"]],
  ])("%s", (_, runs, removed, left) => {
    const feed = new PromptFeed();
    for (const run of runs) feed.apply(feed.stored(`ab|${run}`));
    expect(feed.apply(feed.removed(...removed))).toMatchObject({ removedBlocks: removed.length, unknownRemovals: 0 });
    expect(waiting(feed) === 0).toBe(left.length === 0);
    feed.apply(feed.stored("ab"));
    expect(feed.held()).toEqual(["a", "ab", ...left]);
    feed.apply(feed.removed("a", "ab", ...left));
    expect(feed.stats).toMatchObject({ nodes: 0, floatingBlocks: 0, holes: 0 });
  });

  test("of the unknown parent itself is unknown", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab|c"));
    expect(feed.apply(feed.removed("ab"))).toMatchObject({ unknownRemovals: 1, removedBlocks: 0 });
    expect(waiting(feed)).toBe(2);
  });

  test("a block that was removed while it waited keeps the place of those below it", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("a|bcd"), feed.removed("ab", "abc"));
    feed.apply(feed.stored("abc|x"));
    feed.apply(feed.stored("a"));
    expect(feed.held()).toEqual(["a", "abcd", "abcx"]);
    expect(feed.holes()).toEqual({ ab: 1, abc: 2 });
    feed.apply(feed.stored("ab|cd"));
    expect(feed.holes()).toEqual({ ab: 1 });
  });
});

describe("more than may wait", () => {
  const limits = { maxFloatingBlocks: 6 };

  test("one more makes the oldest tree go, all of it, and the others stay", () => {
    const feed = new PromptFeed({ limits });
    feed.apply(feed.stored("a|bc"), feed.stored("p|qr"));
    expect(feed.apply(feed.stored("ab|d"))).toMatchObject({ droppedBlocks: 2, floatedBlocks: 1 });
    expect(waiting(feed)).toBe(5);
    feed.apply(feed.stored("p"), feed.stored("a"));
    expect(feed.held()).toEqual(["a", "p", "pq", "pqr"]);
  });

  test("at the bound nothing goes", () => {
    const feed = new PromptFeed({ limits });
    expect(feed.apply(feed.stored("a|bc"), feed.stored("p|qr"))).toMatchObject({ droppedBlocks: 0 });
    expect(waiting(feed)).toBe(6);
    expect(feed.apply(feed.stored("a"))).toMatchObject({ attachedBlocks: 2, droppedBlocks: 0 });
  });

  test("several old trees go for a long run", () => {
    const feed = new PromptFeed({ limits });
    feed.apply(feed.stored("a|b"), feed.stored("c|d"), feed.stored("e|f"));
    expect(feed.apply(feed.stored("p|qrs"))).toMatchObject({ droppedBlocks: 2, floatedBlocks: 3 });
    feed.apply(feed.stored("a"), feed.stored("c"), feed.stored("e"));
    expect(feed.held()).toEqual(["a", "c", "e", "ef"]);
  });

  test("a tree that is added to is as old as its root", () => {
    const feed = new PromptFeed({ limits });
    feed.apply(feed.stored("a|b"), feed.stored("p|q"), feed.stored("ab|c"));
    feed.apply(feed.stored("x|y"));
    feed.apply(feed.stored("a"), feed.stored("p"), feed.stored("x"));
    expect(feed.held()).toEqual(["a", "p", "pq", "x", "xy"]);
  });

  test("a tree may go to make room for a run of its own", () => {
    const feed = new PromptFeed({ limits });
    feed.apply(feed.stored("a|bcd"));
    expect(feed.apply(feed.stored("abcd|ef"))).toMatchObject({ droppedBlocks: 3, floatedBlocks: 2 });
    feed.apply(feed.stored("a"));
    expect(feed.held()).toEqual(["a"]);
    feed.apply(feed.stored("a|bcd"));
    expect(feed.held()).toEqual(["a", "ab", "abc", "abcd", "abcde", "abcdef"]);
  });

  test("a run too long is refused, and what waits stays", () => {
    const feed = new PromptFeed({ limits });
    feed.apply(feed.stored("a|b"));
    expect(feed.apply(feed.stored("p|qrstuv"))).toMatchObject({ refusedEvents: 1, droppedBlocks: 0 });
    expect(waiting(feed)).toBe(2);
  });

  test("turnover leaves neither records nor memory behind", () => {
    const feed = new PromptFeed({ limits: { maxFloatingBlocks: 64 } });
    const letters = "abcdefghijklmnopqrstuvwxyz";
    let bytes = 0;
    for (let turn = 0; turn < 12; turn++) {
      for (const one of letters) for (const other of letters.slice(0, 6)) feed.apply(feed.stored(`${one}${other}|x`));
      if (turn === 0) bytes = feed.stats.bytes;
    }
    expect(waiting(feed)).toBe(64);
    expect(feed.stats.bytes).toBe(bytes);
  });
});

describe("blocks recognized by what they contain", () => {
  test("come below the path that was found, which is a hole as far as it is not held", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abc|de"));
    expect(feed.ledger.attachFloating(() => pathOf(feed, "abc"))).toMatchObject({ attachedBlocks: 2 });
    expect(feed.held()).toEqual(["abcd", "abcde"]);
    expect(feed.holes()).toEqual({ a: 0, ab: 1, abc: 2 });
    expect(feed.stats).toMatchObject({ floatingBlocks: 0, nodes: 5, holes: 3 });
  });

  test("and what is stored under the unknown parent from then on finds its place", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab|c"));
    feed.ledger.attachFloating(() => pathOf(feed, "ab"));
    expect(feed.apply(feed.stored("ab|x"))).toMatchObject({ storedBlocks: 1, floatedBlocks: 0 });
    expect(feed.apply(feed.stored("ab"))).toMatchObject({ storedBlocks: 2 });
    expect(feed.held()).toEqual(["a", "ab", "abc", "abx"]);
    expect(feed.holes()).toEqual({});
    expect(feed.stats.nodes).toBe(4);
  });

  test("below blocks that are held no hole appears", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab", { namespace: "other" }), feed.stored("ab|c"));
    expect(waiting(feed)).toBe(2);
    feed.ledger.attachFloating(() => pathOf(feed, "ab"));
    expect(feed.held()).toEqual(["a", "ab", "abc"]);
    expect(feed.stats.holes).toBe(0);
  });

  test("a tree is offered by its first branch, the youngest", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab|cd"), feed.stored("ab|xy"), feed.stored("abx|z"));
    const offered: bigint[] = [];
    feed.ledger.attachFloating((contents, blocks) => {
      offered.push(BigInt(blocks), BigInt(contents[0]!));
      return undefined;
    });
    const other = new PromptFeed();
    other.apply(other.stored("w|xz"));
    const expected: bigint[] = [];
    other.ledger.attachFloating((contents, blocks) => {
      expected.push(BigInt(blocks), BigInt(contents[0]!));
      return undefined;
    });
    expect(offered).toEqual(expected);
  });

  test("of a long run so many blocks are offered, and all are attached", () => {
    const feed = new PromptFeed();
    const offered: number[] = [];
    const run = "abcdefghij".repeat(7);
    feed.apply(feed.stored(`z|${run.slice(0, 64)}`));
    feed.apply(feed.stored(`y|${run.slice(0, 65)}`));
    const report = feed.ledger.attachFloating((_, blocks) => {
      offered.push(blocks);
      return pathOf(feed, offered.length === 1 ? "y" : "z");
    });
    expect(offered).toEqual([64, 64]);
    expect(report).toMatchObject({ attachedBlocks: 129 });
    expect(feed.stats.blocks).toEqual([129, 0, 0, 0]);
  });

  test("an empty path is no place: blocks that begin a prompt have no parent", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab|c"));
    const report = feed.ledger.attachFloating(() => ({ words: new Uint32Array(0), blocks: 0 }));
    expect(report).toMatchObject({ attachedBlocks: 0 });
    expect(waiting(feed)).toBe(2);
  });

  test("a path that is wrong puts them there, and a removal takes them away", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab|c"));
    feed.ledger.attachFloating(() => pathOf(feed, "xyz"));
    expect(feed.stats).toMatchObject({ blocks: [1, 0, 0, 0], holes: 3 });
    expect(feed.apply(feed.stored("ab"))).toMatchObject({ storedBlocks: 2 });
    expect(feed.held()).toHaveLength(3);
    feed.apply(feed.removed("abc"));
    expect(feed.held()).toEqual(["a", "ab"]);
    expect(feed.stats).toMatchObject({ nodes: 2, holes: 0 });
  });

  test("when all of a path cannot be had, it is left alone", () => {
    const feed = new PromptFeed({ limits: { maxBlocks: 8 } });
    feed.apply(feed.stored("abc|de"));
    // Three for the path, and up to two for each of the three records that wait.
    expect(feed.ledger.attachFloating(() => pathOf(feed, "abc"))).toMatchObject({ attachedBlocks: 0 });
    expect(feed.stats).toMatchObject({ nodes: 0, floatingBlocks: 3, holes: 0 });
    const roomy = new PromptFeed({ limits: { maxBlocks: 9 } });
    roomy.apply(roomy.stored("abc|de"));
    expect(roomy.ledger.attachFloating(() => pathOf(roomy, "abc"))).toMatchObject({ attachedBlocks: 2 });
  });

  test("nothing is offered when nothing waits", () => {
    const feed = new PromptFeed();
    const refuse = () => {
      throw new Error("offered");
    };
    feed.ledger.attachFloating(refuse);
    feed.apply(feed.stored("ab"));
    feed.ledger.attachFloating(refuse);
    feed.apply({ kind: "cleared" }, feed.stored("ab"));
    expect(feed.ledger.attachFloating(refuse)).toMatchObject({ attachedBlocks: 0, storedBlocks: 0 });
  });
});
