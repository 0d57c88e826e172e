import type { Clock } from "@espalier/core";
import { expect, test } from "vitest";
import { prefixIndexSuite } from "../src/suites/prefix-index.ts";
import { createNaiveIndex } from "../src/suites/prefix-index-naive.ts";
import { runPrefixIndexOnce } from "../src/suites/prefix-index-run.ts";
import { UsageError } from "../src/support/usage-error.ts";

/** A clock that goes on by a millisecond whenever it is read. */
function steppingClock(): Clock {
  let nowMs = 0;
  return { nowMs: () => nowMs++, wallMs: () => 0 };
}

const sizes = {
  blocks: 5_000,
  turnoverBlocks: 1_000,
  turnovers: 100,
  otherBlocks: 1_000,
  naiveBlocks: 1_000,
  queries: 20,
};
const rates = ["insert_ops_per_s", "remove_ops_per_s", "lookup_ops_per_s", "turnover_ops_per_s"];
const queries = ["query_750x8_us_p50", "query_15000x96_us_p50"];
const kinds = ["no_point", "hybrid", "cpu_elsewhere", "external_elsewhere", "cpu", "external"];
const otherQueries = queries.flatMap((name) => kinds.map((kind) => name.replace("_", `_${kind}_`)));

test("a run measures every figure, by the clock that it is given", () => {
  const { espalier, naive } = runPrefixIndexOnce(sizes, { clock: steppingClock(), seed: 1 });
  expect(Object.keys(espalier).sort()).toEqual(
    [...rates, ...queries, ...otherQueries, "bytes_per_block_target", "growth_after_turnover"].sort(),
  );
  expect(Object.keys(naive).sort()).toEqual([...rates, ...queries].sort());
  expect(espalier).toMatchObject({ insert_ops_per_s: 5e6, lookup_ops_per_s: 5e6, query_750x8_us_p50: 1_000 });
  expect(naive).toMatchObject({ insert_ops_per_s: 1e6, remove_ops_per_s: 1e6, query_15000x96_us_p50: 1_000 });
  expect(espalier.growth_after_turnover).toBeLessThanOrEqual(1.05);
});

test("the naive index stores, removes and walks", () => {
  const index = createNaiveIndex();
  const words = Uint32Array.from({ length: 20 }, (_, at) => at);
  index.store(1, words, 0, 10);
  index.store(2, words, 0, 4);
  index.store(3, words, 1, 10);
  expect(index.match(words, 10)).toBe(2);
  expect([1, 2, 3].map((target) => index.depthOf(target))).toEqual([10, 4, 0]);
  index.remove(1, words, 6, 8);
  index.remove(2, words, 0, 10);
  expect(index.match(words, 10)).toBe(1);
  expect(index.depthOf(1)).toBe(6);
});

test("the suite runs as often as it is told and notes each run", async () => {
  const lines: string[] = [];
  const { report, table } = await prefixIndexSuite.run(["--quick", "--blocks", "2000"], (line) => lines.push(line));
  expect(lines).toEqual([
    // On a busy machine they are fewer than a million.
    expect.stringMatching(/^run 1 of 1: [\d.]+( M)? stores\/s$/),
  ]);
  expect(report.params).toMatchObject({ runs: 1, blocks: 2_000, naive_blocks: 2_000 });
  expect(table).toContain("naive");
});

test.each([
  ["--runs", "0"],
  ["--runs", "101"],
  ["--blocks", "0"],
  ["--blocks", "1.5"],
  ["--blocks", "50000001"],
])("%s %s is refused", async (...args) => {
  const run = async () => prefixIndexSuite.run(args, () => {});
  await expect(run()).rejects.toThrow(UsageError);
});
