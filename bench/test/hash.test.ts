import type { Clock } from "@espalier/core";
import { expect, test } from "vitest";
import { hashReport, hashSuite, hashTable, runHashOnce } from "../src/suites/hash.ts";
import { UsageError } from "../src/support/usage-error.ts";

/** A clock that goes on by a millisecond whenever it is read. */
function steppingClock(): Clock {
  let nowMs = 0;
  return { nowMs: () => nowMs++, wallMs: () => 0 };
}

const keys = ["tokens_per_s", "tokens_per_s_1k", "text_48k_us"];

test("a run measures every figure of all three", () => {
  const run = runHashOnce({ durationMs: 2, clock: steppingClock(), seed: 1 });
  for (const figures of [run.wasm, run.js, run.sha256]) {
    expect(Object.keys(figures)).toEqual(keys);
    // Eight calls to a millisecond: 125 microseconds for each.
    expect(figures).toEqual({ tokens_per_s: 96e6, tokens_per_s_1k: 8e6, text_48k_us: 125 });
  }
});

const figures = (factor: number) => ({
  tokens_per_s: 1.5e9 * factor,
  tokens_per_s_1k: 1.2e9 * factor,
  text_48k_us: 20 / factor,
});
const runOf = (factor: number) => ({ wasm: figures(factor), js: figures(factor / 10), sha256: figures(factor / 100) });

test("figures are medians over the runs, with their extremes", () => {
  const report = hashReport([runOf(1), runOf(1.2), runOf(0.5)], 200);
  expect(report.name).toBe("hash");
  expect(report.metrics).toEqual(figures(1));
  expect(report.baselines).toEqual({ js: figures(1 / 10), sha256: figures(1 / 100) });
  expect(report.spread.wasm?.tokens_per_s).toEqual({ min: 0.75e9, max: 1.8e9 });
  expect(report.shares).toEqual([]);
  expect(report.params).toMatchObject({ runs: 3, duration_ms: 200, block_size: 16, tokens: 12_000 });
  expect(hashTable(report)).toMatch(
    /^figure +wasm +js +sha256\ntokens_per_s, millions +1500 \(750 \.\. 1800\) +150 \(75\.0 \.\. 180\) +15\.0 \(7\.5 \.\. 18\.0\)/,
  );
  expect(hashTable(report)).toMatch(/text_48k_us +20\.0 \(16\.7 \.\. 40\.0\)/);
});

test("the suite runs as often as it is told and notes each run", async () => {
  const lines: string[] = [];
  const { report, table } = await hashSuite.run(["--runs", "2", "--duration", "0.002"], (line) => lines.push(line));
  expect(lines).toEqual([
    expect.stringMatching(/^run 1 of 2: [\d.]+ M tokens\/s$/),
    expect.stringMatching(/^run 2 of 2: [\d.]+ M tokens\/s$/),
  ]);
  expect(report.params.runs).toBe(2);
  expect(table(report)).toContain("sha256");
});

test.each([
  ["--runs", "0"],
  ["--runs", "1.5"],
  ["--runs", "101"],
  ["--duration", "0"],
  ["--duration", "61"],
  ["--duration", "soon"],
])("%s %s is refused", async (...args) => {
  await expect(hashSuite.run(args, () => {})).rejects.toThrow(UsageError);
});
