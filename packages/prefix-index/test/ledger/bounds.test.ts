import { tier } from "@espalier/prefix-index";
import { describe, expect, test } from "vitest";
import { FeedLedger, type LedgerLimits } from "../../src/ledger/feed-ledger.ts";
import { maxBlockRatio } from "../../src/ledger/held-blocks.ts";
import { batchOf, FoldingSink, type TestEvent, testDigests } from "./helpers.ts";
import { PromptFeed } from "./prompt-feed.ts";

const alphabet = "abcdefghijklmnopqrstuvwxyz";
const prefixes = (text: string): string[] => Array.from(text, (_, at) => text.slice(0, at + 1));

describe("as many blocks as allowed", () => {
  const ofTen = (options = {}) => new PromptFeed({ limits: { maxBlocks: 10 }, ...options });

  // The blocks stored before the one that there was no room for were not in the report.
  test("of a run as many are stored as there is room for, and the report says which way each went", () => {
    const feed = ofTen();
    expect(feed.apply(feed.stored(alphabet.slice(0, 13)))).toMatchObject({ storedBlocks: 10, overflowedBlocks: 3 });
    expect(feed.held()).toEqual(prefixes("abcdefghij"));
  });

  test("a block below one that there was no room for waits", () => {
    const feed = ofTen();
    feed.apply(feed.stored(alphabet.slice(0, 11)));
    expect(feed.apply(feed.stored("abcdefghijk|l"))).toMatchObject({ floatedBlocks: 1, storedBlocks: 0 });
    feed.apply(feed.removed("abcdefghij"), feed.stored("abcdefghi|x"));
    expect(feed.held()).toEqual([...prefixes("abcdefghi"), "abcdefghix"]);
  });

  test("what is known takes no more room: tiers, announcements, holes", () => {
    const feed = ofTen();
    const text = alphabet.slice(0, 10);
    feed.apply(feed.stored(text));
    expect(feed.apply(feed.stored(text, { tier: tier.cpu }), feed.removed("ab"), feed.stored(text))).toMatchObject({
      overflowedBlocks: 0,
      storedBlocks: 20,
    });
    expect(feed.stats.blocks).toEqual([10, 10, 0, 0]);
  });

  test("a hash that comes to stand for a block that there is no room for keeps standing for the old one", () => {
    const feed = ofTen();
    const text = alphabet.slice(0, 10);
    const [first] = feed.stored("a").hashes!;
    feed.apply(feed.stored(text));
    expect(feed.apply({ ...feed.stored("x"), hashes: [first!] })).toMatchObject({ overflowedBlocks: 1 });
    expect(feed.held()).toEqual(prefixes(text));
    expect(feed.apply(feed.removed("a"))).toMatchObject({ removedBlocks: 1 });
  });

  test("larger engine blocks are stored whole or not at all, and router blocks count", () => {
    const feed = ofTen({ engineUnits: 4 });
    expect(feed.apply(feed.stored(alphabet.slice(0, 12)))).toMatchObject({ storedBlocks: 2, overflowedBlocks: 1 });
    expect(feed.stats).toMatchObject({ nodes: 8, blocks: [8, 0, 0, 0] });
    expect(feed.apply(feed.stored("abcz"))).toMatchObject({ storedBlocks: 1, overflowedBlocks: 0 });
    expect(feed.apply(feed.stored("abyz"))).toMatchObject({ storedBlocks: 0, overflowedBlocks: 1 });
    expect(feed.stats.nodes).toBe(9);
  });

  test("of smaller engine blocks those count", () => {
    const feed = ofTen({ routerUnits: 4 });
    expect(feed.apply(feed.stored(alphabet.slice(0, 12)))).toMatchObject({ storedBlocks: 10, overflowedBlocks: 2 });
    expect(feed.held()).toEqual(["abcd", "abcdefgh"]);
  });

  test("a second name takes the room of two", () => {
    for (const [maxBlocks, overflowedBlocks] of [
      [2, 1],
      [3, 0],
    ] as const) {
      const feed = new PromptFeed({ limits: { maxBlocks } });
      feed.apply(feed.stored("a"));
      expect(feed.apply(feed.stored("a", { namespace: "other" }))).toMatchObject({ overflowedBlocks });
      expect(feed.stats.nodes).toBeLessThanOrEqual(maxBlocks);
    }
  });

  test("a name more than there is room for leaves the block to its other names", () => {
    const feed = new PromptFeed({ limits: { maxBlocks: 4 } });
    for (const namespace of ["", "one", "two", "three"]) feed.apply(feed.stored("a", { namespace }));
    expect(feed.stats.nodes).toBe(4);
    expect(feed.apply(feed.removedAs({ namespace: "three" }, "a"))).toMatchObject({ unknownRemovals: 1 });
    feed.apply(feed.removedAs({ namespace: "one" }, "a"), feed.removed("a"));
    expect(feed.held()).toEqual(["a"]);
    feed.apply(feed.removedAs({ namespace: "two" }, "a"));
    expect(feed.stats.nodes).toBe(0);
  });
});

