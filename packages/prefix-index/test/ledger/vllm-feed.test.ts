import { tier } from "@espalier/prefix-index";
import { describe, expect, test } from "vitest";
import { FeedLedger } from "../../src/ledger/feed-ledger.ts";
import { batchOf, FoldingSink, type TestEvent, testDigests } from "./helpers.ts";
import { PromptFeed } from "./prompt-feed.ts";

describe("prefill and decoding", () => {
  test("a chunked prefill in one message is one run for the sink", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab"), feed.stored("ab|cd"), feed.stored("abcd|e"));
    expect(feed.sink.log).toEqual(["stored 0 5"]);
  });
});

describe("eviction", () => {
  test("blocks evicted and computed again in the same message are there, told as removed and stored", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abc"));
    feed.apply(feed.removed("abc"), feed.stored("ab|d"), feed.removed("abd"), feed.stored("ab|c"));
    expect(feed.held()).toEqual(["a", "ab", "abc"]);
    expect(feed.sink.log.slice(1)).toEqual(["removed 0 1", "stored 0 1", "removed 0 1", "stored 0 1"]);
  });

  test("events of one message are in order: removed before it is stored means there", () => {
    const feed = new PromptFeed();
    expect(feed.apply(feed.removed("a"), feed.stored("a"))).toMatchObject({ unknownRemovals: 1, storedBlocks: 1 });
    expect(feed.held()).toEqual(["a"]);
    feed.apply(feed.stored("a"), feed.removed("a"));
    expect(feed.held()).toEqual([]);
  });
});

describe("reset of the prefix cache", () => {
  const reset: TestEvent = { kind: "cleared" };

  test("leaves in the same message as the next step, before that step's blocks", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abc"), feed.stored("xyz"));
    expect(feed.apply(reset, feed.stored("ab"))).toMatchObject({ storedBlocks: 2 });
    expect(feed.held()).toEqual(["a", "ab"]);
    expect(feed.sink.log.slice(-2)).toEqual(["cleared", "stored 0 2"]);
  });

  test("what the same message stored before the reset is not told", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abc"), reset, feed.stored("x"));
    expect(feed.sink.log).toEqual(["cleared", "stored 0 1"]);
  });

  test("holes, floating blocks and tiers go with it", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abc"), feed.removed("a"), feed.moved(tier.cpu, "abc"), feed.stored("xy|z"));
    expect(feed.stats).toMatchObject({ floatingBlocks: 2, blocks: [2, 1, 0, 0] });
    expect(feed.stats.holes).toBe(3);
    feed.apply(reset);
    expect(feed.stats).toMatchObject({ nodes: 0, floatingBlocks: 0, holes: 0, blocks: [0, 0, 0, 0], bytes: 0 });
    expect(feed.reported()).toEqual({ blocks: [0, 0, 0, 0], holes: 0 });
    expect(feed.apply(feed.removed("abc"))).toMatchObject({ unknownRemovals: 1 });
  });

  test("is told each time, also of an empty cache", () => {
    const feed = new PromptFeed();
    feed.apply(reset, reset);
    expect(feed.sink.clears).toBe(2);
  });
});

describe("duplicates", () => {
  test("a prompt of an exact multiple stores its last block again for every request, and one removal ends it", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abc"));
    for (let request = 0; request < 3; request++) {
      expect(feed.apply(feed.stored("ab|c"))).toMatchObject({ storedBlocks: 1 });
    }
    expect(feed.sink.log).toEqual(["stored 0 3"]);
    expect(feed.apply(feed.removed("abc"))).toMatchObject({ removedBlocks: 1 });
    expect(feed.held()).toEqual(["a", "ab"]);
    expect(feed.apply(feed.removed("abc"), feed.removed("abc"))).toMatchObject({
      removedBlocks: 0,
      unknownRemovals: 2,
    });
  });

  test("a run that overlaps what is known tells only what is new", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab"));
    expect(feed.apply(feed.stored("abcd"))).toMatchObject({ storedBlocks: 4 });
    expect(feed.sink.log).toEqual(["stored 0 2", "stored 0 2"]);
  });
});

