import { expect, test } from "vitest";
import type { RoutingTarget } from "../../src/routing-target.ts";
import { BatchLimits, maxLimitedTargets } from "../../src/work/batch-limits.ts";
import { scriptedTarget } from "../scripted-target.ts";

/** Reports of one engine, a second apart. @returns what is known after each */
function limitsOf(reports: readonly (readonly [running: number, waiting: number])[], index = 0): number[] {
  const limits = new BatchLimits();
  return reports.map(([running, waiting], at) => limits.of(reporting({ running, waiting, index }), 1_000 * at));
}

function reporting({ running = 64, waiting = 1, index = 0, key = "e", ageMs = 0 }): RoutingTarget {
  const target = scriptedTarget(index, key);
  return { ...target, signals: { ...target.signals, running, waiting, ageMs: () => ageMs } };
}

const full = [64, 3] as const;

test("four reports in a row of as many running, with others waiting, tell the limit", () => {
  expect(limitsOf([full, full, full, full])).toEqual([Number.NaN, Number.NaN, Number.NaN, 64]);
  expect(limitsOf([full, full, [63, 3], full, full, full])).not.toContain(64);
  expect(limitsOf([full, full, [64, 0], full, full, full])).not.toContain(64);
  expect(limitsOf([full, full, full, full]).at(-1)).toBe(64);
});

test("stays known when the queue is gone, until more run at once than it says", () => {
  const reports = [full, full, full, full, [30, 0], [64, 1], [65, 0], [64, 2]] as const;
  expect(limitsOf(reports).slice(3)).toEqual([64, 64, 64, Number.NaN, Number.NaN]);
});

test("an engine that stands still while another runs more is not full", () => {
  const limits = new BatchLimits();
  const look = (at: number, running: number) => [
    limits.of(reporting({}), 1_000 * at),
    limits.of(reporting({ index: 1, key: "other", running, waiting: 0 }), 1_000 * at),
  ];
  for (let at = 0; at < 5; at++) look(at, 64);
  expect(look(5, 64)).toEqual([64, Number.NaN]);
  expect(look(6, 65)[1]).toBeNaN();
  for (let at = 7; at < 20; at++) expect(look(at, 10)[0]).toBeNaN();
});

test("few that run are no sign of a limit, whatever waits", () => {
  const few = Array.from({ length: 8 }, () => [15, 9] as const);
  expect(limitsOf(few).at(-1)).toBeNaN();
  expect(limitsOf(few.map(() => [16, 9] as const)).at(-1)).toBe(16);
});

test("a report that is looked at often counts once; none at all tells nothing", () => {
  const limits = new BatchLimits();
  for (let look = 0; look < 20; look++) expect(limits.of(reporting({ ageMs: 10 * look }), 10 * look)).toBeNaN();
  const silent = reporting({ running: Number.NaN, waiting: Number.NaN, ageMs: Number.POSITIVE_INFINITY });
  for (let look = 0; look < 20; look++) expect(limits.of(silent, 1_000 * look)).toBeNaN();
});

test("another engine in the same place is another one, and beyond the bound nothing is known", () => {
  const limits = new BatchLimits();
  for (let at = 0; at < 4; at++) limits.of(reporting({}), 1_000 * at);
  expect(limits.of(reporting({}), 4_000)).toBe(64);
  expect(limits.of(reporting({ key: "other" }), 5_000)).toBeNaN();
  expect(limitsOf([full, full, full, full], maxLimitedTargets - 1).at(-1)).toBe(64);
  expect(limitsOf([full, full, full, full], maxLimitedTargets).at(-1)).toBeNaN();
});
