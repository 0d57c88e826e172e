import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { blockTokens, type SimRequest } from "../../src/clients/workload.ts";
import { createBoundsMeter, createInfiniteCache, createPooledCache } from "../../src/measure/cache-bounds.ts";
import { chainOf, randomRequest, requestOf } from "./chains.ts";

const keysOf = ({ chain }: SimRequest): string[] =>
  Array.from({ length: chain.length / 2 }, (_, block) => `${chain[2 * block]}:${chain[2 * block + 1]}`);

const leading = (request: SimRequest, isPresent: (key: string) => boolean): number => {
  const keys = keysOf(request).slice(0, Math.floor((request.promptTokens - 1) / blockTokens));
  const missing = keys.findIndex((key) => !isPresent(key));
  return blockTokens * (missing < 0 ? keys.length : missing);
};

/** A tree whose least recently used leaf goes first, as engines do it. */
class NaivePool {
  readonly blocks = new Map<string, { parent: string; usedAt: number }>();
  private now = 0;
  private readonly capacity: number;

  constructor(capacity: number) {
    this.capacity = capacity;
  }

  add(request: SimRequest): number {
    const found = leading(request, (key) => this.blocks.has(key));
    const keys = keysOf(request).slice(0, this.capacity);
    this.now += keys.length;
    for (const [place, key] of keys.entries()) {
      this.blocks.set(key, { parent: keys[place - 1] ?? "", usedAt: this.now - place });
    }
    while (this.blocks.size > this.capacity) this.evictLeaf();
    return found;
  }

  private evictLeaf(): void {
    const parents = new Set([...this.blocks.values()].map(({ parent }) => parent));
    const leaves = [...this.blocks].filter(([key]) => !parents.has(key));
    leaves.sort(([, one], [, other]) => one.usedAt - other.usedAt);
    this.blocks.delete(leaves[0]![0]);
  }
}

describe("infinite cache", () => {
  const add = (requests: readonly SimRequest[], options = {}): number[] => {
    const cache = createInfiniteCache(options);
    return requests.map((request) => cache.add(request));
  };

  test("finds the full blocks at the beginning that came before, those of an answer as well", () => {
    const first = requestOf({ chain: chainOf([1, 2, 3, 4]), promptTokens: 33, outputTokens: 31 });
    const next = requestOf({ chain: chainOf([1, 2, 3, 4, 5, 6]) });
    expect(add([first, next, requestOf({ chain: chainOf([1, 2, 9, 4]) })])).toEqual([0, 64, 32]);
  });

  test("the last token of a prompt is always computed: a prompt of whole blocks misses its last", () => {
    const chain = chainOf([1, 2]);
    const requests = [31, 32, 33].map((promptTokens) => requestOf({ chain, promptTokens }));
    expect(add([requests[0]!, ...requests])).toEqual([0, 16, 16, 32]);
  });

  test("a request shorter than a block finds nothing and adds nothing", () => {
    const cache = createInfiniteCache();
    expect(cache.add(requestOf({ chain: new Uint32Array(0), promptTokens: 3 }))).toBe(0);
    expect(cache.blocks).toBe(0);
  });

  test("a hash of zero is a block like any other", () => {
    const request = requestOf({ chain: Uint32Array.of(0, 0, 5, 0) });
    expect(add([request, request])).toEqual([0, 32]);
  });

  test("a chain may be a view of a longer array", () => {
    const chain = chainOf([1, 2, 3]);
    expect(add([requestOf({ chain: chain.subarray(0, 4) }), requestOf({ chain })])).toEqual([0, 32]);
  });

  test.each([1, 2, 3])("equals a naive set on random trees of chains, seed %i", (seed) => {
    const random = createSeededRandom(seed);
    const cache = createInfiniteCache();
    const naive = new Set<string>();
    for (let round = 0; round < 3_000; round++) {
      const request = randomRequest(random, { maxBlocks: 12, steps: 3 });
      expect(cache.add(request)).toBe(leading(request, (key) => naive.has(key)));
      for (const key of keysOf(request)) naive.add(key);
      expect(cache.blocks).toBe(naive.size);
    }
  });

  test("keeps all blocks of many long chains, of hashes that count up as well", () => {
    for (const wordsOf of [(block: number) => [block, 0], (block: number) => [0, block]]) {
      const cache = createInfiniteCache();
      const chains = Array.from({ length: 400 }, (_, chain) =>
        Uint32Array.from({ length: 2_000 }, (_, word) => wordsOf(1 + chain * 1_000 + (word >>> 1))[word & 1]!),
      );
      for (const chain of chains) cache.add(requestOf({ chain }));
      expect(cache.blocks).toBe(400_000);
      for (const chain of chains) expect(cache.add(requestOf({ chain }))).toBe(16_000);
    }
  });

  test("keeps chains that differ in every block, while its tables grow many times", () => {
    const cache = createInfiniteCache();
    const chains = Array.from({ length: 30_000 }, (_, index) => chainOf([index, index + 7]));
    for (const chain of chains) expect(cache.add(requestOf({ chain }))).toBe(0);
    expect(cache.blocks).toBe(60_000);
    expect(chains.every((chain) => cache.add(requestOf({ chain })) === 32)).toBe(true);
  });

  test("past its bound it keeps what it has, and says that it is no bound any more", () => {
    const cache = createInfiniteCache({ maxBlocks: 3 });
    cache.add(requestOf({ chain: chainOf([1, 2, 3]) }));
    expect(cache.isComplete).toBe(true);
    cache.add(requestOf({ chain: chainOf([1, 2, 4]) }));
    expect(cache.isComplete).toBe(false);
    expect(cache.blocks).toBe(3);
    expect(cache.add(requestOf({ chain: chainOf([1, 2, 3]) }))).toBe(48);
  });
});

