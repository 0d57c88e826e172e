import { expect, test } from "vitest";
import { createPrefixIndex } from "../../src/prefix-index.ts";

test("a listener is told of what is placed and confirmed, by whoever, and of nothing else", () => {
  const index = createPrefixIndex({ maxTargets: 4 });
  const words = Uint32Array.of(1, 2, 3, 4);
  index.place(0, words, 2, { nowMs: 0, ttlMs: 10 });
  const reported: unknown[] = [];
  index.setPlacedListener((target, chain, blockCount, { by }) => reported.push([target, [...chain], blockCount, by]));
  index.place(1, words, 2, { nowMs: 1, ttlMs: 10, by: 3 });
  index.confirm(2, words, 1, { nowMs: 2, ttlMs: 10 });
  index.refute(1, words, { from: 0, blockCount: 2, nowMs: 3 });
  index.storeFacts(3, 0, words, 0, 2);
  expect(reported).toEqual([
    [1, [1, 2, 3, 4], 2, 3],
    [2, [1, 2, 3, 4], 1, undefined],
  ]);
});
