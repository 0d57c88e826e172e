import { describe, expect, test } from "vitest";
import type { EngineSignals } from "../../src/workers/index.ts";
import { type Answer, type Harness, healthy, modelsAnswer, startHarness, vllmPage } from "./fleet-harness.ts";

const numbersOf = (signals: EngineSignals): number[] => [
  signals.running,
  signals.waiting,
  signals.kvUse,
  signals.blockSize,
  signals.blockCount,
  signals.promptTokensTotal,
  signals.generationTokensTotal,
  signals.prefixQueries,
  signals.prefixHits,
  signals.inFlightAtScrape,
];

const expectUnknown = (signals: EngineSignals): void => {
  expect(numbersOf(signals).every(Number.isNaN), String(numbersOf(signals))).toBe(true);
  expect(signals.ageMs()).toBe(Number.POSITIVE_INFINITY);
};

const promptTotal = (tokens: number): Answer => ({ status: 200, body: `vllm:prompt_tokens_total ${tokens}\n` });

/** Lets time pass until this many scrapes of `path` have been sent. */
async function untilScrapes(harness: Harness, times: () => readonly number[], count: number): Promise<void> {
  while (times().length < count) await harness.time.advanceAsync(20);
}

test("an engine that is up is scraped at once, then about once a second", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  expect(harness.target("a").signals).toMatchObject({ dialect: "vllm", running: 0 });
  await harness.time.advanceAsync(60_000);
  const times = engine.times("/metrics");
  const gaps = times.slice(1).map((time, index) => time - times[index]!);
  expect(Math.min(...gaps)).toBeGreaterThanOrEqual(900);
  expect(Math.max(...gaps)).toBeLessThanOrEqual(1_100);
  expect(new Set(gaps.map((gap) => Math.round(gap))).size).toBeGreaterThan(20);
  expect(engine.seen.find(({ path }) => path === "/metrics")).toMatchObject({
    url: "http://a:8000/metrics",
    timeoutMs: 1_000,
    maxBytes: 4_194_304,
  });
});

test("an option that is undefined counts as missing", async () => {
  const harness = await startHarness({ scrape: { intervalMs: undefined } });
  const engine = harness.engine("a");
  await harness.apply(engine);
  await harness.time.advanceAsync(10_000);
  const scrapes = engine.times("/metrics").length;
  expect([scrapes >= 9, scrapes <= 12]).toEqual([true, true]);
});

test("an engine is scraped as often as its models' policies need it, from one scrape to the next", async () => {
  let everyMs: number | undefined = 50;
  const asked: string[][] = [];
  const metricsEveryMs = (models: readonly string[]): number | undefined => {
    asked.push([...models]);
    return everyMs;
  };
  const harness = await startHarness({}, 1, { metricsEveryMs });
  const engine = harness.engine("a");
  await harness.apply(engine);
  const scrapesIn = async (ms: number): Promise<number> => {
    const before = engine.times("/metrics").length;
    await harness.time.advanceAsync(ms);
    return engine.times("/metrics").length - before;
  };
  const often = await scrapesIn(2_000);
  expect(often).toBeGreaterThanOrEqual(36);
  expect(often).toBeLessThanOrEqual(45);
  expect(asked.at(-1)).toEqual(harness.record("a").models?.map(({ id }) => id));
  everyMs = undefined;
  await harness.time.advanceAsync(100);
  expect(await scrapesIn(10_000)).toBeLessThanOrEqual(12);
});

test("signals are unknown, not zero, before the first page, and where the page says nothing", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/metrics": { status: 200, body: vllmBody, afterMs: 300 } });
  await harness.apply(engine);
  expectUnknown(harness.target("a").signals);
  expect(harness.target("a").signals.dialect).toBeUndefined();
  await harness.time.advanceAsync(300);
  const { signals } = harness.target("a");
  expect(signals).toMatchObject({
    running: 4,
    kvUse: 0.5,
    dialect: "vllm",
    waiting: Number.NaN,
    blockSize: Number.NaN,
  });
});

