import { EspalierError } from "@espalier/core";
import { createSeriesMeter, createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createRetryBudget, createRetryMeters, type FailureKind, Retries } from "../../src/request/retries.ts";

function rig(budget = { budgetRatio: 0, budgetMinimum: 2 }) {
  const meter = createSeriesMeter();
  const shared = createRetryBudget(createVirtualTime().clock, budget);
  const retries = (): Retries => new Retries(shared, createRetryMeters(meter));
  const counted = (budget: string): number => meter.value("espalier_proxy_retries_total", budget) ?? 0;
  return { meter, retries, counted: () => [counted("free"), counted("charged")] };
}

const next = (): string => "next";
const nobody = (): undefined => undefined;

describe("what follows a failure", () => {
  test.each<readonly [FailureKind, number, number]>([
    ["connect", 1, 0],
    ["overloaded", 1, 0],
    ["declined", 1, 0],
    ["withdrawn", 1, 0],
    ["reset", 0, 1],
    ["protocol", 0, 1],
    ["status", 0, 1],
  ])("%s: the next engine, at a charge unless it did not have the request", (kind, free, charged) => {
    const { retries, counted } = rig();
    expect(retries().after(kind, false, next)).toBe("next");
    expect(counted()).toEqual([free, charged]);
  });

  test("nobody is left: nothing is counted, and nothing spent", () => {
    const { retries, counted } = rig();
    const one = retries();
    for (const kind of ["connect", "reset"] as const) expect(one.after(kind, false, nobody)).toBeUndefined();
    expect([counted(), one.after("reset", false, next)]).toEqual([[0, 0], "next"]);
  });

  test("silence is no reason to ask another engine, nor is an end after it had begun to answer", () => {
    const { retries, counted } = rig();
    expect(retries().after("timeout", false, next)).toBeUndefined();
    expect(retries().after("reset", true, next)).toBeUndefined();
    expect(counted()).toEqual([0, 0]);
  });

  test("one charged retry for a request; free ones as often as there are engines", () => {
    const { retries } = rig();
    const one = retries();
    expect(one.after("status", false, next)).toBe("next");
    expect(one.after("status", false, next)).toBeUndefined();
    for (let engine = 0; engine < 5; engine++) expect(one.after("connect", false, next)).toBe("next");
  });

  test("the budget bounds them over all requests, and the next window has room again", () => {
    const { meter, retries } = rig();
    const outcomes = [1, 2, 3].map(() => retries().after("reset", false, next));
    expect(outcomes).toEqual(["next", "next", undefined]);
    expect(meter.value("espalier_proxy_retry_budget_exhausted_total")).toBe(1);
  });
});

test("a request that broke two engines goes to no third, and its client hears why", () => {
  const one = rig().retries();
  const cause = new EspalierError("upstream_reset");
  one.broke();
  expect([one.isDangerous, one.isResent, one.verdict(cause)]).toEqual([false, true, cause]);
  one.broke();
  expect([one.isDangerous, one.verdict(cause).code]).toEqual([true, "request_breaks_engines"]);
  expect(one.after("reset", false, next)).toBeUndefined();
});

test("a stale connection is redialled once", () => {
  const one = rig().retries();
  expect([one.isResent, one.redial(), one.isResent, one.redial()]).toEqual([false, true, true, false]);
});
