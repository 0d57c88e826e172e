import { PoolKeys } from "@espalier/prefix-index";
import { describe, expect, test } from "vitest";
import { batchOf, chainOf, FoldingSink, type TestEvent, testDigests } from "./helpers.ts";

const blockSize = 4;
const external = 3;
const tokens = (blocks: number, first = 1): number[] =>
  Array.from({ length: blocks * blockSize }, (_, at) => first + Math.floor(at / blockSize));
const hashes = (count: number, first = 1n): bigint[] => Array.from({ length: count }, (_, at) => first + BigInt(at));

function createPool(options: { readonly maxNames?: number; readonly routerBlock?: number } = {}) {
  const { routerBlock = blockSize, ...limits } = options;
  const sink = new FoldingSink();
  const keys = new PoolKeys({ blockSize: routerBlock, digests: testDigests, sink, ...limits });
  return {
    keys,
    sink,
    learn: (...events: readonly TestEvent[]): void => keys.learn(batchOf(...events)),
    /** A list with these hashes, each of them once for every part of a block. */
    list(listed: readonly bigint[], perBlock = 1): boolean {
      keys.beginList();
      for (const hash of listed) keys.key(Number(BigInt.asIntN(32, hash)), Number(BigInt.asIntN(32, hash >> 32n)));
      return keys.endList(perBlock);
    },
    get pooled(): bigint[] {
      return [...sink.blocks[external]!];
    },
  };
}

const stored = (blocks: number, changes: Partial<TestEvent> = {}): TestEvent => ({
  kind: "stored",
  hashes: hashes(blocks),
  tokens: tokens(blocks),
  blockSize,
  group: 0,
  ...changes,
});

const sorted = (values: readonly bigint[]): bigint[] => [...values].sort((a, b) => (a < b ? -1 : 1));

describe("a pool's keys", () => {
  test("are blocks of the chain that an engine announced under the same hashes, in whatever order both come", () => {
    const pool = createPool();
    expect(pool.list([1n, 2n, 9n])).toBe(false);
    pool.learn(stored(2));
    expect(pool.pooled).toEqual([]);
    expect(pool.list([2n, 9n, 1n])).toBe(true);
    expect(sorted(pool.pooled)).toEqual(sorted(chainOf(tokens(2), blockSize)));
    expect([pool.keys.blocks, pool.keys.unnamedKeys]).toEqual([2, 1]);
    expect(pool.list([2n, 9n, 1n])).toBe(false);
    pool.learn(stored(1, { hashes: [9n], tokens: tokens(1, 3), parent: 2n }));
    pool.list([1n, 2n, 9n]);
    expect(sorted(pool.pooled)).toEqual(sorted(chainOf(tokens(3), blockSize)));
  });

  test("are gone with the list that lacks them, and remembered after the engine has dropped the blocks", () => {
    const pool = createPool();
    pool.learn(stored(3), { kind: "removed", hashes: hashes(3) }, { kind: "cleared" });
    pool.list([1n, 2n, 3n]);
    expect(pool.list([1n, 3n])).toBe(true);
    const chain = chainOf(tokens(3), blockSize);
    expect(sorted(pool.pooled)).toEqual(sorted([chain[0]!, chain[2]!]));
    pool.list([]);
    expect(pool.pooled).toEqual([]);
    pool.list([2n]);
    expect(pool.pooled).toEqual([chain[1]]);
  });

  test("of which a block needs several count once all are there", () => {
    const pool = createPool();
    pool.learn(stored(2));
    pool.list([1n, 2n, 1n], 2);
    expect(pool.pooled).toEqual(chainOf(tokens(1), blockSize));
    pool.list([2n, 1n], 2);
    expect(pool.pooled).toEqual([]);
  });

  test("of engines' blocks larger than the router's are all of their parts, fetched whole", () => {
    const pool = createPool({ routerBlock: 2 });
    pool.learn(stored(2));
    pool.list([1n]);
    const [low] = [...pool.sink.blocks[external]!].filter((hash) => hash < 0x1_0000_0000n);
    expect(low).toBe(2n);
    expect(pool.pooled).toEqual([2n, ...chainOf(tokens(1), 2)]);
    pool.list([]);
    pool.list([1n]);
    expect(pool.pooled).toEqual([2n, ...chainOf(tokens(1), 2)]);
  });

  test("of blocks that part inside share what is before: it stays until the last of them is gone", () => {
    const pool = createPool({ routerBlock: 2 });
    const [one, other] = [
      [1, 1, 2, 2],
      [1, 1, 3, 3],
    ];
    pool.learn(stored(1, { tokens: one }), stored(1, { hashes: [2n], tokens: other }));
    pool.list([1n, 2n]);
    expect([pool.pooled.length, pool.keys.blocks]).toEqual([4, 3]);
    pool.list([2n]);
    expect(sorted(pool.pooled)).toEqual(sorted([2n, ...chainOf(other, 2)]));
    pool.list([]);
    expect([pool.pooled, pool.keys.blocks]).toEqual([[2n], 0]);
  });

  test("follow adapters, salts and images", () => {
    const pool = createPool();
    pool.learn(
      stored(1, { detail: { adapter: "a" } }),
      stored(1, { hashes: [7n], detail: { cacheSalt: "s" } }),
      stored(1, { hashes: [8n], detail: { blockKeys: ["image"] } }),
    );
    pool.list([1n, 7n, 8n]);
    expect(pool.pooled).toHaveLength(3);
    expect(pool.pooled).not.toContain(chainOf(tokens(1), blockSize)[0]);
    expect(pool.pooled).toContain(chainOf(tokens(1), blockSize, testDigests.root("a", undefined))[0]);
  });

  test("of blocks whose parent no engine has announced, and of tails and windows, stay unknown", () => {
    const pool = createPool();
    pool.learn(
      stored(2),
      stored(1, { hashes: [20n], parent: 99n }),
      stored(1, { hashes: [21n], tokens: [5, 6], blockSize: 2, parent: 2n }),
      stored(1, { hashes: [22n], attention: "window", window: 8 }),
      { kind: "stored", hashes: [23n] },
    );
    pool.list([20n, 21n, 22n, 23n]);
    expect([pool.pooled, pool.keys.unnamedKeys]).toEqual([[], 4]);
  });

  test("are told to another sink as they are", () => {
    const pool = createPool({ routerBlock: 2 });
    pool.learn(stored(3));
    pool.list([1n, 3n]);
    const other = new FoldingSink();
    pool.keys.tellAll(other);
    expect(sorted([...other.blocks[external]!])).toEqual(sorted(pool.pooled));
  });
});