const vllmBody = "vllm:num_requests_running 4\nvllm:kv_cache_usage_perc 0.5\n";

test("the age counts from the moment the scrape began", async () => {
  const harness = await startHarness();
  await harness.apply(harness.engine("a", {}, { "/metrics": { status: 200, body: vllmBody, afterMs: 300 } }));
  await harness.time.advanceAsync(300);
  expect(harness.target("a").signals.ageMs()).toBe(300);
  await harness.time.advanceAsync(150);
  expect(harness.target("a").signals.ageMs()).toBe(450);
});

test("the requests in flight are kept as of the moment the scrape began", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/metrics": { status: 200, body: vllmBody, afterMs: 300 } });
  await harness.apply(engine);
  await harness.time.advanceAsync(300);
  expect(harness.target("a").signals.inFlightAtScrape).toBe(0);
  const { load } = harness.target("a");
  const first = load.begin({ promptTokens: 1, expectedOutputTokens: 0 });
  await untilScrapes(harness, () => engine.times("/metrics"), 2);
  const second = load.begin({ promptTokens: 1, expectedOutputTokens: 0 });
  await harness.time.advanceAsync(300);
  expect(harness.target("a").signals.inFlightAtScrape).toBe(1);
  first.end();
  second.end();
});

test.each<[string, Answer, string]>([
  ["refused", "refused", "unreachable"],
  ["garbled", "garbled", "protocol"],
  ["a server error", { status: 500, body: vllmBody }, "status"],
  ["too long", { status: 200, body: vllmBody + "#".repeat(4_194_304) }, "protocol"],
  ["without a known name", { status: 200, body: "up 1\n" }, "absent"],
])("after three scrapes that are %s the signals are unknown", async (_, answer, outcome) => {
  const harness = await startHarness({ scrape: { absentIntervalMs: 1_000 } });
  const engine = harness.engine("a", {}, { "/metrics": { status: 200, body: vllmBody } });
  await harness.apply(engine);
  const { signals } = harness.target("a");
  engine.paths["/metrics"] = answer;
  engine.paths["/prometheus/metrics"] = answer;
  const failed = (): number => harness.meter.value("espalier_engine_metrics_scrapes_total", "a", outcome) ?? 0;
  while (failed() < 2) await harness.time.advanceAsync(20);
  expect(signals.running).toBe(4);
  while (failed() < 3) await harness.time.advanceAsync(20);
  expectUnknown(signals);
  expect(signals.dialect).toBe("vllm");
  expect(harness.record("a").state).toBe("up");
  engine.paths["/metrics"] = vllmPage(9);
  await harness.time.advanceAsync(2_500);
  expect(signals.running).toBe(9);
});

test("two failed scrapes in between never matter, however often", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/metrics": vllmPage(4) });
  await harness.apply(engine);
  const { signals } = harness.target("a");
  for (let round = 0; round < 4; round++) {
    const before = engine.times("/metrics").length;
    engine.paths["/metrics"] = "refused";
    await untilScrapes(harness, () => engine.times("/metrics"), before + 2);
    expect(signals.running).toBe(4);
    expect(signals.ageMs()).toBeGreaterThan(1_800);
    engine.paths["/metrics"] = vllmPage(4);
    await untilScrapes(harness, () => engine.times("/metrics"), before + 3);
    expect(signals.ageMs()).toBeLessThan(20);
  }
});

test.each(["late", "short"] as const)("scrapes that this router itself is %s with count for nothing", async (want) => {
  const harness = await startHarness({ scrape: { forgetAfterMs: 120_000 } });
  const engine = harness.engine("a", {}, { "/metrics": vllmPage(4) });
  await harness.apply(engine);
  const { signals } = harness.target("a");
  engine.paths["/metrics"] = want;
  await untilScrapes(harness, () => engine.times("/metrics"), 8);
  expect(signals.running).toBe(4);
  // Those that fail while the router has time count as ever.
  engine.paths["/metrics"] = "refused";
  await untilScrapes(harness, () => engine.times("/metrics"), 12);
  expectUnknown(signals);
});

