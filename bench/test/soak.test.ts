import { createSeededRandom, systemScheduler } from "@espalier/core";
import type { Answer } from "@espalier/simulator";
import { expect, test } from "vitest";
import { createDigestCheck } from "../src/soak/digest-check.ts";
import { type RouterSample, readSample } from "../src/soak/samples.ts";
import { minWindows, robustSlope } from "../src/soak/slope.ts";
import { createLoadCounts, runSoakLoad } from "../src/soak/soak-load.ts";
import { plotSoak } from "../src/soak/soak-plot.ts";
import type { SoakResult } from "../src/soak/soak-run.ts";
import { soakReport, soakSuite, soakTable } from "../src/suites/soak.ts";
import { duration } from "../src/support/params.ts";

const msPerHour = 3_600_000;

test("the slope of a line is that of the line, whatever stands above it for a while", () => {
  const random = createSeededRandom(1);
  const values = Array.from({ length: 480 }, (_, at) => {
    const spike = at % 3 === 0 ? 0 : random.float() * 80;
    return { atH: at / 480, value: 100 + (at / 480) * 12 + spike };
  });
  const slope = robustSlope(values);
  expect(slope?.perHour).toBeCloseTo(12, 0);
  expect(slope?.lowPerHour).toBeGreaterThan(10);
  expect(slope?.windows).toBe(24);
});

test("what only goes up and down has no slope that could be told from none", () => {
  for (let seed = 1; seed <= 20; seed++) {
    const random = createSeededRandom(seed);
    const values = Array.from({ length: 300 }, (_, at) => ({ atH: at / 600, value: 150 + random.float() * 40 }));
    const slope = robustSlope(values);
    expect(slope?.lowPerHour).toBeLessThanOrEqual(0);
    expect(Math.abs(slope?.perHour ?? 99)).toBeLessThan(10);
  }
});

test("too few values have no slope", () => {
  expect(robustSlope([])).toBeUndefined();
  expect(robustSlope([{ atH: 0, value: 1 }])).toBeUndefined();
  const values = (count: number) => Array.from({ length: count }, (_, at) => ({ atH: at, value: at }));
  expect(robustSlope(values(minWindows - 1))).toBeUndefined();
  expect(robustSlope(values(minWindows))).toMatchObject({ perHour: 1, windows: minWindows });
});

const metrics = [
  "process_resident_memory_bytes 150000000",
  "nodejs_heap_size_used_bytes 50000000",
  "process_open_fds 33",
  "nodejs_eventloop_lag_max_seconds 0.025",
  "nodejs_eventloop_lag_p99_seconds 0.012",
].join("\n");
const target = { target: "a", epoch: "1.2", sequence: 7, isComplete: true, digest: "ab" };

test("a sample is read off the pages of a router, facts only where they are complete", () => {
  const targets = [target, { ...target, target: "b", digest: null }, { ...target, target: "c", isComplete: false }];
  const sample = readSample({ router: "r", atMs: 5, metrics, mesh: { journals: { bytes: 2e6 }, targets } });
  expect(sample).toEqual({
    ...{ atMs: 5, router: "r", rssMb: 150, heapMb: 50, handles: 33, loopMaxMs: 25, loopP99Ms: 12, journalMb: 2 },
    facts: [{ target: "a", point: "1.2 7", digest: "ab" }],
  });
  const without = { router: "r", atMs: 5, metrics: "", mesh: { journals: { bytes: 0 }, targets: [] } };
  expect(() => readSample(without)).toThrow("r has no metric process_resident_memory_bytes");
});

test("digests are compared at the same event of the same epoch only, and between routers", () => {
  const check = createDigestCheck();
  const at = (point: string, digest: string) => [{ target: "a", point, digest }];
  check.add("one", at("1 5", "x"));
  check.add("one", at("1 5", "x"));
  check.add("two", at("1 6", "y"));
  expect([check.compared, check.mismatches]).toEqual([0, []]);
  check.add("two", at("1 5", "x"));
  check.add("one", at("1 6", "y"));
  expect([check.compared, check.mismatches]).toEqual([2, []]);
  check.add("three", at("1 6", "z"));
  expect(check.mismatches).toEqual(["a at 1 6: two has y, three has z"]);
});

test("of a target's points the oldest are forgotten, and all of one that is gone", () => {
  const check = createDigestCheck();
  const at = (point: number, digest: string) => [{ target: "a", point: String(point), digest }];
  for (let point = 0; point < 17; point++) check.add("one", at(point, "x"));
  check.add("two", at(0, "other"));
  expect(check.compared).toBe(0);
  check.add("two", at(16, "x"));
  expect(check.compared).toBe(1);
  check.add("one", []);
  check.add("two", at(16, "other"));
  expect(check.mismatches).toEqual([]);
});

