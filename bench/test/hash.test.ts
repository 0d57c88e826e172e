import type { Clock } from "@espalier/core";
import { expect, test } from "vitest";
import { hashSuite, runHashOnce } from "../src/suites/hash.ts";
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

test("the suite runs as often as it is told and notes each run", async () => {
  const lines: string[] = [];
  const { report, table } = await hashSuite.run(["--runs", "2", "--duration", "0.002"], (line) => lines.push(line));
  expect(lines).toEqual([
    expect.stringMatching(/^run 1 of 2: [\d.]+ M tokens\/s$/),
    expect.stringMatching(/^run 2 of 2: [\d.]+ M tokens\/s$/),
  ]);
  expect(report.params.runs).toBe(2);
  expect(table).toContain("sha256");
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
