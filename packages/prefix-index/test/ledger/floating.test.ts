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
});

describe("removals while blocks wait", () => {
  test.each([
    ["both, the parent first", ["cd"], ["abc", "abcd"], []],
    ["one of two branches", ["c", "d"], ["abd"], ["abc"]],
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

  /** Each event offered up to 256 trees again, and made a list of all: with 64,000 waiting blocks it took 14 times as long. */
  test("what was offered in vain is offered after events only when blocks have come below it", () => {
    const feed = new PromptFeed();
    let offers = 0;
    const refuse = (): undefined => {
      offers += 1;
      return undefined;
    };
    const offersOf = (trees: "all" | "fresh"): number => {
      offers = 0;
      feed.ledger.attachFloating(refuse, trees);
      return offers;
    };
    feed.apply(feed.stored("ab|cd"), feed.stored("xy|zz"));
    expect(offersOf("fresh")).toBe(2);
    feed.apply(feed.stored("q"));
    expect(offersOf("fresh")).toBe(0);
    feed.apply(feed.stored("abcd|e"));
    expect(offersOf("fresh")).toBe(1);
    expect(offersOf("all")).toBe(2);
    // The unknown root is itself stored below another one, and a tree that is gone is not offered.
    feed.apply(feed.stored("a|b"), feed.removed("xyz", "xyzz"));
    expect(offersOf("fresh")).toBe(1);
    expect(feed.ledger.lacksParents).toBe(true);
    feed.apply(feed.stored("a"));
    expect([feed.ledger.lacksParents, offersOf("all")]).toEqual([false, 0]);
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