const answer: Answer = {
  ...{ startMs: 0, firstTokenMs: 1, endMs: 2, status: 200, promptTokens: 1, completionTokens: 1, cachedTokens: 0 },
  ...{ engine: "e", error: undefined, text: "word" },
};
const failed = (error: string): Answer => ({
  ...answer,
  firstTokenMs: Number.NaN,
  status: 0,
  engine: undefined,
  error,
});

/** Runs the load over answers that are given in turn, the last one again and again. */
async function loadOver(answers: readonly Answer[], router: { readonly wasKilled: boolean } = { wasKilled: false }) {
  const counts = createLoadCounts();
  const ending = new AbortController();
  let sent = 0;
  await runSoakLoad(
    {
      ...{ routers: () => [{ url: "http://r", ...router }], wasEngineKilled: (engine) => engine === "killed" },
      ...{ clients: 1, pauseMs: 0, clock: { nowMs: () => 0, wallMs: () => 0 }, scheduler: systemScheduler },
      ...{ random: createSeededRandom(1), signal: ending.signal },
      client: {
        async send() {
          sent += 1;
          if (sent >= answers.length) ending.abort();
          return answers[Math.min(sent, answers.length) - 1]!;
        },
        close() {},
      },
    },
    counts,
  );
  return counts;
}

test("the load counts answers, and what is lost apart from what a kill cut", async () => {
  expect(await loadOver([answer, answer])).toMatchObject({ sessions: 1, requests: 2, completed: 2, failed: 0 });
  const refused = await loadOver([failed("connect ECONNREFUSED 127.0.0.1:1"), answer]);
  expect(refused).toMatchObject({ requests: 1, completed: 1, retried: 1, failed: 0 });
  const lost = await loadOver([failed("socket hang up"), answer]);
  expect(lost).toMatchObject({ requests: 2, completed: 1, failed: 1, cutByKills: 0 });
  expect(lost.failures).toEqual(["http://r, engine unknown: socket hang up"]);
  expect(await loadOver([failed("socket hang up")], { wasKilled: true })).toMatchObject({ failed: 0, cutByKills: 1 });
  const begun = { ...answer, error: "the engine is gone", engine: "killed" };
  expect(await loadOver([begun])).toMatchObject({ failed: 0, cutByKills: 1 });
  // Without a first byte it should have been tried at another engine.
  expect(await loadOver([{ ...begun, firstTokenMs: Number.NaN }])).toMatchObject({ failed: 1, cutByKills: 0 });
  expect((await loadOver([{ ...begun, engine: "another" }])).failed).toBe(1);
  // Not once the head of its answer had come.
  const headed = { ...failed("status 502"), errorCode: "upstream_reset" };
  const by = (engine: string) => ({ ...headed, headers: { "x-espalier-failed-engine": engine } });
  expect(await loadOver([by("killed")])).toMatchObject({ failed: 0, cutByKills: 1 });
  expect(await loadOver([by("another")])).toMatchObject({ failed: 1, cutByKills: 0 });
  expect(await loadOver([{ ...by("killed"), errorCode: "upstream_timeout" }])).toMatchObject({ failed: 1 });
});

const plan = { durationMs: msPerHour, routers: 3, engines: 4, clients: 6, speed: 4, churnMs: 20_000 };

/** A run of an hour with three routers. @param rssOf by hour */
function resultOf(rssOf: (atH: number, router: string) => number, more: Partial<SoakResult> = {}): SoakResult {
  const samples: RouterSample[] = Array.from({ length: 240 }, (_, at) =>
    ["router-1", "router-2", "router-3"].map((router) => ({
      ...{ atMs: (at / 240) * msPerHour, router, rssMb: rssOf(at / 240, router), heapMb: 50 + (at % 7), handles: 30 },
      ...{ loopMaxMs: 20 + (at % 5), loopP99Ms: 12, journalMb: 1, facts: [] },
    })),
  ).flat();
  return {
    ...{ samples, counts: { ...createLoadCounts(), requests: 10, completed: 10, sessions: 2 }, digestsCompared: 5 },
    churn: { replaceEngine: 1, restartRouter: 2, killEngine: 3, killRouter: 4 },
    ...{ digestMismatches: [], settledMs: 12 },
    ...more,
  };
}

