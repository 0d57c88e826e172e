import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { maxRecordWords, WordPool } from "../../src/table/word-pool.ts";

interface TakenRecord {
  readonly offset: number;
  readonly words: number;
  readonly mark: number;
}

/** Fills a record with its mark. */
function take(pool: WordPool, words: number, mark: number): TakenRecord {
  const offset = pool.allocate(words);
  expect(offset).toBeGreaterThanOrEqual(0);
  expect(pool.roomAt(offset)).toBeGreaterThanOrEqual(words);
  pool.words.fill(mark, offset, offset + words);
  return { offset, words, mark };
}

test("records keep their content and do not overlap, whatever comes and goes", () => {
  const random = createSeededRandom(1);
  const pool = new WordPool(1 << 22);
  const taken: TakenRecord[] = [];
  for (let operation = 1; operation <= 20_000; operation++) {
    if (taken.length > 0 && random.integer(100) < (operation % 4_000 < 2_000 ? 40 : 60)) {
      const index = random.integer(taken.length);
      const [record] = taken.splice(index, 1, taken.at(-1)!);
      taken.pop();
      const content = pool.words.subarray(record!.offset, record!.offset + record!.words);
      if (content.some((word) => word !== record!.mark)) throw new Error(`record ${record!.mark} has changed`);
      pool.free(record!.offset);
    } else taken.push(take(pool, 1 + random.integer(random.integer(20) === 0 ? maxRecordWords : 40), operation));
  }
  const live = taken.reduce((sum, { words }) => sum + words, 0);
  expect(pool.usedWords).toBeGreaterThanOrEqual(live);
  for (const { offset } of taken) pool.free(offset);
  expect(pool.usedWords).toBe(0);
});

test.each([
  { words: 1, room: 2 },
  { words: 3, room: 4 },
  { words: 9, room: 12 },
  { words: 513, room: 768 },
  { words: 2_048, room: 2_048 },
])("a record of $words words has room for $room", ({ words, room }) => {
  const pool = new WordPool(1 << 16);
  expect(pool.roomAt(pool.allocate(words))).toBe(room);
});

test("a page that is empty again serves records of another size", () => {
  const pool = new WordPool(4_096 * 4);
  let most = 0;
  for (const words of [2_048, 2, 100, 768, 5]) {
    const taken: number[] = [];
    for (let offset = pool.allocate(words); offset >= 0; offset = pool.allocate(words)) taken.push(offset);
    expect(taken.length * words).toBeGreaterThan(4_096 * 4);
    for (const offset of taken) pool.free(offset);
    if (most === 0) most = pool.byteLength;
    expect(pool.byteLength).toBe(most);
  }
});

test("one page beyond the bound is refused, until a record is freed", () => {
  const pool = new WordPool(1);
  const offsets: number[] = [];
  // A page for the words asked for, and one for each of the twenty sizes.
  for (let record = 0; record < 42; record++) offsets.push(pool.allocate(2_048));
  expect(Math.min(...offsets)).toBe(0);
  expect(new Set(offsets).size).toBe(42);
  expect(pool.allocate(2_048)).toBe(-1);
  expect(pool.allocate(1)).toBe(-1);
  pool.free(offsets[20]!);
  expect(pool.allocate(2_048)).toBe(offsets[20]);
  pool.free(offsets[0]!);
  pool.free(offsets[1]!);
  expect(pool.allocate(1)).toBeGreaterThanOrEqual(0);
});