describe("chains set apart", () => {
  test.each([
    ["an adapter", { adapter: "lora" }, ["a", "ab", "lora:a", "lora:ab"]],
    ["a salt", { cacheSalt: "tenant" }, ["/tenant:a", "/tenant:ab", "a", "ab"]],
    ["both", { adapter: "lora", cacheSalt: "tenant" }, ["a", "ab", "lora/tenant:a", "lora/tenant:ab"]],
  ])("by %s, in the first event and by their parents afterwards", (_, options, held) => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("a"), feed.stored("a", options));
    feed.apply(feed.stored("a|b", options), feed.stored("a|b"));
    expect(feed.held()).toEqual(held);
    feed.apply(feed.removedAs(options, "ab", "a"));
    expect(feed.held()).toEqual(["a", "ab"]);
  });

  test("a salt on an event with a parent is that of the parent already", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab"));
    const decoded = feed.stored("ab|c");
    feed.apply({ ...decoded, detail: { cacheSalt: "tenant" } });
    expect(feed.held()).toEqual(["a", "ab", "abc"]);
  });

  test("by the keys of images, from the block of the image on", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("abcd"), feed.stored("aBcd"));
    expect(feed.held()).toEqual(["a", "aB", "aBc", "aBcd", "ab", "abc", "abcd"]);
    feed.apply(feed.removed("aBcd"), feed.removed("aBc"), feed.removed("aB"));
    expect(feed.held()).toEqual(["a", "ab", "abc", "abcd"]);
  });

  test("fewer keys than blocks leave the last blocks without", () => {
    const feed = new PromptFeed();
    feed.apply({ ...feed.stored("Abc"), detail: { blockKeys: ["image A"] } });
    expect(feed.held()).toEqual(["A", "Ab", "Abc"]);
  });

  test("a run longer than is worked on at a time has each key at its block", () => {
    const feed = new PromptFeed();
    const text = `${"abcdefgh".repeat(40)}X${"y".repeat(10)}`;
    feed.apply(feed.stored(text));
    expect(feed.sink.blocks[tier.gpu]).toEqual(new Set(feed.chain(text)));
  });
});