describe("block sizes", () => {
  const sizes = (router: number, engine: number) => {
    const ledger = new FeedLedger({ blockSize: router, digests: testDigests, sink: new FoldingSink() });
    const tokens = Array.from({ length: engine }, (_, at) => at);
    const { refusedEvents } = ledger.apply(batchOf({ kind: "stored", hashes: [1n], tokens, blockSize: engine }));
    return { refusedEvents, ...ledger.stats() };
  };

  test.each([
    [16, 48, 3],
    [1, maxBlockRatio, maxBlockRatio],
    [16, 8, 1],
    [maxBlockRatio, 1, 1],
  ])("router blocks of %i can follow engine blocks of %i", (router, engine, nodes) => {
    expect(sizes(router, engine)).toMatchObject({
      refusedEvents: 0,
      unusable: undefined,
      engineBlockSize: engine,
      nodes,
    });
  });

  test.each([
    [16, 24],
    [16, 12],
    [1, maxBlockRatio + 1],
    [maxBlockRatio + 1, 1],
  ])("router blocks of %i cannot follow engine blocks of %i", (router, engine) => {
    expect(sizes(router, engine)).toMatchObject({
      refusedEvents: 1,
      unusable: "block-size-ratio",
      engineBlockSize: 0,
      nodes: 0,
    });
  });

  test("an unusable feed refuses everything, resets too, and tells nothing", () => {
    const feed = new PromptFeed({ routerUnits: 2 });
    const odd = new PromptFeed({ engineUnits: 3 });
    feed.apply(odd.stored("abc"));
    const reported = feed.sink.log.length;
    expect(feed.apply({ kind: "cleared" }, feed.removed("a"), feed.stored("ab"), odd.stored("abc"))).toMatchObject({
      refusedEvents: 4,
    });
    expect(feed.sink.log).toHaveLength(reported);
    feed.ledger.clear();
    expect(feed.apply(feed.stored("ab"))).toMatchObject({ storedBlocks: 2, refusedEvents: 0 });
  });

  test("a size that changes takes back what was told, and the events of the message before it", () => {
    const feed = new PromptFeed();
    const larger = new PromptFeed({ engineUnits: 2 });
    feed.apply(feed.stored("ab"));
    expect(feed.apply(feed.stored("xy"), larger.stored("pq"), feed.stored("z"))).toMatchObject({ refusedEvents: 2 });
    expect(feed.sink.log).toEqual(["stored 0 2", "cleared"]);
    expect(feed.stats).toMatchObject({ unusable: "block-size-changed", nodes: 0, blocks: [0, 0, 0, 0] });
  });

  test("events that do not say the size are read by the one that is known", () => {
    const feed = new PromptFeed({ engineUnits: 2 });
    feed.apply(feed.stored("abcd"));
    const event = { ...feed.stored("wxyz"), blockSize: 0 };
    expect(feed.apply(event)).toMatchObject({ storedBlocks: 2 });
    const one: TestEvent = { ...event, hashes: event.hashes!.slice(0, 1) };
    expect(feed.apply(one)).toMatchObject({ refusedEvents: 1 });
    expect(feed.stats.unusable).toBeUndefined();
  });

  test("tokens that make no whole blocks are refused, and the next event is read", () => {
    const feed = new PromptFeed();
    const event = feed.stored("abc");
    const cut = { ...event, tokens: event.tokens!.slice(0, 5) };
    for (const blockSize of [2, 0]) expect(feed.apply({ ...cut, blockSize })).toMatchObject({ refusedEvents: 1 });
    expect(feed.stats).toMatchObject({ unusable: undefined, nodes: 0 });
    expect(feed.apply(event)).toMatchObject({ storedBlocks: 3 });
  });
});

