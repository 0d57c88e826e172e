import { expect, test } from "vitest";
import { describeEngine } from "../../src/workers/index.ts";
import { createHarness, startHarness } from "./fleet-harness.ts";

test("an engine has its series from the moment it is known, and none once it is removed", async () => {
  const harness = createHarness();
  const a = harness.engine("a");
  const b = harness.engine("b", {}, { "/health": "silent" });
  harness.fleet.apply([a.spec, b.spec]);
  expect(harness.meter.names).toEqual([
    "espalier_engine_asleep_ranks{a}",
    "espalier_engine_asleep_ranks{b}",
    "espalier_engine_breaker_overruled{a}",
    "espalier_engine_breaker_overruled{b}",
    "espalier_engine_breaker_state{a}",
    "espalier_engine_breaker_state{b}",
    "espalier_engine_health_overruled{a}",
    "espalier_engine_health_overruled{b}",
    "espalier_engine_oldest_wait_seconds{a}",
    "espalier_engine_oldest_wait_seconds{b}",
    "espalier_engine_requests_in_flight{a}",
    "espalier_engine_requests_in_flight{b}",
    "espalier_engine_unresponsive_seconds{a}",
    "espalier_engine_unresponsive_seconds{b}",
    "espalier_engine_up{a}",
    "espalier_engine_up{b}",
  ]);
  await harness.fleet.start();
  await harness.time.advanceAsync(10_000);
  harness.fleet.apply([b.spec]);
  await harness.time.advanceAsync(10_000);
  expect(harness.meter.names).toEqual([
    "espalier_engine_asleep_ranks{b}",
    "espalier_engine_breaker_overruled{b}",
    "espalier_engine_breaker_state{b}",
    "espalier_engine_health_overruled{b}",
    "espalier_engine_health_probes_total{b,timeout}",
    "espalier_engine_oldest_wait_seconds{b}",
    "espalier_engine_requests_in_flight{b}",
    "espalier_engine_unresponsive_seconds{b}",
    "espalier_engine_up{b}",
  ]);
  harness.fleet.apply([]);
  expect(harness.meter.names).toEqual([]);
});

test("every kind of series goes with its engine", async () => {
  const harness = await startHarness({ scrape: { absentIntervalMs: 500 } });
  const malformed = { status: 200, body: "vllm:num_requests_running x\n" };
  const engine = harness.engine("a", {}, { "/metrics": malformed });
  await harness.apply(engine);
  for (const answer of [{ status: 404 }, { status: 500 }, "refused", "garbled", "silent"] as const) {
    engine.paths["/metrics"] = answer;
    engine.paths["/prometheus/metrics"] = answer;
    await harness.time.advanceAsync(3_000);
  }
  for (const answer of [{ status: 500 }, "refused", "garbled", "silent"] as const) {
    engine.paths["/health"] = answer;
    await harness.time.advanceAsync(4_000);
  }
  const names = harness.meter.names.map((series) => series.replace(/\{.*/, ""));
  expect(names.filter((name) => name === "espalier_engine_metrics_scrapes_total")).toHaveLength(6);
  expect(names.filter((name) => name === "espalier_engine_health_probes_total")).toHaveLength(5);
  expect(names).toContain("espalier_engine_metrics_malformed_lines_total");
  harness.fleet.apply([]);
  expect(harness.meter.names).toEqual([]);
});

test("an engine back from removal shows the breaker it had", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  const ticket = harness.target("a").load.begin({ promptTokens: 1, expectedOutputTokens: 0 });
  for (let i = 0; i < 5; i++) harness.record("a").breaker.begin()!.failure("test");
  harness.fleet.apply([]);
  await harness.apply(engine);
  expect(harness.meter.value("espalier_engine_breaker_state", "a")).toBe(2);
  expect(harness.target("a").usable).toBe(false);
  await harness.time.advanceAsync(2_000);
  expect(harness.meter.value("espalier_engine_breaker_state", "a")).toBe(1);
  expect(harness.target("a").usable).toBe(true);
  ticket.end();
});

test("no series comes back when a request on a removed engine ends or fails", async () => {
  const harness = await startHarness();
  await harness.apply(harness.engine("a"));
  const { load } = harness.target("a");
  const { breaker } = harness.record("a");
  const tickets = [1, 2].map(() => load.begin({ promptTokens: 1, expectedOutputTokens: 1 }));
  const permits = [1, 2, 3, 4, 5].map(() => breaker.begin()!);
  const record = harness.record("a");
  harness.fleet.apply([]);
  tickets[0]!.end();
  for (const permit of permits) permit.failure("upstream_reset");
  expect(record.breaker.state).toBe("open");
  await harness.time.advanceAsync(10_000);
  expect(harness.meter.names).toEqual([]);
  tickets[1]!.end();
  expect(harness.meter.names).toEqual([]);
  expect(harness.time.pendingCount).toBe(0);
});

test("restarts are counted by engine", async () => {
  const harness = await startHarness();
  const page = (startedS: number) => ({
    status: 200,
    body: `vllm:num_requests_running 0\nprocess_start_time_seconds ${startedS}\n`,
  });
  const engine = harness.engine("a", {}, { "/metrics": page(1_000) });
  await harness.apply(engine);
  expect(harness.meter.value("espalier_engine_restarts_total", "a")).toBeUndefined();
  for (const startedS of [2_000, 3_000]) {
    engine.paths["/metrics"] = page(startedS);
    await harness.time.advanceAsync(3_000);
  }
  expect(harness.meter.value("espalier_engine_restarts_total", "a")).toBe(2);
  expect(describeEngine(harness.record("a")).restarts).toBe(2);
});

