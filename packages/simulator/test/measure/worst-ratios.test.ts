import { expect, test } from "vitest";
import { type ComparedRun, comparePolicies, minComparedRequests } from "../../src/measure/worst-ratios.ts";

interface Given {
  readonly name?: string;
  readonly routers?: number;
  readonly seed?: number;
  readonly requests?: number;
  readonly errors?: number;
  /** TTFT mean; the other figures are 1 unless told. */
  readonly ttft?: number;
  readonly p99?: number;
  readonly e2e?: number;
  readonly tokens?: number;
  readonly tpot?: number;
  readonly goodput?: number;
}

function run(policy: string, given: Given = {}): ComparedRun {
  const { name = "one", routers = 1, seed = 1, requests = 1_000, errors = 0 } = given;
  const { ttft = 1, p99 = 1, e2e = 1, tokens = 1 } = given;
  const optional = {
    ...(given.tpot && { tpot_p99_s: given.tpot }),
    ...(given.goodput && { goodput_share: given.goodput }),
  };
  const figures = { ttft_mean_s: ttft, ttft_p99_s: p99, e2e_mean_s: e2e, total_tokens_per_s: tokens, ...optional };
  return { name, policy, routers, seed, row: { requests, errors, ...figures } };
}

const ratioOf = (runs: readonly ComparedRun[], policy: string, figure = "ttft_mean_s", routers = 1) =>
  comparePolicies(runs).rows.find((row) => row.policy === policy && row.figure === figure && row.routers === routers);

test("ratios to the best: of times the least, of tokens the most", () => {
  const runs = [run("a", { ttft: 0.2, tokens: 500 }), run("b", { ttft: 0.5, tokens: 1_000 })];
  expect(ratioOf(runs, "a")?.worst_ratio).toBe(1);
  expect(ratioOf(runs, "b")?.worst_ratio).toBeCloseTo(2.5, 9);
  expect(ratioOf(runs, "a", "total_tokens_per_s")?.worst_ratio).toBe(2);
  expect(ratioOf(runs, "b", "total_tokens_per_s")?.worst_ratio).toBe(1);
});

test("goodput is compared where the fleet can keep the objectives, as what the best has more of", () => {
  const runs = [run("a", { goodput: 0.84, tpot: 0.02 }), run("b", { goodput: 0.72, tpot: 0.05 })];
  expect(ratioOf(runs, "b", "goodput_share")?.worst_ratio).toBeCloseTo(0.84 / 0.72, 9);
  expect(ratioOf(runs, "a", "goodput_share")?.worst_ratio).toBe(1);
  expect(ratioOf(runs, "b", "tpot_p99_s")?.worst_ratio).toBeCloseTo(2.5, 9);
  const hopeless = [run("a", { goodput: 0.04 }), run("b", { goodput: 0.001 })];
  expect(ratioOf(hopeless, "b", "goodput_share")).toBeUndefined();
});

test("the worst case of each figure, and the mean of all", () => {
  const cases = ["one", "two", "three"].flatMap((name, at) => [
    run("a", { name, ttft: 1 }),
    run("b", { name, ttft: [1.5, 4, 2][at]! }),
  ]);
  expect(ratioOf(cases, "b")).toEqual({
    ...{ policy: "b", routers: 1, figure: "ttft_mean_s", worst_ratio: 4, worst_scenario: "two" },
    ...{ mean_ratio: 2.5, cases: 3, failed_cases: 0 },
  });
  expect(ratioOf(cases, "a")).toMatchObject({ worst_ratio: 1, worst_scenario: "one", mean_ratio: 1 });
});

test("equal policies are all best, and the first of equal cases is named", () => {
  const { rows } = comparePolicies([run("a"), run("b"), run("a", { name: "two" }), run("b", { name: "two" })]);
  expect(rows).toHaveLength(8);
  expect(rows.every(({ worst_ratio, worst_scenario }) => worst_ratio === 1 && worst_scenario === "one")).toBe(true);
});

test("each number of routers is judged for itself", () => {
  const runs = [run("a"), run("b", { ttft: 2 }), run("a", { routers: 8, ttft: 6 }), run("b", { routers: 8, ttft: 3 })];
  expect(ratioOf(runs, "b", "ttft_mean_s", 1)?.worst_ratio).toBe(2);
  expect(ratioOf(runs, "b", "ttft_mean_s", 8)?.worst_ratio).toBe(1);
  expect(ratioOf(runs, "a", "ttft_mean_s", 8)?.worst_ratio).toBe(2);
});