describe("engines that name blocks differently cannot fetch what the others stored", () => {
  test("a block in the pool that another engine names otherwise is a fault, and nothing is known any more", () => {
    const pool = createPool();
    pool.learn(stored(2));
    pool.list([1n, 2n]);
    pool.learn(stored(2, { hashes: [11n, 12n] }));
    expect(pool.keys.takeFault()).toBe("different-hashes");
    expect([pool.pooled, pool.keys.names]).toEqual([[], 0]);
    // The engines were mended: what is announced from now on counts.
    expect(pool.keys.takeFault()).toBeUndefined();
    pool.learn(stored(2, { hashes: [11n, 12n] }));
    pool.list([1n, 2n, 11n, 12n]);
    expect(sorted(pool.pooled)).toEqual(sorted(chainOf(tokens(2), blockSize)));
  });

  test("so is one that was named twice before it came to the pool", () => {
    const pool = createPool();
    pool.learn(stored(1), stored(1, { hashes: [11n] }));
    expect(pool.keys.takeFault()).toBe("different-hashes");
    pool.list([1n, 11n]);
    expect(pool.pooled).toEqual([]);
  });

  test("so is a hash that stands for two blocks, and another size of blocks", () => {
    const pool = createPool();
    pool.learn(stored(1), stored(1, { tokens: tokens(1, 50) }));
    expect(pool.keys.takeFault()).toBe("different-hashes");
    const other = createPool({ routerBlock: 2 });
    other.learn(stored(2), stored(2, { tokens: [1, 2, 3, 4], hashes: [30n, 31n], blockSize: 2 }));
    expect(other.keys.takeFault()).toBe("different-hashes");
  });

  test("blocks smaller than the router's are a fault of their own; a tail that came first is none", () => {
    const pool = createPool({ routerBlock: 8 });
    pool.learn(stored(2));
    expect(pool.keys.takeFault()).toBe("block-size-ratio");
    const other = createPool({ routerBlock: 2 });
    other.learn(stored(1, { hashes: [40n], tokens: [5, 6], blockSize: 2 }), stored(2));
    expect(other.keys.takeFault()).toBeUndefined();
    other.list([1n, 2n]);
    expect(other.keys.blocks).toBe(4);
  });
});

describe("the bound of names", () => {
  test("one name more makes the oldest go, but none of a block in the pool", () => {
    const pool = createPool({ maxNames: 3 });
    pool.learn(stored(3));
    pool.list([1n]);
    pool.learn(stored(1, { hashes: [4n], tokens: tokens(1, 60) }));
    expect(pool.keys.names).toBe(3);
    pool.list([1n, 2n, 3n, 4n]);
    expect([pool.pooled.length, pool.keys.unnamedKeys]).toEqual([3, 1]);
    expect(pool.pooled).toContain(chainOf(tokens(1), blockSize)[0]);
    // All are in the pool: there is room again when one leaves.
    pool.learn(stored(1, { hashes: [5n], tokens: tokens(1, 70) }));
    expect([pool.list([1n, 3n, 4n, 5n]), pool.keys.unnamedKeys]).toEqual([false, 1]);
    pool.list([1n, 3n]);
    pool.learn(stored(1, { hashes: [5n], tokens: tokens(1, 70) }));
    pool.list([1n, 3n, 5n]);
    expect(pool.pooled).toContain(chainOf(tokens(1, 70), blockSize)[0]);
    expect([pool.pooled.length, pool.keys.unnamedKeys]).toEqual([3, 0]);
  });

  test("what was used lately stays longer", () => {
    const pool = createPool({ maxNames: 2 });
    pool.learn(stored(2), stored(1), stored(1, { hashes: [3n], tokens: tokens(1, 60) }));
    pool.list([1n, 2n, 3n]);
    expect(pool.pooled).toContain(chainOf(tokens(1), blockSize)[0]);
    expect(pool.keys.unnamedKeys).toBe(1);
  });
});
