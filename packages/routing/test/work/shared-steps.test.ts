import { expect, test } from "vitest";
import { PrefillRates } from "../../src/work/prefill-rates.ts";
import { maxPromptsPerStep, SharedSteps } from "../../src/work/shared-steps.ts";

const target = { index: 0, key: "engine-a" };
const msPerToken = 0.05;
const stepMs = 8;

/** One step computes so many prompts of so many tokens: the first one's token seems to take all the time. */
function step(steps: SharedSteps, prompts: number, tokens: number): void {
  for (let at = 0; at < prompts; at++) {
    const elapsedMs = at === 0 ? stepMs + prompts * tokens * msPerToken : 0.2;
    const sample = { uncachedTokens: tokens, matchedTokens: 0, elapsedMs, hasWaited: at > 0 };
    steps.computed(target, sample, at === prompts - 1);
  }
}

test("prompts that are computed in one step are learned from as one", () => {
  const rates = new PrefillRates();
  const steps = new SharedSteps(rates);
  for (let round = 0; round < 40; round++) step(steps, 1 + (round % 8), 160 + 40 * (round % 5));
  expect(rates.samples).toBe(40);
  const workMs = rates.workMs(target, { uncachedTokens: 1_000, matchedTokens: 0 });
  expect(workMs).toBeGreaterThan(0.85 * 1_000 * msPerToken);
  expect(workMs).toBeLessThan(1.15 * 1_000 * msPerToken);
});

test("a prompt behind which others wait is learned from when the next one has been computed", () => {
  const rates = new PrefillRates();
  const steps = new SharedSteps(rates);
  const sample = { uncachedTokens: 1_000, matchedTokens: 0, elapsedMs: 58, hasWaited: false };
  steps.computed(target, sample, false);
  expect(rates.samples).toBe(0);
  steps.computed(target, { ...sample, hasWaited: true }, false);
  expect(rates.samples).toBe(1);
  steps.computed({ index: 0, key: "engine-b" }, { ...sample, hasWaited: true, elapsedMs: 1 }, true);
  expect(rates.samples).toBe(3);
});

test("more prompts in a step than are counted are left out", () => {
  const seen: number[] = [];
  const rates = new PrefillRates();
  rates.observe = (_, { sameStep = [] }) => seen.push(sameStep.length);
  step(new SharedSteps(rates), maxPromptsPerStep + 2, 10);
  expect(seen).toEqual([maxPromptsPerStep]);
});