test("a page that is slow to come is forgotten five seconds after it was asked for, not after it came", async () => {
  const harness = await startHarness({ scrape: { intervalMs: 60_000 } });
  const page: Answer = { status: 200, body: vllmBody, afterMs: 900 };
  await harness.apply(harness.engine("a", {}, { "/metrics": page }));
  await harness.time.advanceAsync(4_999);
  expect(harness.target("a").signals.running).toBe(4);
  await harness.time.advanceAsync(1);
  expectUnknown(harness.target("a").signals);
});

test("the interval runs from the start of one scrape to the start of the next", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/metrics": { status: 200, body: vllmBody, afterMs: 700 } });
  await harness.apply(engine);
  await harness.time.advanceAsync(20_000);
  const times = engine.times("/metrics");
  for (let i = 1; i < times.length; i++) expect(times[i]! - times[i - 1]!).toBeLessThanOrEqual(1_100);
});

test("a page that comes after the engine went down is not taken", async () => {
  const harness = await startHarness({ scrape: { timeoutMs: 30_000, forgetAfterMs: 90_000 } });
  const engine = harness.engine("a", {}, { "/metrics": { status: 200, body: vllmBody, afterMs: 20_000 } });
  await harness.apply(engine);
  engine.paths["/health"] = "refused";
  await harness.time.advanceAsync(25_000);
  expect(harness.record("a").state).toBe("down");
  expectUnknown(harness.target("a").signals);
  expect(harness.time.pendingCount).toBe(1);
});

test("an engine that comes back as another kind is looked for from the first path on", async () => {
  const harness = await startHarness();
  const page = { status: 200, body: "trtllm_num_requests_running 5\n" };
  const engine = harness.engine("a", {}, { "/metrics": { status: 404 }, "/prometheus/metrics": page });
  await harness.apply(engine);
  await harness.time.advanceAsync(2_000);
  expect(harness.target("a").signals.dialect).toBe("trtllm");
  engine.paths["/health"] = "refused";
  while (harness.record("a").state === "up") await harness.time.advanceAsync(50);
  delete engine.paths["/prometheus/metrics"];
  engine.paths["/metrics"] = vllmPage(3);
  engine.paths["/health"] = { status: 200 };
  while (harness.record("a").state !== "up") await harness.time.advanceAsync(50);
  expect(harness.target("a").signals).toMatchObject({ dialect: "vllm", running: 3 });
});

test("failures before an engine went down do not count after it is back", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/metrics": "refused" });
  await harness.apply(engine);
  await harness.time.advanceAsync(4_000);
  engine.paths["/health"] = "refused";
  while (harness.record("a").state === "up") await harness.time.advanceAsync(50);
  engine.paths["/metrics"] = vllmPage(3);
  engine.paths["/health"] = { status: 200 };
  while (harness.record("a").state !== "up") await harness.time.advanceAsync(50);
  engine.paths["/metrics"] = "refused";
  await harness.time.advanceAsync(2_300);
  expect(harness.target("a").signals.running).toBe(3);
});

test("signals five seconds old are unknown, whatever becomes of the scrapes", async () => {
  const harness = await startHarness({ scrape: { intervalMs: 60_000 } });
  await harness.apply(harness.engine("a", {}, { "/metrics": vllmPage(4) }));
  await harness.time.advanceAsync(4_999);
  expect(harness.target("a").signals.running).toBe(4);
  await harness.time.advanceAsync(1);
  expectUnknown(harness.target("a").signals);
});