describe("groups of hybrid models", () => {
  const full = { group: 0 };
  const windowed = (event: TestEvent, group = 1): TestEvent => ({ ...event, group, attention: "other" });

  test("a sliding window has fewer hashes than tokens, or none, and is left out", () => {
    const feed = new PromptFeed();
    const event = feed.stored("abcd", full);
    const report = feed.apply(
      event,
      windowed({ ...event, hashes: event.hashes!.slice(2) }),
      windowed({ ...event, hashes: [] }),
      windowed({ ...feed.stored("abcd|e"), hashes: [] }, 2),
    );
    expect(report).toMatchObject({ storedBlocks: 4, skippedEvents: 3, refusedEvents: 0 });
    expect(feed.held()).toEqual(["a", "ab", "abc", "abcd"]);
  });

  test("a removal ends what its own group has stored", () => {
    const feed = new PromptFeed();
    const event = feed.stored("ab", full);
    feed.apply(event, windowed(event));
    expect(feed.apply(feed.removedAs({ group: 1 }, "ab", "a"))).toMatchObject({ skippedEvents: 1, removedBlocks: 0 });
    expect(feed.held()).toEqual(["a", "ab"]);
    expect(feed.apply(feed.removedAs(full, "ab"))).toMatchObject({ removedBlocks: 1 });
    expect(feed.apply(feed.removedAs(full, "ab"))).toMatchObject({ unknownRemovals: 1 });
    expect(feed.held()).toEqual(["a"]);
  });

  test("groups that come before the full one are known by what they stored", () => {
    const feed = new PromptFeed();
    const event = feed.stored("ab");
    feed.apply(windowed(event, 0), windowed(event, 1), { ...event, group: 2 });
    for (const [group, skipped] of [
      [0, 1],
      [1, 1],
      [2, 0],
    ] as const) {
      expect(feed.apply(feed.removedAs({ group }, "ab"))).toMatchObject({ skippedEvents: skipped });
    }
    expect(feed.held()).toEqual(["a"]);
  });

  test("two groups of full attention are both followed", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab", { group: 0 }), feed.stored("xy", { group: 3 }));
    feed.apply(feed.removedAs({ group: 3 }, "xy"), feed.removedAs({ group: 0 }, "ab"));
    expect(feed.held()).toEqual(["a", "x"]);
  });

  test("a removal without a group counts, and so does one of a group nothing is known of while no full one is", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab"));
    expect(feed.apply(feed.removedAs({ group: 5 }, "ab"))).toMatchObject({ removedBlocks: 1 });
    feed.apply(feed.stored("ab", full));
    expect(feed.apply(feed.removedAs({ group: 5 }, "ab"))).toMatchObject({ skippedEvents: 1 });
    expect(feed.apply(feed.removed("ab"))).toMatchObject({ removedBlocks: 1 });
  });

  test("a group that turns out to be partial is no full one any more", () => {
    const feed = new PromptFeed();
    const event = feed.stored("ab", full);
    feed.apply(event, windowed(event, 0));
    expect(feed.apply(feed.removedAs(full, "ab"))).toMatchObject({ skippedEvents: 1 });
    // No group is known to be a full one now, so one that nothing is known of may be.
    expect(feed.apply(feed.removedAs({ group: 5 }, "ab"))).toMatchObject({ removedBlocks: 1 });
    feed.apply(event);
    expect(feed.apply(feed.removedAs(full, "ab"))).toMatchObject({ removedBlocks: 1 });
  });

  test("a removal marked partial is left out whatever its group", () => {
    const feed = new PromptFeed();
    feed.apply(feed.stored("ab"));
    expect(feed.apply({ ...feed.removed("ab"), attention: "other" })).toMatchObject({ skippedEvents: 1 });
  });

  test("groups outlast a reset of the cache, and not a new epoch", () => {
    const feed = new PromptFeed();
    const event = feed.stored("ab", full);
    feed.apply(event, windowed(event), { kind: "cleared" }, event);
    expect(feed.apply(feed.removedAs({ group: 1 }, "ab"))).toMatchObject({ skippedEvents: 1 });
    feed.ledger.clear();
    feed.apply(feed.stored("ab"));
    expect(feed.apply(feed.removedAs({ group: 1 }, "ab"))).toMatchObject({ removedBlocks: 1 });
  });

  test("a partial group with blocks of another size does not make the feed unusable", () => {
    const feed = new PromptFeed();
    const larger = new PromptFeed({ engineUnits: 4 });
    feed.apply(windowed(larger.stored("abcd")), feed.stored("ab", full), windowed(larger.stored("abcd")));
    expect(feed.stats).toMatchObject({ unusable: undefined, engineBlockSize: 2, nodes: 2 });
  });
});

describe("hashes", () => {
  const sinkOf = (events: readonly TestEvent[]) => {
    const sink = new FoldingSink();
    new FeedLedger({ blockSize: 1, digests: testDigests, sink }).apply(batchOf(...events));
    return sink.blocks[tier.gpu]!;
  };

  test.each([
    ["zero", 0n],
    ["all ones", 2n ** 64n - 1n],
    ["a high half alone", 1n << 32n],
  ])("%s is a hash like any other: as a block, as a parent, in a removal", (_, hash) => {
    const stored = (own: bigint, token: number, parent?: bigint): TestEvent => ({
      kind: "stored",
      hashes: [own],
      tokens: [token],
      blockSize: 1,
      parent,
    });
    expect(sinkOf([stored(hash, 1), stored(77n, 2, hash)]).size).toBe(2);
    expect(sinkOf([stored(77n, 2, hash), stored(hash, 1)]).size).toBe(2);
    expect(sinkOf([stored(hash, 1), { kind: "removed", hashes: [hash] }]).size).toBe(0);
  });

  test("hashes that differ in one half are different blocks", () => {
    const events = [1n, 1n << 32n, (1n << 32n) + 1n].map(
      (hash, token): TestEvent => ({ kind: "stored", hashes: [hash], tokens: [token], blockSize: 1 }),
    );
    expect(sinkOf(events).size).toBe(3);
    expect(sinkOf([...events, { kind: "removed", hashes: [1n << 32n] }]).size).toBe(2);
  });
});
