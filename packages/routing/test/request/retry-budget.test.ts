import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createRetryBudget } from "../../src/request/retries.ts";

const options = { budgetMinimum: 1, budgetRatio: 0.5 } as Parameters<typeof createRetryBudget>[1];

test("a request earns its share of retries for ten seconds, and not for eleven", () => {
  const time = createVirtualTime();
  const budget = createRetryBudget(time.clock, options);
  for (let request = 0; request < 4; request++) budget.earn();
  budget.spend();
  time.advance(9_000);
  expect(budget.allows()).toBe(true);
  budget.spend();
  time.advance(999);
  expect(budget.allows()).toBe(false);
  time.advance(1);
  expect(budget.allows()).toBe(false);
});

test("what was spent is forgotten after ten seconds in which nobody asked for anything", () => {
  const time = createVirtualTime();
  const budget = createRetryBudget(time.clock, options);
  budget.spend();
  expect(budget.allows()).toBe(false);
  time.advance(9_999);
  expect(budget.allows()).toBe(false);
  time.advance(1);
  expect(budget.allows()).toBe(true);
});
