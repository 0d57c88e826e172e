import { createSeededRandom } from "@espalier/common";
import { tier } from "@espalier/prefix-index";
import { describe, expect, test } from "vitest";
import { FeedLedger } from "../../src/ledger/feed-ledger.ts";
import { batchOf, FoldingSink, type TestEvent, testDigests } from "./helpers.ts";
import { PromptFeed } from "./prompt-feed.ts";

/** Name, depth, continuations and blocks below of each prefix. */
const sharedBy = (feed: PromptFeed, limit = 10) =>
  feed.ledger
    .sharedPrefixes(limit)
    .map(({ low, high, depthBlocks, continuations, blocksBelow }) => [
      feed.nameOf((BigInt(high) << 32n) | BigInt(low)),
      depthBlocks,
      continuations,
      blocksBelow,
    ]);

describe("prefixes after which prompts differ", () => {
  test.each<[string, readonly string[], readonly unknown[]]>([
    ["one prompt shares nothing", ["abcd"], []],
    [
      "forks below forks, by depth times blocks below",
      ["abcd", "abce", "abf"],
      [
        ["ab", 2, 2, 4],
        ["abc", 3, 2, 2],
      ],
    ],
    [
      "a fork with many blocks comes before a deeper one with few",
      ["abcdefgh", "abxyzuvw", "pqrx", "pqry"],
      [
        ["ab", 2, 2, 12],
        ["pqr", 3, 2, 2],
      ],
    ],
  ])("%s", (_, prompts, expected) => {
    const feed = new PromptFeed();
    for (const prompt of prompts) feed.apply(feed.stored(prompt));
    expect(sharedBy(feed)).toEqual(expected);
    expect(sharedBy(feed, 1)).toEqual(expected.slice(0, 1));
    expect(sharedBy(feed, 0)).toEqual([]);
  });

  test("a fork that is in no tier itself is one all the same", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abc"), feed.stored("abd", { tier: tier.cpu }), feed.removed("a", "ab"));
    expect(sharedBy(feed)).toEqual([["ab", 2, 2, 2]]);
  });

  test("several names of a block are no continuations", () => {
    const feed = new PromptFeed();
    for (const namespace of ["", "one", "two"]) feed.apply(feed.stored("abc", { namespace }));
    expect(sharedBy(feed)).toEqual([]);
    feed.apply(feed.stored("abd"));
    expect(sharedBy(feed)).toEqual([["ab", 2, 2, 2]]);
  });

  test("adapters and salts share nothing with each other", () => {
    const feed = new PromptFeed();
    for (const adapter of ["one", "two"]) feed.apply(feed.stored("ab", { adapter }), feed.stored("ac", { adapter }));
    expect(sharedBy(feed)).toEqual([
      ["one:a", 1, 2, 2],
      ["two:a", 1, 2, 2],
    ]);
  });

  test("what waits for its parent is not looked at, and nothing is left after a reset", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab|c"), feed.stored("ab|d"));
    expect(sharedBy(feed)).toEqual([]);
    feed.apply(feed.stored("ab"));
    expect(sharedBy(feed)).toEqual([["ab", 2, 2, 2]]);
    feed.apply({ kind: "cleared" });
    expect(sharedBy(feed)).toEqual([]);
  });

  test("with larger engine blocks forks are told by the router's", () => {
    const feed = new PromptFeed({ engineUnits: 2 });
    feed.apply(feed.stored("abcd"), feed.stored("abce"));
    expect(sharedBy(feed)).toEqual([["abc", 3, 2, 2]]);
  });

  test("with smaller ones a fork inside of a router block is told by the block before", () => {
    const feed = new PromptFeed({ routerUnits: 4 });
    feed.apply(feed.stored("abcdefghij"), feed.stored("abcdefxyzw"));
    expect(sharedBy(feed)).toEqual([["abcd", 1, 2, 8]]);
  });

  test("of several forks inside of one router block the one with the most below counts", () => {
    const feed = new PromptFeed({ routerUnits: 4 });
    feed.apply(feed.stored("abcdefgh"), feed.stored("abcdefxy"), feed.stored("abcdzzzz"));
    expect(sharedBy(feed)).toEqual([["abcd", 1, 2, 10]]);
  });
});

test("as a count over all prompts, in trees that are small enough", () => {
  for (let seed = 1; seed <= 20; seed++) {
    const random = createSeededRandom(seed);
    const feed = new PromptFeed();
    const blocks = new Set<string>();
    for (let prompt = 0; prompt < 30; prompt++) {
      const text = Array.from({ length: 1 + random.integer(12) }, () => "aab"[random.integer(3)]).join("");
      feed.apply(feed.stored(text));
      for (let end = 1; end <= text.length; end++) blocks.add(text.slice(0, end));
    }
    const expected = [...blocks].flatMap((prefix) => {
      const below = [...blocks].filter((block) => block.startsWith(prefix) && block !== prefix);
      const continuations = below.filter((block) => block.length === prefix.length + 1).length;
      return continuations > 1 ? [[prefix, prefix.length, continuations, below.length]] : [];
    });
    const byName = (one: unknown[], other: unknown[]) => (String(one[0]) < String(other[0]) ? -1 : 1);
    const found = sharedBy(feed, 1_000);
    const savings = found.map(([, depth, , below]) => Number(depth) * Number(below));
    expect(savings).toEqual([...savings].sort((one, other) => other - one));
    expect(found.sort(byName)).toEqual(expected.sort(byName));
  }
});

test("in very deep trees no more is looked at after a million steps", () => {
  const ledger = new FeedLedger({ blockSize: 1, digests: testDigests, sink: new FoldingSink() });
  const blocks = 20_000;
  const numbers = Array.from({ length: blocks }, (_, at) => at + 1);
  const deep: TestEvent = { kind: "stored", hashes: numbers.map(BigInt), tokens: numbers, blockSize: 1 };
  const branch: TestEvent = { kind: "stored", hashes: [50_000n], tokens: [50_000], blockSize: 1, parent: 1n };
  ledger.apply(batchOf(deep, branch));
  const [prefix] = ledger.sharedPrefixes(1);
  expect(prefix).toMatchObject({ depthBlocks: 1, continuations: 2 });
  // Every fifth of 20,000 nodes is looked at, and 632 of them, at depths 0, 5, 10 and so on, are a million steps.
  expect(prefix!.blocksBelow).toBeGreaterThan(3_100);
  expect(prefix!.blocksBelow).toBeLessThan(3_200);
});