test("an engine that goes down loses its signals at once, and is not scraped until it is up again", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/metrics": vllmPage(4) });
  await harness.apply(engine);
  engine.paths["/health"] = "refused";
  while (harness.record("a").state === "up") await harness.time.advanceAsync(20);
  expectUnknown(harness.target("a").signals);
  const scrapes = engine.times("/metrics").length;
  await harness.time.advanceAsync(30_000);
  expect(engine.times("/metrics")).toHaveLength(scrapes);
  engine.paths["/health"] = { status: 200 };
  while (harness.record("a").state !== "up") await harness.time.advanceAsync(20);
  expect(harness.target("a").signals.running).toBe(4);
});

test("trtllm-serve is found under its own path and then asked only there", async () => {
  const harness = await startHarness();
  const page = { status: 200, body: "trtllm_num_requests_running 5\n" };
  const engine = harness.engine("a", {}, { "/metrics": { status: 200, body: "[]" }, "/prometheus/metrics": page });
  await harness.apply(engine);
  await harness.time.advanceAsync(20_000);
  expect(harness.target("a").signals).toMatchObject({ dialect: "trtllm", running: 5 });
  expect(engine.times("/metrics")).toHaveLength(1);
  expect(engine.times("/prometheus/metrics").length).toBeGreaterThan(15);
});

// Its `/metrics` waits two seconds for statistics that an idle engine does not have, and a scrape ends after one: it was
// asked there for ever.
test("trtllm-serve is found under its own path also while it is idle, and its /metrics answers late", async () => {
  const harness = await startHarness();
  const late = { status: 200, body: "[]", afterMs: 2_000 };
  const page = { status: 200, body: "trtllm_num_requests_running 0\n" };
  const engine = harness.engine("a", {}, { "/metrics": late, "/prometheus/metrics": page });
  await harness.apply(engine);
  await harness.time.advanceAsync(20_000);
  expect(harness.target("a").signals).toMatchObject({ dialect: "trtllm", running: 0 });
  expect(engine.times("/metrics")).toHaveLength(1);
});

test("a page that comes late once is read at its path again, and no other is asked for it", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/metrics": vllmPage(3) });
  await harness.apply(engine);
  engine.paths["/metrics"] = "silent";
  await harness.time.advanceAsync(3_000);
  engine.paths["/metrics"] = vllmPage(4);
  await harness.time.advanceAsync(2_500);
  expect(harness.target("a").signals.running).toBe(4);
  expect(engine.times("/prometheus/metrics")).toHaveLength(0);
});

test("an engine whose first page comes late is read within seconds, though its other paths have none", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/metrics": "silent" });
  await harness.apply(engine);
  await harness.time.advanceAsync(4_000);
  engine.paths["/metrics"] = vllmPage(4);
  await harness.time.advanceAsync(4_000);
  expect(harness.target("a").signals.running).toBe(4);
});

test("an engine without metrics is asked every half minute, and used all the same", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/metrics": { status: 404 } });
  await harness.apply(engine);
  await harness.time.advanceAsync(120_000);
  expect(engine.times("/metrics").length).toBeLessThanOrEqual(5);
  expect(engine.times("/metrics").length).toBeGreaterThanOrEqual(4);
  expect(harness.target("a").usable).toBe(true);
  expectUnknown(harness.target("a").signals);
  engine.paths["/metrics"] = vllmPage(2);
  await harness.time.advanceAsync(33_000);
  expect(harness.target("a").signals.running).toBe(2);
  await harness.time.advanceAsync(10_000);
  expect(engine.times("/metrics").length).toBeGreaterThan(12);
});

test("the configured path is asked first", async () => {
  const harness = await startHarness({ scrape: { path: "/stats" } });
  const engine = harness.engine("a", {}, { "/stats": vllmPage(8) });
  await harness.apply(engine);
  expect(harness.target("a").signals.running).toBe(8);
  expect(engine.times("/metrics")).toEqual([]);
});