test("the gauges follow the engine", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  harness.fleet.apply([engine.spec]);
  const gauge = (name: string): number | undefined => harness.meter.value(`espalier_engine_${name}`, "a");
  expect(gauge("up")).toBe(0);
  await harness.time.advanceAsync(0);
  expect(gauge("up")).toBe(1);
  const tickets = [1, 2, 3].map(() => harness.target("a").load.begin({ promptTokens: 1, expectedOutputTokens: 1 }));
  expect(gauge("requests_in_flight")).toBe(3);
  for (const ticket of tickets) ticket.end();
  expect(gauge("requests_in_flight")).toBe(0);
  engine.paths["/health"] = "refused";
  await harness.time.advanceAsync(8_000);
  expect(gauge("up")).toBe(0);
});

test("probes and scrapes are counted by outcome", async () => {
  const harness = await startHarness();
  const engine = harness.engine("a");
  await harness.apply(engine);
  const probes = (outcome: string): number | undefined =>
    harness.meter.value("espalier_engine_health_probes_total", "a", outcome);
  expect(probes("ok")).toBe(1);
  for (const [outcome, answer] of [
    ["unreachable", "refused"],
    ["timeout", "silent"],
    ["protocol", "garbled"],
    ["status", { status: 500 }],
  ] as const) {
    engine.paths["/health"] = answer;
    while (probes(outcome) === undefined) await harness.time.advanceAsync(50);
  }
  engine.paths["/metrics"] = { status: 404 };
  engine.paths["/health"] = { status: 200 };
  await harness.time.advanceAsync(3_000);
  expect(harness.meter.value("espalier_engine_metrics_scrapes_total", "a", "absent")).toBeGreaterThanOrEqual(1);
});

test("an engine is described as plain JSON", async () => {
  const harness = await startHarness();
  const body = 'vllm:num_requests_running 3\nvllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1\n';
  const engine = harness.engine(
    "a",
    {
      ...{ role: "decode", weight: 2, labels: { zone: "z1" }, region: "eu" },
      kvTransfer: { protocol: "nixl", host: undefined, port: undefined },
    },
    { "/metrics": { status: 200, body } },
  );
  await harness.apply(engine);
  const ticket = harness.target("a").load.begin({ promptTokens: 40, expectedOutputTokens: 10 });
  harness.target("a").load.begin({ promptTokens: 5, expectedOutputTokens: 0 });
  ticket.progress(3);
  await harness.time.advanceAsync(400);
  const description = describeEngine(harness.record("a"));
  expect(JSON.parse(JSON.stringify(description))).toEqual(description);
  expect(description).toEqual({
    id: "a",
    url: "http://a:8000",
    state: "up",
    reason: "healthy",
    since: "2023-11-14T22:13:20.000Z",
    draining: false,
    paused: false,
    models: ["m"],
    role: "decode",
    kv_transfer: "nixl",
    kv_pull: null,
    weight: 2,
    labels: { zone: "z1" },
    region: "eu",
    network_ms: null,
    breaker: { state: "closed", reason: "new", overruled: false },
    health: {
      last_outcome: "ok",
      consecutive_failures: 0,
      consecutive_successes: expect.any(Number),
      overruled: false,
    },
    restarts: 0,
    oldest_wait_ms: null,
    unresponsive_ms: null,
    last_minute: { first_tokens: 0, ttft_ms: null, tpot_ms: null },
    targets: [
      {
        key: "a",
        usable: true,
        asleep: false,
        load: { in_flight: 2, pending_prefill_tokens: 5, decode_tokens: 43, outstanding_output_tokens: 7 },
        signals: {
          dialect: "vllm",
          age_ms: 400,
          running: 3,
          waiting: null,
          kv_use: null,
          block_size: 16,
          block_count: 99,
          prompt_tokens_total: null,
          generation_tokens_total: null,
          prefix_queries: null,
          prefix_hits: null,
        },
        adapters: null,
      },
    ],
  });
});

test("what is not known of an engine is null in its description", () => {
  const harness = createHarness();
  harness.fleet.apply([harness.engine("a").spec]);
  const description = describeEngine(harness.record("a"));
  expect(description).toMatchObject({ state: "starting", reason: "new", models: null, region: null, network_ms: null });
  expect(description.health).toEqual({
    last_outcome: null,
    consecutive_failures: 0,
    consecutive_successes: 0,
    overruled: false,
  });
  expect(new Set(Object.values(description.targets[0]!.signals))).toEqual(new Set([null]));
});

test("a description is a copy", () => {
  const harness = createHarness();
  harness.fleet.apply([harness.engine("a", { labels: { zone: "z1" }, models: ["m"] }).spec]);
  const description = describeEngine(harness.record("a"));
  (description.labels as Record<string, string>).zone = "changed";
  (description.models as string[]).push("changed");
  expect(harness.record("a").labels).toEqual({ zone: "z1" });
  expect(harness.record("a").models).toHaveLength(1);
});