test("medians over the seeds are compared", () => {
  const runs = [1, 2, 3].flatMap((seed) => [
    run("a", { seed, ttft: [1, 2, 9][seed - 1]! }),
    run("b", { seed, ttft: [4, 4, 1][seed - 1]! }),
  ]);
  const { cases } = comparePolicies(runs);
  expect(cases.map(({ policy, seeds, figures }) => [policy, seeds, figures.ttft_mean_s])).toEqual([
    ["a", [1, 2, 3], 2],
    ["b", [1, 2, 3], 4],
  ]);
  const two = runs.filter(({ seed }) => seed < 3);
  expect(comparePolicies(two).cases[0]?.figures.ttft_mean_s).toBe(1.5);
});

test("seeds of which a run is missing do not count, and cases without one that is whole are left out", () => {
  const missing: ComparedRun = { ...run("b", { seed: 2 }), row: undefined };
  const runs = [run("a", { ttft: 3 }), run("b"), run("a", { seed: 2, ttft: 0.1 }), missing];
  const judged = comparePolicies(runs);
  expect(judged.isPartial).toBe(true);
  expect(judged.cases.map(({ seeds }) => seeds)).toEqual([[1], [1]]);
  expect(ratioOf(runs, "a")?.worst_ratio).toBe(3);
  expect(comparePolicies([run("a", { seed: 2 }), missing])).toEqual({ rows: [], cases: [], isPartial: true });
  expect(comparePolicies([])).toEqual({ rows: [], cases: [], isPartial: false });
});

test("figures of too few requests say nothing", () => {
  const of = (requests: number) => comparePolicies([run("a", { requests }), run("b", { ttft: 2 })]);
  expect(of(minComparedRequests).rows.find(({ policy }) => policy === "b")?.worst_ratio).toBe(2);
  const few = of(minComparedRequests - 1);
  expect(few.cases[0]).toMatchObject({ policy: "a", figures: {}, ratios: {}, isFailed: false });
  expect(few.rows.map(({ policy, worst_ratio }) => [policy, worst_ratio])).toEqual(Array(4).fill(["b", 1]));
});

test("a figure that a run lacks is absent for its policy, and is nobody's best", () => {
  const { row, ...rest } = run("a");
  const { ttft_p99_s: _, ...without } = row!;
  const runs = [{ ...rest, row: without as NonNullable<ComparedRun["row"]> }, run("b", { p99: 7 })];
  expect(ratioOf(runs, "a", "ttft_p99_s")).toBeUndefined();
  expect(ratioOf(runs, "b", "ttft_p99_s")?.worst_ratio).toBe(1);
  expect(ratioOf(runs, "a", "e2e_mean_s")?.worst_ratio).toBe(1);
});

test("a policy that fails requests is not made the best by those that it has not served", () => {
  const runs = [run("a", { ttft: 0.1, errors: 11 }), run("b", { ttft: 2 }), run("a", { name: "two" })];
  const { rows, cases } = comparePolicies(runs);
  expect(cases[0]).toMatchObject({ policy: "a", isFailed: true, figures: {} });
  expect(ratioOf(runs, "b")?.worst_ratio).toBe(1);
  expect(rows.map(({ policy, failed_cases }) => `${policy} ${failed_cases}`)).toEqual([
    ...Array(4).fill("b 0"),
    ...Array(4).fill("a 1"),
  ]);
  expect(ratioOf([run("a", { ttft: 1, errors: 10 }), run("b", { ttft: 2 })], "b")?.worst_ratio).toBe(2);
});

test("times below a millisecond are alike, and a rate of nothing has no ratio", () => {
  const runs = [run("a", { ttft: 0.000_01, tokens: 10 }), run("b", { ttft: 0.000_9, tokens: 0 })];
  expect(ratioOf(runs, "b")?.worst_ratio).toBe(1);
  expect(ratioOf([run("a", { ttft: 0 }), run("b", { ttft: 0.002 })], "b")?.worst_ratio).toBe(2);
  expect(ratioOf(runs, "b", "total_tokens_per_s")).toBeUndefined();
});

test("ranked by the worst of all figures and routers, then by the mean", () => {
  const runs = [
    run("wide", { e2e: 3 }),
    run("steady", { ttft: 2, p99: 2, e2e: 2 }),
    run("best"),
    run("spiky", { e2e: 2 }),
  ];
  const order = [...new Set(comparePolicies(runs).rows.map(({ policy }) => policy))];
  expect(order).toEqual(["best", "spiky", "steady", "wide"]);
});