test("a slow metrics page delays neither health nor other engines", async () => {
  const harness = await startHarness();
  const slow = harness.engine("slow", {}, { "/metrics": "silent" });
  const quick = harness.engine("quick", {}, { "/metrics": vllmPage(1) });
  await harness.apply(slow, quick);
  await harness.time.advanceAsync(20_000);
  expect(harness.record("slow").state).toBe("up");
  expect(slow.times("/health").length).toBeGreaterThanOrEqual(10);
  expect(harness.target("quick").signals.ageMs()).toBeLessThan(1_200);
  const times = slow.times("/metrics");
  for (let i = 1; i < times.length; i++) expect(times[i]! - times[i - 1]!).toBeGreaterThanOrEqual(1_000);
});

test("malformed lines are counted, and the rest of the page counts", async () => {
  const harness = await startHarness();
  const body = "vllm:num_requests_running 4\nvllm:num_requests_waiting x\nvllm:kv_cache_usage_perc -1\n";
  await harness.apply(harness.engine("a", {}, { "/metrics": { status: 200, body } }));
  expect(harness.target("a").signals).toMatchObject({ running: 4, waiting: Number.NaN, kvUse: Number.NaN });
  expect(harness.meter.value("espalier_engine_metrics_malformed_lines_total", "a")).toBe(2);
  expect(harness.meter.value("espalier_engine_metrics_scrapes_total", "a", "ok")).toBe(1);
});

test("totals that go back mean another process, whose models are asked for at once", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/metrics": promptTotal(5_000) });
  await harness.apply(engine);
  await harness.time.advanceAsync(10_000);
  expect(engine.times("/v1/models")).toHaveLength(1);
  engine.paths["/metrics"] = promptTotal(5_001);
  await harness.time.advanceAsync(3_000);
  expect(engine.times("/v1/models")).toHaveLength(1);
  engine.paths["/metrics"] = promptTotal(12);
  await harness.time.advanceAsync(1_200);
  expect(engine.times("/v1/models")).toHaveLength(2);
  await harness.time.advanceAsync(5_000);
  expect(engine.times("/v1/models")).toHaveLength(2);
});

const vllmProcess = (startS: number, totals: readonly number[]): string =>
  `process_start_time_seconds ${startS}\n${totals.map((total, rank) => `vllm:prompt_tokens_total{engine="${rank}"} ${total}\n`).join("")}`;

/** The page has no totals before the first request. */
const sglangProcess = (_startS: number, totals: readonly number[]): string =>
  `sglang:num_running_reqs 0\n${totals.map((total) => (total > 0 ? `sglang:prompt_tokens_total ${total}\n` : "")).join("")}`;

// An engine that was away for more than 5 s kept what the router thought of its cache for ten minutes. Mechanism: totals
// were compared with signals, which are forgotten after three failed scrapes, and the health check took longer than that.
describe.each([
  ["vLLM", vllmProcess, 1],
  ["vLLM with two ranks", vllmProcess, 2],
  ["SGLang", sglangProcess, 1],
])("an engine restarted in place, as %s", (_, page, ranks) => {
  test.each([500, 5_000, 30_000, 120_000])("is seen to be restarted after %i ms, once", async (downMs) => {
    const harness = await startHarness();
    const of = (startS: number, total: number): Answer => ({
      status: 200,
      body: page(startS, Array<number>(ranks).fill(total)),
    });
    const engine = harness.engine("a", { ranks }, { "/metrics": of(1_795_227_093.11, 5_000) });
    const restarts: string[] = [];
    harness.fleet.onChange((change) => {
      if (change === "restarted") restarts.push(change);
    });
    await harness.apply(engine);
    await harness.time.advanceAsync(5_000);
    harness.target("a").adapters.sent("adapter");
    Object.assign(engine.paths, { "/health": "refused", "/metrics": "refused", "/v1/models": "refused" });
    await harness.time.advanceAsync(downMs);
    const restartedS = 1_795_227_093.11 + 5 + downMs / 1_000;
    Object.assign(engine.paths, { "/health": healthy, "/metrics": of(restartedS, 0), "/v1/models": modelsAnswer("m") });
    await harness.time.advanceAsync(20_000);
    engine.paths["/metrics"] = of(restartedS, 70);
    await harness.time.advanceAsync(20_000);
    expect(restarts).toHaveLength(1);
    expect(harness.target("a").adapters.loaded()).toEqual([]);
  });
});

