import { maxLineNames, renderFigure } from "@espalier/simulator";
import { expect, test } from "vitest";
import { figureOf } from "../../src/simulate/figures.ts";
import type { RunJob, RunOutcome } from "../../src/simulate/run-job.ts";
import { jobOf, outcomeOf } from "./fake-outcome.ts";

const figure = (outcomes: readonly RunOutcome[]) =>
  figureOf(
    "the title",
    outcomes,
    outcomes.map(({ row }) => row),
  );
const of = (...parts: readonly Partial<RunJob>[]) => figure(parts.map((part) => outcomeOf(jobOf(part))));
const titles = (made: ReturnType<typeof of>): readonly string[] => made.panels.map(({ title }) => title);

test("one fleet: how TTFT is distributed, and the load, a line for each policy", () => {
  const made = of({ policy: "random", sharing: "none" }, { policy: "least_work" });
  expect(titles(made)).toEqual(["Time to first token", "Load, least and most loaded engine"]);
  for (const { lines } of made.panels) expect(lines.map(({ name }) => name)).toEqual(["random", "least_work"]);
  expect(made.description).toContain("random; least_work");
});

test("the slowest requests are left out of the distribution, which is of the first seed", () => {
  const [panel] = of({ seed: 1 }, { seed: 2 }).panels;
  expect(panel?.lines).toHaveLength(1);
  const points = panel?.lines[0]?.points;
  expect(points?.map(({ x }) => x)).toEqual([0, 50, 99]);
  expect(points?.[0]?.y).toBeCloseTo(2.1 * 0.5, 9);
});

test("what is shared is in the names of the policies that were run with several ways", () => {
  const made = of(
    { policy: "round_robin", sharing: "none" },
    { sharing: "oracle", routers: 1 },
    { sharing: "mesh", links: "real" },
    { sharing: "mesh", links: "delays" },
  );
  expect(made.panels[0]?.lines.map(({ name }) => name)).toEqual([
    "round_robin",
    "least_work, oracle",
    "least_work, mesh (real)",
    "least_work, mesh (delays)",
  ]);
});

test("by routers: medians with their spread, in order, and the runs of the most routers above", () => {
  const seeds = [1, 2, 3];
  const made = of(...[8, 1, 2].flatMap((routers) => seeds.map((seed) => ({ routers, seed }))));
  expect(titles(made)).toEqual([
    "Time to first token",
    "Load, least and most loaded engine",
    "Cached share by routers",
  ]);
  const [byRouters] = made.panels.slice(-1);
  expect(byRouters?.x).toEqual({ label: "routers", kind: "log", marks: [1, 2, 8] });
  expect(byRouters?.lines[0]?.points.map(({ x, y }) => [x, y])).toEqual([
    [1, 100],
    [2, 50],
    [8, 12.5],
  ]);
  expect(made.panels[0]?.lines[0]?.points[0]?.y).toBeCloseTo(8.1 * 0.5, 9);
});

test("the all-knowing router alone does not make routers vary", () => {
  expect(titles(of({ sharing: "oracle", routers: 1 }, { sharing: "mesh" }))).not.toContain("Cached share by routers");
});

test("engines and loads that vary have panels of their own, and each case its distribution", () => {
  const made = of(
    { engines: 4, load: 0.5 },
    { engines: 8, load: 0.5 },
    { engines: 4, load: 0.9 },
    { engines: 8, load: 0.9 },
  );
  const cases = [
    "4 engines, 0.5 of the knee",
    "8 engines, 0.5 of the knee",
    "4 engines, 0.9 of the knee",
    "8 engines, 0.9 of the knee",
  ];
  expect(titles(made)).toEqual([
    ...cases.map((one) => `Time to first token: ${one}`),
    ...cases.map((one) => `Load, least and most loaded engine: ${one}`),
    "Cached share by engines",
    "Time to first token by load",
  ]);
});

test("variants are named, the scenario itself too", () => {
  expect(titles(of({}, { variant: "2x" }))).toEqual(
    ["Time to first token", "Load, least and most loaded engine"].flatMap((what) => [
      `${what}: as published`,
      `${what}: 2x`,
    ]),
  );
});

test("a fault is seen in the cached share over time", () => {
  const phase = { from_s: 0, to_s: 9, requests: 50, errors: 0 };
  const outcome = { ...outcomeOf(jobOf()), phases: { before: phase, during: phase, after: phase } };
  expect(titles(figure([outcome]))).toContain("Follow-ups, cached share over time");
});

test("many lines have no bands that hide each other", () => {
  const policies = ["random", "round_robin", "cache_aware", "least_work"];
  const load = (count: number) => of(...policies.slice(0, count).map((policy) => ({ policy }))).panels[1]!;
  expect(load(3).lines[0]?.points[0]).toEqual({ x: 1, y: 4, low: 2, high: 5 });
  expect(load(4).lines[0]?.points[0]).toEqual({ x: 1, y: 5 });
  expect(load(4).title).toBe("Load of the most loaded engine");
});

test("without follow-ups the cached share is that of all requests", () => {
  const outcomes = [1, 2].map((routers) => {
    const outcome = outcomeOf(jobOf({ routers }));
    const { followup_cached_share: _, ...row } = outcome.row;
    return { ...outcome, row };
  });
  expect(figure(outcomes).panels.at(-1)?.y.label).toBe("cached (%)");
});

test("however much was run, the figure can be drawn", () => {
  const policies = Array.from({ length: maxLineNames + 1 }, (_, at) => `policy ${at}`);
  const parts = policies.flatMap((policy) =>
    [1, 2].flatMap((routers) =>
      Array.from({ length: 12 }, (_, at) => ({ policy, routers, engines: at + 1, load: at / 10, variant: `v${at}` })),
    ),
  );
  const phase = { from_s: 0, to_s: 9, requests: 50, errors: 0 };
  const outcomes = parts.map((part) => ({
    ...outcomeOf(jobOf(part)),
    phases: { before: phase, during: phase, after: phase },
  }));
  const made = figure(outcomes);
  expect(() => renderFigure(made)).not.toThrow();
  expect(new Set(made.panels.flatMap(({ lines }) => lines.map(({ name }) => name))).size).toBe(maxLineNames);
});
