import { type Scheduler, systemScheduler } from "@espalier/core";
import { expect, test } from "vitest";
import { createMetrics } from "../../src/telemetry/index.ts";
import { sampleOf, seriesCountOf } from "./exposition.ts";

test("the exposition is Prometheus text with help and type before the series", async () => {
  const metrics = createMetrics({ processMetrics: false });
  metrics.meter.counter("espalier_a_total", "Counts a.\nIn two lines.").series().add(2);
  const { contentType, body } = await metrics.render();
  expect(contentType).toBe("text/plain; version=0.0.4; charset=utf-8");
  expect(body).toContain(
    "# HELP espalier_a_total Counts a.\\nIn two lines.\n# TYPE espalier_a_total counter\nespalier_a_total 2\n",
  );
  expect(body.endsWith("\n")).toBe(true);
});

test("every line of the exposition is a comment, a sample or blank", async () => {
  const metrics = createMetrics();
  metrics.meter.histogram("espalier_a_seconds", "A.", [0.5], ["b"]).series("c").observe(1);
  const { body } = await metrics.render();
  const wrong = body
    .split("\n")
    .filter((line) => line !== "" && !/^(# (HELP|TYPE) .+|[a-z_][a-z0-9_]*(\{.*\})? [-+0-9.eNaInf]+)$/.test(line));
  expect(wrong).toEqual([]);
});

test("process metrics are included unless they are turned off", async () => {
  const names = (await createMetrics().render()).body;
  expect(names).toMatch(/^process_cpu_seconds_total /m);
  expect(names).toMatch(/^nodejs_eventloop_lag_p99_seconds /m);
  expect(names).toMatch(/^nodejs_heap_size_used_bytes /m);
  expect((await createMetrics({ processMetrics: false }).render()).body).not.toMatch(/^(process|nodejs)_/m);
});

test("the catalogue lists every metric once, sorted, with its labels in order", () => {
  const metrics = createMetrics({ processMetrics: false });
  metrics.meter.gauge("espalier_z", "Z.", ["engine", "a"]);
  metrics.meter.histogram("espalier_b_seconds", "B.", [1]);
  metrics.meter.gauge("espalier_z", "Z.", ["engine", "a"]);
  expect(metrics.describe()).toEqual([
    { name: "espalier_b_seconds", help: "B.", type: "histogram", labels: [] },
    {
      name: "espalier_metrics_overflow_total",
      help: expect.stringContaining("Label sets"),
      type: "counter",
      labels: ["metric"],
    },
    {
      name: "espalier_metrics_refused_total",
      help: expect.stringContaining("not finite"),
      type: "counter",
      labels: ["metric"],
    },
    { name: "espalier_z", help: "Z.", type: "gauge", labels: ["engine", "a"] },
  ]);
});

test("the catalogue includes the metrics of the process, in the same shape", () => {
  const found = createMetrics()
    .describe()
    .find(({ name }) => name === "nodejs_gc_duration_seconds");
  expect(found).toEqual({
    name: "nodejs_gc_duration_seconds",
    help: expect.stringContaining("Garbage collection"),
    type: "histogram",
    labels: ["kind"],
  });
});

test("label sets past the limit share one series, and its handle", async () => {
  const metrics = createMetrics({ processMetrics: false, maxSeriesPerMetric: 3 });
  const metric = metrics.meter.counter("espalier_a_total", "A.", ["engine", "model"]);
  for (const engine of ["e1", "e2", "e3"]) metric.series(engine, "m").add();
  expect(await sampleOf(metrics, 'espalier_metrics_overflow_total{metric="espalier_a_total"}')).toBeUndefined();
  metric.series("e4", "m").add(10);
  metric.series("e5", "n").add(100);
  expect(metric.series("e4", "m")).toBe(metric.series("e6", "o"));
  expect(await seriesCountOf(metrics, "espalier_a_total")).toBe(4);
  expect(await sampleOf(metrics, 'espalier_a_total{engine="other",model="other"}')).toBe(110);
  expect(await sampleOf(metrics, 'espalier_metrics_overflow_total{metric="espalier_a_total"}')).toBe(4);
  metric.series("e1", "m").add();
  expect(await sampleOf(metrics, 'espalier_a_total{engine="e1",model="m"}')).toBe(2);
});

test("the default limit is a thousand series per metric", async () => {
  const metrics = createMetrics({ processMetrics: false });
  const metric = metrics.meter.gauge("espalier_a", "A.", ["engine"]);
  for (let engine = 0; engine < 1_000; engine++) metric.series(`e${engine}`).set(1);
  expect(await sampleOf(metrics, 'espalier_a{engine="other"}')).toBeUndefined();
  metric.series("e1000").set(7);
  expect(await sampleOf(metrics, 'espalier_a{engine="other"}')).toBe(7);
  expect(await seriesCountOf(metrics, "espalier_a")).toBe(1_001);
});

test("removing a series makes room for another one", async () => {
  const metrics = createMetrics({ processMetrics: false, maxSeriesPerMetric: 1 });
  const metric = metrics.meter.gauge("espalier_a", "A.", ["engine"]);
  metric.series("old").set(1);
  metric.series("early").set(2);
  metric.forget("engine", "old");
  metric.series("new").set(3);
  expect(await sampleOf(metrics, 'espalier_a{engine="new"}')).toBe(3);
  expect(await sampleOf(metrics, 'espalier_a{engine="other"}')).toBe(2);
});

test("a series that is really labelled other takes no room of the limit", async () => {
  const metrics = createMetrics({ processMetrics: false, maxSeriesPerMetric: 1 });
  const metric = metrics.meter.gauge("espalier_a", "A.", ["engine"]);
  metric.series("other").set(1);
  metric.series("first").set(2);
  expect(await sampleOf(metrics, 'espalier_a{engine="first"}')).toBe(2);
});

test("many overflowing metrics are counted one by one, although the count has that many label sets itself", async () => {
  const metrics = createMetrics({ processMetrics: false, maxSeriesPerMetric: 1 });
  for (const name of ["espalier_a", "espalier_b", "espalier_c"]) {
    const metric = metrics.meter.gauge(name, "x", ["engine"]);
    metric.series("fits").set(1);
    metric.series("does-not").set(1);
  }
  expect(await seriesCountOf(metrics, "espalier_metrics_overflow_total")).toBe(3);
});

test("a label value is kept up to 200 characters, so that a long model name cannot fill the memory", async () => {
  const metrics = createMetrics({ processMetrics: false });
  const metric = metrics.meter.counter("espalier_a_total", "A.", ["model"]);
  metric.series("m".repeat(200)).add(1);
  metric.series("m".repeat(201)).add(10);
  expect(await seriesCountOf(metrics, "espalier_a_total")).toBe(1);
  expect(await sampleOf(metrics, `espalier_a_total{model="${"m".repeat(200)}"}`)).toBe(11);
  metric.forget("model", "m".repeat(300));
  expect(await seriesCountOf(metrics, "espalier_a_total")).toBe(0);
});

test("series that come and go while an exposition is made do not disturb it", async () => {
  const metrics = createMetrics({ processMetrics: false });
  const kept = metrics.meter.gauge("espalier_z_kept", "Z.", ["engine"]);
  const fleeting = metrics.meter.gauge("espalier_a", "A.", ["engine"]);
  kept.series("stays").set(1);
  fleeting.series("goes").set(2);
  const rendering = metrics.render();
  fleeting.forget("engine", "goes");
  fleeting.series("comes").set(3);
  kept.series("stays").set(4);
  metrics.meter.counter("espalier_late_total", "Late.");
  const { body } = await rendering;
  expect(body).toContain('espalier_z_kept{engine="stays"}');
  expect((await metrics.render()).body).toMatch(/espalier_a\{engine="comes"\} 3[\s\S]*espalier_late_total 0/);
});

test("other work runs after each metric whose text is large, and only after those", async () => {
  const delaysMs: number[] = [];
  const scheduler: Scheduler = {
    ...systemScheduler,
    after(delayMs, task) {
      delaysMs.push(delayMs);
      return systemScheduler.after(delayMs, task);
    },
  };
  const metrics = createMetrics({ processMetrics: false, scheduler });
  const small = metrics.meter.gauge("espalier_small", "S.", ["engine"]);
  for (let engine = 0; engine < 100; engine++) small.series(`e${engine}`).set(1);
  await metrics.render();
  expect(delaysMs).toEqual([]);
  for (const name of ["espalier_large", "espalier_larger"]) {
    const large = metrics.meter.gauge(name, "L.", ["engine"]);
    for (let engine = 0; engine < 1_000; engine++) large.series(`${"e".repeat(60)}${engine}`).set(1);
  }
  await metrics.render();
  expect(delaysMs).toEqual([0, 0]);
});