test("a process with more behind it than the last one had is told by its start, and a start read from another clock is not", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/metrics": { status: 200, body: vllmProcess(1_000, [10]) } });
  let restarts = 0;
  harness.fleet.onChange((change) => {
    if (change === "restarted") restarts++;
  });
  await harness.apply(engine);
  engine.paths["/metrics"] = { status: 200, body: vllmProcess(1_000.9, [20]) };
  await harness.time.advanceAsync(3_000);
  expect(restarts).toBe(0);
  engine.paths["/metrics"] = { status: 200, body: vllmProcess(1_030, [5_000]) };
  await harness.time.advanceAsync(3_000);
  expect(restarts).toBe(1);
});

test("an engine that was away and is the same process is not restarted", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a", {}, { "/metrics": { status: 200, body: vllmProcess(1_000, [10]) } });
  let restarts = 0;
  harness.fleet.onChange((change) => {
    if (change === "restarted") restarts++;
  });
  await harness.apply(engine);
  Object.assign(engine.paths, { "/health": "silent", "/metrics": "silent" });
  await harness.time.advanceAsync(60_000);
  expect(harness.record("a").state).toBe("down");
  Object.assign(engine.paths, { "/health": healthy, "/metrics": { status: 200, body: vllmProcess(1_000, [10]) } });
  await harness.time.advanceAsync(20_000);
  expect([harness.record("a").state, restarts]).toEqual(["up", 0]);
});

test.each([
  ["whose page has counted nothing yet", sglangProcess(0, [0])],
  ["without metrics", undefined],
])("an engine %s is taken for restarted, once, when nothing had listened at its address", async (_, body) => {
  const harness = await startHarness();
  const page: Answer = body === undefined ? { status: 404 } : { status: 200, body };
  const engine = harness.engine("a", {}, { "/health": "refused", "/metrics": page });
  let restarts = 0;
  harness.fleet.onChange((change) => {
    if (change === "restarted") restarts++;
  });
  await harness.apply(engine);
  await harness.time.advanceAsync(20_000);
  engine.paths["/health"] = healthy;
  await harness.time.advanceAsync(20_000);
  expect([harness.record("a").state, restarts]).toEqual(["up", 0]);
  Object.assign(engine.paths, { "/health": "silent", "/metrics": "silent" });
  await harness.time.advanceAsync(20_000);
  Object.assign(engine.paths, { "/health": healthy, "/metrics": page });
  await harness.time.advanceAsync(20_000);
  expect(restarts).toBe(0);
  Object.assign(engine.paths, { "/health": "refused", "/metrics": "refused" });
  await harness.time.advanceAsync(20_000);
  Object.assign(engine.paths, { "/health": healthy, "/metrics": page });
  await harness.time.advanceAsync(60_000);
  expect([harness.record("a").state, restarts]).toEqual(["up", 1]);
});

test("requests that no router has reported count as other clients' from the second scrape on", async () => {
  const harness = await startHarness();
  const pageOf = (running: number): Answer => ({
    status: 200,
    body: `vllm:num_requests_running ${running}\nvllm:num_requests_waiting 0\n`,
  });
  const engine = harness.engine("a", {}, { "/metrics": pageOf(4) });
  await harness.apply(engine);
  const { signals } = harness.target("a");
  const others = [signals.running - signals.inFlightAtScrape];
  for (const running of [9, 12, 5]) {
    engine.paths["/metrics"] = pageOf(running);
    await untilScrapes(harness, () => engine.times("/metrics"), engine.times("/metrics").length + 1);
    others.push(signals.running - signals.inFlightAtScrape);
  }
  // The first page alone is believed. 4 of the second page's 9 were there before, and 9 of the third page's 12.
  expect(others).toEqual([4, 4, 9, 5]);
});
