import type { Clock } from "@espalier/core";
import { expect, test } from "vitest";
import { scoringSuite } from "../src/suites/scoring.ts";
import { createScoringFleet, otherRouters, placedEvery } from "../src/suites/scoring-fleet.ts";
import { createNaiveSelector } from "../src/suites/scoring-naive.ts";
import { runScoringOnce, usualShapes } from "../src/suites/scoring-run.ts";
import { UsageError } from "../src/support/usage-error.ts";

/** A clock that goes on by a millisecond whenever it is read. */
function steppingClock(): Clock {
  let nowMs = 0;
  return { nowMs: () => nowMs++, wallMs: () => 0 };
}

const shape = { promptTokens: 1_600, targets: 24, prompts: 2, otherBlocks: 1_000 };
const figures = ["decision_few_us_p50", "decision_many_us_p50"];
const shapes = [
  { name: "few", promptTokens: 1_600, targets: 24, prompts: 2 },
  { name: "many", promptTokens: 3_200, targets: 200, prompts: 2 },
];

test("the fleet's targets hold the prompts to their depths, and the load of other routers is there", () => {
  const fleet = createScoringFleet(shape, 1);
  const naive = createNaiveSelector(fleet);
  expect(fleet.targets).toHaveLength(24);
  expect([1, 5, 23].map(fleet.depthOf)).toEqual([8, 25, 100]);
  expect([0, placedEvery].map(fleet.depthOf)).toEqual([100, 100]);
  expect(fleet.shared.originCount).toBe(otherRouters);
  for (const prompt of fleet.prompts) {
    naive.select(prompt);
    const [few, all] = [fleet.targets[1]!, fleet.targets[23]!];
    const waitingAt = (at: number): number =>
      fleet.targets[at]!.load.pendingPrefillTokens + fleet.shared.pendingPrefillTokens[at]!;
    expect(naive.workOf(few, prompt) - waitingAt(1)).toBe(1_600 - 8 * 16);
    // The last token is computed, with its whole block.
    expect(naive.workOf(all, prompt) - waitingAt(23)).toBe(16);
  }
});

test("the naive selector takes the least of all", () => {
  const fleet = createScoringFleet(shape, 2);
  const naive = createNaiveSelector(fleet);
  const prompt = fleet.prompts[0]!;
  const chosen = naive.select(prompt);
  const works = fleet.targets.map((target) => naive.workOf(target, prompt));
  expect(naive.workOf(chosen, prompt)).toBe(Math.min(...works));
});

test("a run measures every figure of every policy, by the clock that it is given", () => {
  const sizes = { decisions: 4, naiveDecisions: 2, otherBlocks: 100, shapes, policies: ["cache_aware"] as const };
  const { espalier, naive } = runScoringOnce(sizes, { clock: steppingClock(), seed: 1 });
  const plain = [...figures, "alloc_bytes_per_decision"];
  expect(Object.keys(espalier).sort()).toEqual([...plain, ...plain.map((name) => `${name}_cache_aware`)].sort());
  expect(Object.keys(naive).sort()).toEqual([...plain].sort());
  for (const name of figures) expect([espalier[name], naive[name]]).toEqual([1_000, 1_000]);
  expect(naive.alloc_bytes_per_decision).toBeGreaterThan(espalier.alloc_bytes_per_decision!);
});

test("the figures of the usual run have the names that are agreed on", () => {
  expect(usualShapes.map(({ name }) => name)).toEqual(["12k_x96", "12k_x1000", "240k_x96"]);
});

test.each([
  ["--runs", "0"],
  ["--decisions", "0"],
  ["--decisions", "1000001"],
  ["--policy", "robin"],
])("%s %s is refused", async (...args) => {
  const run = async () => scoringSuite.run(args, () => {});
  await expect(run()).rejects.toThrow(UsageError);
});