describe("pooled cache", () => {
  test("evicts the leaf least recently used, never a block before those that continue it", () => {
    const cache = createPooledCache({ capacityBlocks: 4 });
    const add = (...path: number[]): number => cache.add(requestOf({ chain: chainOf(path) }));
    add(1, 2, 3);
    expect(add(1, 9)).toBe(16);
    expect(add(7)).toBe(0);
    expect(add(1, 2, 3)).toBe(32);
    expect(cache.blocks).toBe(4);
    expect(add(7)).toBe(16);
    expect(add(1, 9)).toBe(16);
  });

  test("of a chain longer than the cache the beginning stays", () => {
    const cache = createPooledCache({ capacityBlocks: 3 });
    const long = requestOf({ chain: chainOf([1, 2, 3, 4, 5]) });
    expect([cache.add(long), cache.add(long)]).toEqual([0, 48]);
    expect(cache.isComplete).toBe(true);
  });

  test.each([1, 2, 3, 7, 20, 60, 150])("equals a naive tree with a capacity of %i blocks", (capacityBlocks) => {
    const random = createSeededRandom(capacityBlocks);
    const cache = createPooledCache({ capacityBlocks });
    const naive = new NaivePool(capacityBlocks);
    for (let round = 0; round < 1_500; round++) {
      const request = randomRequest(random, { maxBlocks: 10, steps: 2 });
      expect(cache.add(request)).toBe(naive.add(request));
      expect(cache.blocks).toBe(naive.blocks.size);
    }
  });

  test("equals a naive tree on conversations that take turns and share a system prompt", () => {
    const random = createSeededRandom(5);
    const cache = createPooledCache({ capacityBlocks: 120 });
    const naive = new NaivePool(120);
    const paths = Array.from({ length: 12 }, (_, session) => [0, 0, 0, session]);
    for (let round = 0; round < 1_000; round++) {
      const path = paths[random.integer(paths.length)]!;
      if (path.length > 30) path.length = 4;
      for (let block = 0; block < 3; block++) path.push(round);
      const request = requestOf({ chain: chainOf(path), outputTokens: 20 });
      expect(cache.add(request)).toBe(naive.add(request));
    }
  });

  test("equals plain LRU over the blocks while its table grows, and when thousands of chains come and go", () => {
    const random = createSeededRandom(9);
    const capacityBlocks = 6_000;
    const cache = createPooledCache({ capacityBlocks });
    // Keys in order of use: chains are touched from their last block to their first.
    const used = new Set<string>();
    for (let round = 0; round < 12_000; round++) {
      const path = [random.integer(3_000), random.integer(2), random.integer(3)].slice(0, 1 + random.integer(3));
      const request = requestOf({ chain: chainOf(path) });
      expect(cache.add(request)).toBe(leading(request, (key) => used.has(key)));
      for (const key of keysOf(request).reverse()) {
        used.delete(key);
        used.add(key);
      }
      for (const key of used) {
        if (used.size <= capacityBlocks) break;
        used.delete(key);
      }
      expect(cache.blocks).toBe(used.size);
    }
    expect(cache.blocks).toBe(capacityBlocks);
  });

  test("finds as much as an infinite cache when everything fits, less when it does not", () => {
    const totals = [50, 100_000].map((capacityBlocks) => {
      const random = createSeededRandom(3);
      const pooled = createPooledCache({ capacityBlocks });
      const infinite = createInfiniteCache();
      let [own, all] = [0, 0];
      for (let round = 0; round < 1_000; round++) {
        const request = randomRequest(random, { maxBlocks: 12, steps: 2 });
        const found = pooled.add(request);
        const bound = infinite.add(request);
        expect(found).toBeLessThanOrEqual(bound);
        own += found;
        all += bound;
      }
      return own / all;
    });
    expect(totals[0]).toBeLessThan(0.9);
    expect(totals[1]).toBe(1);
  });

  test("with less memory than capacity it is exact until it would evict", () => {
    const cache = createPooledCache({ capacityBlocks: 100, maxBlocks: 4 });
    cache.add(requestOf({ chain: chainOf([1, 2, 3, 4]) }));
    expect(cache.isComplete).toBe(true);
    cache.add(requestOf({ chain: chainOf([1, 5]) }));
    expect(cache.isComplete).toBe(false);
    const long = createPooledCache({ capacityBlocks: 100, maxBlocks: 4 });
    long.add(requestOf({ chain: chainOf([1, 2, 3, 4, 5]) }));
    expect(long.isComplete).toBe(false);
  });

  test.each([0, 0.5, -1, Number.NaN])("a capacity of %d blocks is refused", (capacityBlocks) => {
    expect(() => createPooledCache({ capacityBlocks })).toThrow(RangeError);
  });
});

