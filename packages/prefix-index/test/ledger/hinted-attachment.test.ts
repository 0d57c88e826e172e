import { createSeededRandom, type Random } from "@espalier/core";
import { AttachHints } from "@espalier/prefix-index";
import { describe, expect, test } from "vitest";
import { hashAt, testDigests, wordsOf } from "./helpers.ts";
import { PromptFeed } from "./prompt-feed.ts";

const tokensPerUnit = 2;

/** Digests of a prompt's blocks, a letter to a block. */
function contentsOf(text: string): Uint32Array {
  const tokens = Array.from(text).flatMap((letter) => [letter.charCodeAt(0), 1_000 + letter.charCodeAt(0)]);
  const contents = new Uint32Array(2 * text.length);
  testDigests.contents(Uint32Array.from(tokens), 0, tokens.length, tokensPerUnit, contents);
  return contents;
}

/** The hints of requests under way, and what waits in the ledger being offered to them. */
class HintedFeed extends PromptFeed {
  readonly hints = new AttachHints({ maxRequests: 100, maxBlocks: 2_000 });

  request(text: string, key = text): boolean {
    return this.hints.add(key, contentsOf(text), wordsOf(this.chain(text)), text.length);
  }

  attach(): number {
    return this.ledger.attachFloating((contents, blocks) => this.hints.find(contents, blocks)).attachedBlocks;
  }

  /** The end of the chain that is found before a run. */
  found(run: string): bigint | undefined {
    const path = this.hints.find(contentsOf(run), run.length);
    return path && hashAt(path.words, path.blocks - 1);
  }
}

describe("a router that joins late", () => {
  test("attaches what its own requests make the engine store", () => {
    const feed = new HintedFeed();
    feed.request("systemuser");
    feed.apply(feed.stored("system|user"), feed.stored("systemuser|answer"));
    expect(feed.attach()).toBe(10);
    expect(feed.held()).toContain("systemuseranswer");
    expect(feed.holes()).toEqual(
      Object.fromEntries(["s", "sy", "sys", "syst", "syste", "system"].map((hole, depth) => [hole, depth])),
    );
    expect(feed.apply(feed.stored("systemuseranswer|z"))).toMatchObject({ storedBlocks: 1, floatedBlocks: 0 });
  });

  test.each([
    ["a request with the same blocks elsewhere", ["abcd", "xycd"], "ab|cd", 0],
    ["a request that ends before the blocks", ["ab"], "ab|cd", 0],
    ["a longer agreement", ["abcd", "xyc"], "ab|cd", 2],
    ["a request that goes on beyond the blocks", ["abcdefg"], "ab|cd", 2],
  ])("%s", (_, requests, stored, attached) => {
    const feed = new HintedFeed();
    for (const request of requests) feed.request(request);
    feed.apply(feed.stored(stored));
    expect(feed.attach()).toBe(attached);
    expect(feed.stats.floatingBlocks).toBe(attached > 0 ? 0 : 3);
    if (attached > 0) expect(feed.held()).toContain(stored.replace("|", ""));
  });

  test("keyed blocks are not those of a plain request", () => {
    const feed = new HintedFeed();
    feed.request("abcd");
    feed.apply(feed.stored("ab|Cd"));
    expect(feed.attach()).toBe(0);
  });

  test("with every prompt hinted at, what is attached is where it belongs", () => {
    let attached = 0;
    for (let seed = 1; seed <= 25; seed++) {
      const random = createSeededRandom(seed);
      const feed = new HintedFeed();
      const truth = new Set<string>();
      for (let prompt = 0; prompt < 12; prompt++) {
        const text = drawPrompt(random);
        feed.request(text, `${prompt}`);
        const from = random.integer(text.length);
        for (let end = 1; end <= text.length; end++) truth.add(text.slice(0, end));
        feed.apply(feed.stored(from === 0 ? text : `${text.slice(0, from)}|${text.slice(from)}`));
        attached += feed.attach();
        expect(
          feed.held().filter((name) => !truth.has(name)),
          `seed ${seed}`,
        ).toEqual([]);
      }
    }
    expect(attached).toBeGreaterThan(150);
  });
});

const drawPrompt = (random: Random): string =>
  Array.from({ length: 2 + random.integer(10) }, () => "abcd"[random.integer(4)]).join("");

describe("requests that come and go", () => {
  test("a request of the same key takes the place of the former, even when there is no room for it", () => {
    const feed = new HintedFeed();
    feed.request("abc", "key");
    feed.request("xbc", "key");
    expect(feed.found("bc")).toBe(feed.chain("x")[0]);
    expect(feed.hints).toMatchObject({ requests: 1, blocks: 3 });
    const small = new AttachHints({ maxRequests: 2, maxBlocks: 4 });
    const [contents, chain] = [contentsOf("abcde"), wordsOf(feed.chain("abcde"))];
    expect(small.add("key", contents, chain, 4)).toBe(true);
    expect(small.add("key", contents, chain, 5)).toBe(false);
    expect(small).toMatchObject({ requests: 0, blocks: 0 });
  });

  test("what was given is copied", () => {
    const feed = new HintedFeed();
    const [contents, chain] = [contentsOf("abc"), wordsOf(feed.chain("abc"))];
    feed.hints.add("key", contents, chain, 3);
    contents.fill(0);
    chain.fill(0);
    expect(feed.found("c")).toBe(feed.chain("ab")[1]);
  });

  test("of longer arrays so many blocks count as are said", () => {
    const feed = new HintedFeed();
    feed.hints.add("key", contentsOf("abcd"), wordsOf(feed.chain("abcd")), 2);
    expect(feed.found("b")).toBe(feed.chain("a")[0]);
    expect(feed.found("c")).toBeUndefined();
    expect(feed.found("bx")).toBe(feed.chain("a")[0]);
  });

  test("a request without blocks takes a place, and is nowhere found", () => {
    const hints = new AttachHints({ maxRequests: 1, maxBlocks: 4 });
    expect(hints.add("empty", new Uint32Array(0), new Uint32Array(0), 0)).toBe(true);
    expect(hints).toMatchObject({ requests: 1, blocks: 0 });
    expect(hints.add("more", contentsOf("ab"), contentsOf("ab"), 2)).toBe(false);
    hints.remove("empty");
    expect(hints.add("more", contentsOf("ab"), contentsOf("ab"), 2)).toBe(true);
  });

  test("more blocks than places have numbers are refused at once", () => {
    expect(() => new AttachHints({ maxRequests: 1, maxBlocks: 0xff_ffff })).toThrow(
      "A table has at most 16777214 nodes, not 16777215",
    );
  });
});
