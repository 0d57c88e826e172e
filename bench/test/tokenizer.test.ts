import type { Clock } from "@espalier/core";
import { expect, test } from "vitest";
import { tokenizerSuite } from "../src/suites/tokenizer.ts";
import { countMismatches, loadTokenizers, runTokenizerOnce } from "../src/suites/tokenizer-run.ts";
import { createTextSource } from "../src/suites/tokenizer-texts.ts";
import { UsageError } from "../src/support/usage-error.ts";

/** A clock that goes on by a millisecond whenever it is read. */
function steppingClock(): Clock {
  let nowMs = 0;
  return { nowMs: () => nowMs++, wallMs: () => 0 };
}

const keys = [
  "tokens_per_s",
  "prefix_state_tokens_per_s",
  "pure_hit_tokens_per_s",
  "hit_us_48k",
  "body_turn_us_48k",
  "body_turn_us_200k_agent",
];

test("a run measures every figure, and the shipped model has no mismatch", async () => {
  const tokenizers = await loadTokenizers();
  const run = await runTokenizerOnce({ tokenizers, clock: steppingClock(), durationMs: 2, seed: 1 });
  expect(Object.keys(run.espalier)).toEqual(keys);
  // A millisecond for each call.
  expect(run.espalier.hit_us_48k).toBe(1_000);
  expect(run.espalier.prefix_state_tokens_per_s).toBeGreaterThanOrEqual(11_800_000);
  expect(run.espalier.prefix_state_tokens_per_s).toBeLessThan(13_500_000);
  expect(run.reference.tokens_per_s).toBeGreaterThan(0);
  expect(await countMismatches(tokenizers, 20)).toMatchObject({ mismatches: 0 });
});

test("a tokenizer that differs is told by its mismatches", async () => {
  const tokenizers = await loadTokenizers();
  const wrong = { ...tokenizers, ours: { ...tokenizers.ours, encode: () => Uint32Array.of(1) } };
  const { texts, mismatches } = await countMismatches(wrong, 5);
  expect(mismatches).toBeGreaterThan(texts * 0.9);
});

test("text comes in the length that is asked for, and from the same seed it is the same", () => {
  const [one, same, other] = [1, 1, 2].map((seed) => createTextSource(seed).text(5_000));
  expect(one?.length).toBeGreaterThanOrEqual(5_000);
  expect(one?.length).toBeLessThan(5_060);
  expect(same).toBe(one);
  expect(other).not.toBe(one);
});

test.each([
  ["--runs", "0"],
  ["--runs", "1.5"],
  ["--duration", "0"],
  ["--duration", "soon"],
])("%s %s is refused", async (...args) => {
  await expect(tokenizerSuite.run(args, () => {})).rejects.toThrow(UsageError);
});
