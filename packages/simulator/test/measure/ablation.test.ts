import { expect, test } from "vitest";
import { type AblationRun, compareWithWhole, isReached } from "../../src/measure/ablation.ts";

interface Given {
  readonly name?: string;
  readonly routers?: number;
  readonly seed?: number;
  readonly requests?: number;
  readonly errors?: number;
  readonly ttft?: number;
  readonly tokens?: number;
  readonly goodput?: number;
}

function run(without: string | undefined, given: Given = {}): AblationRun {
  const {
    name = "one",
    routers = 1,
    seed = 1,
    requests = 1_000,
    errors = 0,
    ttft = 1,
    tokens = 1,
    goodput = 0.9,
  } = given;
  const figures = {
    ttft_mean_s: ttft,
    ttft_p99_s: 1,
    e2e_mean_s: 1,
    total_tokens_per_s: tokens,
    goodput_share: goodput,
  };
  return { name, without, routers, seed, row: { requests, errors, ...figures } };
}

/** Times of the whole policy are 1; those without the part are given by seed. */
const seeds = (part: string, ttfts: readonly number[], given: Given = {}): readonly AblationRun[] =>
  ttfts.flatMap((ttft, at) => [
    run(undefined, { ...given, seed: at + 1 }),
    run(part, { ...given, seed: at + 1, ttft }),
  ]);

test("a part earns what its figures are worse without it, seed by seed, and their spread stands beside it", () => {
  const { parts, effects } = compareWithWhole(seeds("a", [1.5, 1.8, 1.6]));
  expect(effects[0]).toEqual({
    ...{ case: "one", part: "a", routers: 1, figure: "ttft_mean_s", ratio: 1.6, spread: expect.closeTo(0.3, 9) },
  });
  expect(parts).toEqual([
    {
      ...{ part: "a", routers: 1, failed_cases: 0, earns: 1, costs: 0, reached: 1, cases: 1 },
      ratios: {
        ttft_mean_s: { worst: 1.6, mean: 1.6 },
        e2e_mean_s: { worst: 1, mean: 1 },
        total_tokens_per_s: { worst: 1, mean: 1 },
        goodput_share: { worst: 1, mean: 1 },
      },
      earns_most: effects[0],
      costs_most: undefined,
    },
  ]);
});

test("seeds are paired: what differs between them cancels", () => {
  const runs = [1, 2, 3].flatMap((seed) => [
    run(undefined, { seed, ttft: seed }),
    run("a", { seed, ttft: seed * 1.2 }),
  ]);
  expect(compareWithWhole(runs).effects[0]).toMatchObject({
    ratio: expect.closeTo(1.2, 9),
    spread: expect.closeTo(0, 9),
  });
});

test("fewer tokens and less goodput without the part are what it earns; more are what it costs", () => {
  const runs = [run(undefined, { tokens: 100, goodput: 0.9 }), run("a", { tokens: 50, goodput: 0.99 })];
  const { parts } = compareWithWhole([...runs, ...runs.map((one) => ({ ...one, seed: 2 }))]);
  expect(parts[0]!.ratios.total_tokens_per_s?.worst).toBe(2);
  expect(parts[0]!.costs_most).toMatchObject({ figure: "goodput_share", ratio: expect.closeTo(0.909, 3), spread: 0 });
  expect(parts[0]).toMatchObject({ earns: 1, costs: 1 });
});

test("goodput counts where the fleet can keep the objectives, and losing all of it is no infinite loss", () => {
  const ratio = (whole: number, without: number) =>
    compareWithWhole([run(undefined, { goodput: whole }), run("a", { goodput: without })]).effects.find(
      ({ figure }) => figure === "goodput_share",
    )?.ratio;
  expect(ratio(1, 0)).toBe(20);
  expect(ratio(0.04, 0.01)).toBeUndefined();
});

test("an effect within the spread of its seeds, below a hundredth, or of one seed is not counted", () => {
  const earns = (ttfts: readonly number[]) => compareWithWhole(seeds("a", ttfts)).parts[0]!.earns;
  expect(earns([1.1, 1.2, 1.3])).toBe(0);
  expect(earns([1.21, 1.3, 1.4])).toBe(1);
  expect(earns([1.005, 1.005, 1.005])).toBe(0);
  expect(earns([2])).toBe(0);
  const [one] = compareWithWhole(seeds("a", [2])).parts;
  expect(one!.earns_most).not.toHaveProperty("spread");
});

test("the case that is named is one beyond its spread, if there is one", () => {
  const runs = [...seeds("a", [1, 2, 9], { name: "loud" }), ...seeds("a", [1.3, 1.3, 1.3], { name: "sure" })];
  expect(compareWithWhole(runs).parts[0]!.earns_most).toMatchObject({ case: "sure", ratio: 1.3 });
  expect(compareWithWhole(seeds("a", [1, 2, 9])).parts[0]!.earns_most).toMatchObject({ ratio: 2, spread: 8 });
});

test("parts that earn most come first, routers apart, and unreached cases count", () => {
  const runs = [
    ...seeds("small", [1.1, 1.1]),
    ...seeds("none", [1, 1]),
    ...seeds("large", [1, 1]),
    ...seeds("large", [1.9, 1.9], { routers: 8 }),
    ...seeds("large", [1, 1], { name: "two", routers: 8 }),
  ];
  const { parts } = compareWithWhole(runs);
  expect(parts.map(({ part, routers, reached, cases }) => [part, routers, reached, cases])).toEqual([
    ["large", 1, 0, 1],
    ["large", 8, 1, 2],
    ["small", 1, 1, 1],
    ["none", 1, 0, 1],
  ]);
  expect(parts[1]!.ratios.ttft_mean_s?.mean).toBeCloseTo(1.45, 9);
});

test("requests that fail without the part stand first, in place of figures", () => {
  const runs = [...seeds("slow", [3, 3]), run(undefined), run("broken", { errors: 20 })];
  const { parts, effects } = compareWithWhole(runs);
  expect(parts.map(({ part, failed_cases }) => [part, failed_cases])).toEqual([
    ["broken", 1],
    ["slow", 0],
  ]);
  expect(effects.every(({ part }) => part === "slow")).toBe(true);
});

test("runs that are missing leave their seeds out; so do those with too few requests", () => {
  const missing = { ...run("a", { seed: 2 }), row: undefined };
  const { isPartial, effects } = compareWithWhole([...seeds("a", [1.5]), run(undefined, { seed: 2 }), missing]);
  expect(isPartial).toBe(true);
  expect(effects[0]).toMatchObject({ ratio: 1.5 });
  expect(compareWithWhole(seeds("a", [2, 2], { requests: 99 })).effects).toEqual([]);
  expect(compareWithWhole([])).toEqual({ parts: [], effects: [], isPartial: false });
});

test("a part is reached where a figure differs", () => {
  const [whole, same, other] = [run(undefined).row, run("a").row, run("a", { tokens: 1.0001 }).row];
  expect([isReached(same, whole), isReached(other, whole), isReached(undefined, whole)]).toEqual([false, true, true]);
});