describe("bounds of a run", () => {
  test("are shares of the prompt tokens, for follow-ups of theirs", () => {
    const meter = createBoundsMeter({ capacityBlocks: 3 });
    const first = requestOf({ chain: chainOf([1, 2, 3]), promptTokens: 40, outputTokens: 8 });
    const other = requestOf({ chain: chainOf([7, 8]), promptTokens: 32 });
    const followup = requestOf({ chain: chainOf([1, 2, 3, 4]), promptTokens: 60, turn: 1 });
    for (const request of [first, other, followup]) meter.add(request);
    const result = meter.result();
    expect(result.infiniteCache).toBeCloseTo(48 / 132);
    expect(result.infiniteCacheFollowup).toBeCloseTo(48 / 60);
    expect(result.pooledLru).toBeCloseTo(16 / 132);
  });

  test("are NaN without requests, the one for follow-ups without any", () => {
    const meter = createBoundsMeter({ capacityBlocks: 3 });
    expect(meter.result()).toEqual({
      infiniteCache: Number.NaN,
      infiniteCacheFollowup: Number.NaN,
      pooledLru: Number.NaN,
    });
    meter.add(requestOf({ chain: chainOf([1]) }));
    expect(meter.result()).toEqual({ infiniteCache: 0, infiniteCacheFollowup: Number.NaN, pooledLru: 0 });
  });

  test("are NaN, not too low, once there are more blocks than are kept", () => {
    const meter = createBoundsMeter({ capacityBlocks: 100, maxBlocks: 3 });
    meter.add(requestOf({ chain: chainOf([1, 2, 3]), turn: 1 }));
    expect(meter.result()).toEqual({ infiniteCache: 0, infiniteCacheFollowup: 0, pooledLru: 0 });
    meter.add(requestOf({ chain: chainOf([4]) }));
    expect(meter.result()).toEqual({
      infiniteCache: Number.NaN,
      infiniteCacheFollowup: Number.NaN,
      pooledLru: Number.NaN,
    });
  });
});