test("a run that stays as it is passes, and one that grows after its first quarter fails", () => {
  const calm = soakReport(
    resultOf((atH) => (atH < 0.2 ? 100 + atH * 200 : 150 + ((atH * 1_000) % 9))),
    plan,
  );
  expect(calm.failures).toEqual([]);
  expect(calm.metrics).toMatchObject({ digest_mismatches: 0, failed_requests: 0, settled_ms: 12, routers_killed: 4 });
  expect(Math.abs(calm.metrics.rss_slope_mb_per_h ?? 99)).toBeLessThan(5);
  const leaking = soakReport(
    resultOf((atH, router) => 150 + (router === "router-2" ? 60 * atH : 0)),
    plan,
  );
  expect(leaking.failures).toEqual([expect.stringMatching(/^rss_mb of router-2 grows by 60\.\d+ an hour/)]);
  expect(leaking.metrics.rss_slope_mb_per_h).toBeCloseTo(60, 0);
  // The last one begins anew all the time.
  expect(
    soakReport(
      resultOf((atH, router) => 150 + (router === "router-3" ? 60 * atH : 0)),
      plan,
    ).failures,
  ).toEqual([]);
});

test("what routers remember for twenty minutes may grow for twenty minutes, and what grows on after them fails", () => {
  const filling = (atH: number): number => 100 + 300 * Math.min(atH, 1 / 3);
  expect(soakReport(resultOf(filling), plan).failures).toEqual([]);
  expect(
    soakReport(
      resultOf((atH) => 100 + 300 * atH),
      plan,
    ).failures,
  ).toHaveLength(2);
});

test("connections that move from one router to another are no growth, and ones that come to all are", () => {
  const withHandles = (handlesOf: (atH: number, router: string) => number): SoakResult => {
    const result = resultOf(() => 150);
    const samples = result.samples.map((sample) => ({
      ...sample,
      handles: handlesOf(sample.atMs / msPerHour, sample.router),
    }));
    return { ...result, samples };
  };
  const moving = withHandles((atH, router) => Math.round(router === "router-1" ? 60 + 30 * atH : 60 - 30 * atH));
  expect(soakReport(moving, plan).failures).toEqual([]);
  const leaking = withHandles((atH, router) => Math.round(router === "router-1" ? 60 + 60 * atH : 60));
  expect(soakReport(leaking, plan).failures).toEqual([
    expect.stringMatching(/^handles of router-1 \+ router-2 grows by 60\.\d+ an hour/),
  ]);
});

test("what is lost or differs is a failure, and growth in a short run is none", () => {
  const counts = { ...createLoadCounts(), completed: 5, failed: 2, failures: ["first", "second"] };
  const digestMismatches = ["a at 1 5: one has x, two has y"];
  const bad = soakReport(
    resultOf(() => 150, { counts, digestMismatches, settledMs: undefined }),
    plan,
  );
  expect(bad.failures).toEqual([
    "2 requests were lost, the first: first",
    "digests differ 1 times: a at 1 5: one has x, two has y",
    "after the load the routers did not come to know the same",
  ]);
  const short = soakReport(
    resultOf((atH) => 100 + 900 * atH),
    { ...plan, durationMs: 1_799_999 },
  );
  expect([short.failures, short.warnings]).toEqual([[], ["slopes of a run below thirty minutes are not judged"]]);
  expect(
    soakReport(
      resultOf(() => 150, { counts: createLoadCounts() }),
      plan,
    ).failures,
  ).toEqual(["no request was answered"]);
});

test("the table has every figure and failure, and the plot a line for each router", () => {
  const report = soakReport(
    resultOf(() => 150, { settledMs: undefined }),
    plan,
  );
  const table = soakTable(report);
  for (const name of Object.keys(report.metrics)) expect(table).toContain(name);
  expect(report.failures).toEqual(["after the load the routers did not come to know the same"]);
  const plot = plotSoak(resultOf(() => 150).samples);
  expect(plot).toMatch(/^<svg/);
  for (const text of ["router-1", "router-2", "router-3", "Resident memory", "Journals"]) expect(plot).toContain(text);
});

test("times are read with their units, and what is none is refused by its flag", async () => {
  const param = duration({ help: "", standard: "30m", most: "24h" });
  const texts = [undefined, "500ms", "90s", "1.5m", "24h"];
  expect(texts.map((text) => param.read("--duration", text))).toEqual([1.8e6, 500, 9e4, 9e4, 8.64e7]);
  for (const wrong of ["", "5", "0s", "25h", "-1s", "1d", "s"]) {
    expect(() => param.read("--duration", wrong), wrong).toThrow("--duration must be a time such as");
  }
  await expect(soakSuite.run(["--routers", "17"], () => {})).rejects.toThrow("--routers must be");
});
