import {
  type BlockChanges,
  type BlockRequest,
  blockChange,
  createKvPool,
  type KvPoolSettings,
  maxCpuBlocks,
} from "@espalier/engine-model";
import { describe, expect, test } from "vitest";

/** Blocks of 4 tokens, of 1 byte each. An engine reads one in 8 ms and computes it in 12; the pool sends one in 4 ms. */
const settings = {
  ...{ blocks: 8, blockSize: 4, latencyMs: 3, bytesPerToken: 1, computeMsPerToken: 3 },
  ...{ bytesPerSecond: 1_000, pairBytesPerSecond: 500 },
};

/** Hashes of the blocks `from` to `to` (exclusive) of one long prompt. */
const chainOf = (from: number, to: number): Uint32Array =>
  Uint32Array.from({ length: 2 * (to - from) }, (_, word) => 100 + 2 * from + word);

const requestOf = (blocks: number): BlockRequest => ({
  ...{ id: 1, promptTokens: 4 * blocks + 1, outputTokens: 1, chain: chainOf(0, blocks) },
});

const changesOf = (kind: number, from: number, to: number): BlockChanges => ({
  ...{ runs: 1, kinds: Uint8Array.of(kind), ends: Uint32Array.of(to - from), words: chainOf(from, to) },
});

function createRig(more: Partial<KvPoolSettings> = {}) {
  const moves: string[] = [];
  let changes = 0;
  const pool = createKvPool({
    ...{ ...settings, ...more },
    onChanges({ runs, kinds, ends, words }) {
      for (let run = 0, block = 0; run < runs; run++) {
        for (; block < ends[run]!; block++) moves.push(`${nameOf(kinds[run]!)} ${(words[2 * block]! - 100) / 2}`);
      }
    },
    changed: () => {
      changes++;
    },
  });
  /** What a read of the first blocks gets, and when, for an engine that has the first `from` of them. */
  const read = (blocks: number, engine = "one", timeMs = 0, from = 0) => {
    const got = { toTokens: Number.NaN, atMs: Number.NaN };
    const receiver = {
      found() {},
      done(toTokens: number, atMs: number) {
        Object.assign(got, { toTokens, atMs });
      },
    };
    const range = { fromTokens: 4 * from, toTokens: 4 * blocks };
    pool.sourceFor(requestOf(blocks), engine).pull(range, receiver, timeMs);
    return got;
  };
  return { pool, moves, read, changes: () => changes };
}

const nameOf = (kind: number): string => (kind === blockChange.pooled ? "pooled" : "dropped");

describe("a pool", () => {
  test("has what engines store, once, and says so in its events", () => {
    const { pool, moves } = createRig();
    pool.write(changesOf(blockChange.stored, 0, 3));
    pool.write(changesOf(blockChange.stored, 0, 3));
    expect(pool.blocks()).toBe(3);
    expect([...moves].sort()).toEqual(["pooled 0", "pooled 1", "pooled 2"]);
  });

  test("keeps what an engine evicts, offloads or clears", () => {
    const { pool, moves } = createRig();
    pool.write(changesOf(blockChange.stored, 0, 3));
    moves.length = 0;
    for (const kind of [blockChange.removed, blockChange.offloaded, blockChange.discarded]) {
      pool.write(changesOf(kind, 0, 3));
    }
    pool.write({ ...changesOf(blockChange.cleared, 0, 0), ends: Uint32Array.of(0) });
    expect(pool.blocks()).toBe(3);
    expect(moves).toEqual([]);
  });

  test("one block past its size, drops what was used longest ago, and goes on", () => {
    const { pool, moves, read } = createRig();
    pool.write(changesOf(blockChange.stored, 0, 4));
    pool.write(changesOf(blockChange.stored, 10, 14));
    moves.length = 0;
    pool.write(changesOf(blockChange.stored, 20, 21));
    // The end of a prompt goes before its beginning.
    expect(moves).toEqual(["dropped 3", "pooled 20"]);
    expect(pool.blocks()).toBe(8);
    const got = read(4);
    pool.advanceTo(1_000);
    expect(got.toTokens).toBe(12);
  });

  test("sends what it has of a prompt, after its latency, over the engine's link", () => {
    const { pool, read, changes } = createRig();
    pool.write(changesOf(blockChange.stored, 0, 4));
    const got = read(6);
    expect(changes()).toBeGreaterThan(0);
    expect(pool.nextEventMs()).toBe(3);
    pool.advanceTo(1_000);
    expect(got).toEqual({ toTokens: 16, atMs: 3 + 4 * 8 });
    expect(pool.stats()).toMatchObject({ served: 1, missed: 0, sentTokens: 16 });
  });

  test("is looked up from a prompt's beginning, in whole chunks", () => {
    const { pool, read } = createRig({ chunkBlocks: 2 });
    pool.write(changesOf(blockChange.stored, 0, 5));
    const got = read(6);
    const behind = read(6, "two", 0, 2);
    pool.advanceTo(1_000);
    expect([got.toTokens, behind.toTokens]).toEqual([16, 16]);
    // Without its first block nothing of it is found, though the engine has that one.
    const other = createRig();
    other.pool.write(changesOf(blockChange.stored, 1, 4));
    const without = other.read(4, "one", 0, 1);
    other.pool.advanceTo(1_000);
    expect(without.toTokens).toBe(4);
  });

  test("shares its own link among engines", () => {
    const { pool, read } = createRig();
    pool.write(changesOf(blockChange.stored, 0, 4));
    const reads = ["one", "two", "three", "four"].map((engine) => read(4, engine));
    pool.advanceTo(1_000);
    // Four times 16 bytes at 1 byte per millisecond.
    for (const { atMs } of reads) expect(atMs).toBeCloseTo(3 + 64);
  });

  test("does not evict what it sends", () => {
    const { pool, read } = createRig();
    pool.write(changesOf(blockChange.stored, 0, 4));
    const got = read(4);
    pool.advanceTo(4);
    pool.write(changesOf(blockChange.stored, 10, 30));
    pool.advanceTo(1_000);
    expect(got.toTokens).toBe(16);
  });

  test("sends nothing that is computed as soon", () => {
    // A block takes 8 ms and the latency to read, 12 ms to compute.
    const { pool, read } = createRig({ latencyMs: 8 });
    pool.write(changesOf(blockChange.stored, 0, 4));
    const [two, three] = [read(2), read(3)];
    pool.advanceTo(1_000);
    expect(two.toTokens).toBe(0);
    expect(three.toTokens).toBe(12);
    // What was not sent is not kept from eviction.
    pool.write(changesOf(blockChange.stored, 10, 18));
    const gone = read(4, "one", 1_000);
    pool.advanceTo(2_000);
    expect(gone.toTokens).toBe(0);
  });

  test("of no link or no size is refused", () => {
    expect(() => createRig({ pairBytesPerSecond: 0 })).toThrow(RangeError);
    expect(() => createRig({ blocks: 0 })).toThrow(`a pool of 0 blocks is not between 1 and ${maxCpuBlocks}`);
    expect(() => createRig({ blocks: maxCpuBlocks + 1 })).toThrow(RangeError);
  });
});