describe("events", () => {
  test.each<[string, (feed: PromptFeed) => TestEvent]>([
    ["stored", (feed) => feed.stored("abcde")],
    ["removed", (feed) => feed.removed("abcde", "abcd", "abc", "ab", "a")],
    ["moved", (feed) => feed.moved(tier.cpu, "a", "ab", "abc", "abcd", "abcde")],
  ])("%s with one hash more than allowed are refused whole, and others of the message are not", (_, make) => {
    const feed = new PromptFeed({ limits: { maxEventHashes: 4 } });
    feed.apply(feed.stored("abcd"));
    const reported = feed.sink.log.length;
    expect(feed.apply(make(feed))).toMatchObject({ refusedEvents: 1, removedBlocks: 0, storedBlocks: 0 });
    expect(feed.sink.log).toHaveLength(reported);
    expect(feed.apply(make(feed), feed.stored("abcd|e"))).toMatchObject({ refusedEvents: 1, storedBlocks: 1 });
  });

  test("of an event without a bound of its own, a million hashes are read, and not one more", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abc"));
    const most = 1_048_576;
    const batch = batchOf(feed.removed());
    batch.hashes = new Uint32Array(2 * (most + 1));
    batch.hashStart = Uint32Array.of(0, most + 1);
    expect(feed.ledger.apply(batch)).toMatchObject({ refusedEvents: 1, unknownRemovals: 0 });
    batch.hashStart = Uint32Array.of(0, most);
    expect(feed.ledger.apply(batch)).toMatchObject({ refusedEvents: 0, unknownRemovals: most });
  });

  test.each([
    ["a tier that there is not", { tier: 4 }],
    ["a kind that there is not", {}],
  ])("%s is refused, and the rest of the message is read", (_, change) => {
    const feed = new PromptFeed();
    const batch = batchOf({ ...feed.stored("xy"), ...change }, feed.stored("ab"));
    if (!("tier" in change)) batch.kind[0] = 3;
    expect(feed.ledger.apply(batch)).toMatchObject({ refusedEvents: 1, storedBlocks: 2 });
    expect(feed.held()).toEqual(["a", "ab"]);
  });
});

describe("options", () => {
  const make = (blockSize: number, limits: Partial<LedgerLimits> = {}) =>
    new FeedLedger({ blockSize, digests: testDigests, sink: new FoldingSink(), limits });

  test.each([0, 1.5, Number.POSITIVE_INFINITY])("a block size of %d is refused", (blockSize) => {
    expect(() => make(blockSize)).toThrow(`blockSize is ${blockSize}`);
  });

  test.each(["maxBlocks", "maxFloatingBlocks", "maxEventHashes"] as const)("%s has to be a whole number", (name) => {
    for (const limit of [0, -1, 2.5, Number.NaN, 0xff_ffff]) {
      expect(() => make(16, { [name]: limit })).toThrow(`${name} is ${limit}`);
    }
    expect(make(16, { [name]: 1 }).stats()).toMatchObject({ nodes: 0, bytes: 0, engineBlockSize: 0 });
  });
});
