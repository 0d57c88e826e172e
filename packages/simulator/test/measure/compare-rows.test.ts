import { describe, expect, test } from "vitest";
import { medianRows, type SimulateRow, withGaps } from "../../src/measure/rows.ts";

const row = (parts: Partial<SimulateRow>): SimulateRow => ({
  scenario: "rag",
  policy: "prefix",
  routers: 8,
  engines: 16,
  sharing: "mesh",
  links: "real",
  seed: 1,
  requests: 10,
  errors: 0,
  duration_s: 60,
  sessions: 10,
  spills: 0,
  wall_s: 1,
  ...parts,
});

const oracle = row({
  sharing: "oracle",
  routers: 1,
  ttft_mean_s: 0.2,
  ttft_p90_s: 0.5,
  cached_share: 0.5,
  followup_cached_share: 0.8,
  load_cov_time: 0.1,
});

describe("gaps to the oracle", () => {
  test("are ratios to its row; its own row has none", () => {
    const own = row({
      ttft_mean_s: 0.21,
      ttft_p90_s: 0.6,
      cached_share: 0.45,
      followup_cached_share: 0.796,
      load_cov_time: 0.2,
    });
    const rows = withGaps([own, oracle]);
    expect(rows[0]).toEqual({
      ...own,
      oracle_gap_ttft: expect.closeTo(1.05),
      oracle_gap_ttft_p90: expect.closeTo(1.2),
      oracle_gap_cached: expect.closeTo(0.9),
      oracle_gap_followup: expect.closeTo(0.995),
      oracle_gap_load_cov_time: expect.closeTo(2),
    });
    expect(rows[1]).toBe(oracle);
  });

  test.each([
    { scenario: "evict" },
    { variant: "large" },
    { policy: "random" },
    { engines: 8 },
    { load: 0.85 },
    { seed: 2 },
  ])("are never to the row of another run: %o", (difference) => {
    const own = row({ ttft_mean_s: 0.4, ...difference });
    expect(withGaps([own, oracle])).toEqual([own, oracle]);
    const [paired] = withGaps([own, oracle, { ...oracle, ...difference, ttft_mean_s: 0.1 }]);
    expect(paired?.oracle_gap_ttft).toBeCloseTo(4);
  });

  test("routers, sharing and links may differ; the first of several rows of the oracle counts", () => {
    const others = [row({ routers: 2 }), row({ sharing: "none" }), row({ links: "delays" })];
    const rows = others.map((other) => ({ ...other, ttft_mean_s: 0.3 }));
    for (const paired of withGaps([...rows, oracle, { ...oracle, ttft_mean_s: 9 }]).slice(0, 3)) {
      expect(paired.oracle_gap_ttft).toBeCloseTo(1.5);
    }
  });

  test("the gap to routers that share nothing is to as many of them, with the same seed", () => {
    const alone = row({ sharing: "none", routers: 4, ttft_mean_s: 0.6 });
    const shared = row({ sharing: "mesh", routers: 4, ttft_mean_s: 0.3, link_delay_ms: 50 });
    const [, own, other] = withGaps([alone, shared, row({ sharing: "mesh", routers: 2, ttft_mean_s: 0.3 })]);
    expect(own?.unshared_gap_ttft).toBeCloseTo(0.5);
    expect(other).not.toHaveProperty("unshared_gap_ttft");
    expect(withGaps([alone])[0]).not.toHaveProperty("unshared_gap_ttft");
  });

  test("a figure that one of the two lacks, or a share of 0, gives no ratio", () => {
    const [own] = withGaps([
      row({ ttft_mean_s: 0.3, cached_share: 0.1, load_cov_time: 1 }),
      row({ sharing: "oracle", cached_share: 0 }),
    ]);
    expect(Object.keys(own ?? {}).filter((name) => name.startsWith("oracle_gap"))).toEqual([]);
  });
});

describe("medians over seeds", () => {
  const seeds = (values: readonly number[], parts: Partial<SimulateRow> = {}): SimulateRow[] =>
    values.map((ttft_mean_s, index) => row({ seed: index + 1, ttft_mean_s, ...parts }));

  test("each figure has its median and its extremes", () => {
    const [median] = medianRows(seeds([0.3, 0.1, 0.2]));
    expect(median).toMatchObject({ scenario: "rag", policy: "prefix", routers: 8, engines: 16, seeds: [1, 2, 3] });
    expect(median?.figures.ttft_mean_s).toEqual({ median: 0.2, min: 0.1, max: 0.3 });
    expect(median?.figures.requests).toEqual({ median: 10, min: 10, max: 10 });
    expect(medianRows(seeds([0.4, 0.1, 0.3, 0.2]))[0]?.figures.ttft_mean_s?.median).toBeCloseTo(0.25);
  });

  test("labels are no figures, and an absent label stays absent", () => {
    const [median] = medianRows(seeds([0.1], { load: 0.85 }));
    expect(median?.load).toBe(0.85);
    for (const label of ["seed", "routers", "engines", "load"]) expect(median?.figures).not.toHaveProperty(label);
    expect(medianRows(seeds([0.1]))[0]).not.toHaveProperty("load");
    expect(medianRows(seeds([0.1]))[0]).not.toHaveProperty("variant");
    expect(medianRows(seeds([0.1], { variant: "v" }))[0]?.variant).toBe("v");
  });

  test("parts of a row are figures with a dot", () => {
    const parts = (ttft_p99_s: number, pooled_lru: number) => ({
      bounds: { pooled_lru },
      by_class: { batch: { requests: 4, errors: 0, ttft_p99_s } },
    });
    const [median] = medianRows([row({ seed: 1, ...parts(3, 0.3) }), row({ seed: 2, ...parts(5, 0.5) })]);
    expect(median?.figures["by_class.batch.ttft_p99_s"]).toEqual({ median: 4, min: 3, max: 5 });
    expect(median?.figures["bounds.pooled_lru"]).toEqual({ median: 0.4, min: 0.3, max: 0.5 });
  });

  test("a figure that one row lacks is left out", () => {
    const [median] = medianRows([...seeds([0.1]), row({ seed: 2 })]);
    expect(median?.figures).not.toHaveProperty("ttft_mean_s");
    expect(median?.figures).toHaveProperty("requests");
  });

  test("runs that differ in more than the seed stay apart, in order; none gives none", () => {
    const rows = [
      ...seeds([0.1], { policy: "b" }),
      ...seeds([0.2], { policy: "a" }),
      ...seeds([0.3], { policy: "b", seed: 9 }),
      ...seeds([0.4], { policy: "b", links: "delays" }),
      ...seeds([0.5], { policy: "b", load: 0.5 }),
    ];
    expect(medianRows(rows).map(({ policy, seeds: of }) => [policy, of])).toEqual([
      ["b", [1, 9]],
      ["a", [1]],
      ["b", [1]],
      ["b", [1]],
    ]);
    expect(medianRows([])).toEqual([]);
  });
});
