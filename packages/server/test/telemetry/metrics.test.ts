import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { createMetrics } from "../../src/telemetry/index.ts";
import { sampleOf } from "./exposition.ts";

const create = () => createMetrics({ processMetrics: false });

test("a counter adds up per label set", async () => {
  const metrics = create();
  const requests = metrics.meter.counter("espalier_requests_total", "Requests.", ["engine", "status"]);
  requests.series("a", "200").add();
  requests.series("a", "200").add(2);
  requests.series("b", "503").add(0.5);
  expect(await sampleOf(metrics, 'espalier_requests_total{engine="a",status="200"}')).toBe(3);
  expect(await sampleOf(metrics, 'espalier_requests_total{engine="b",status="503"}')).toBe(0.5);
});

test("a gauge shows its latest value, negative ones included", async () => {
  const metrics = create();
  const depth = metrics.meter.gauge("espalier_queue_depth", "Depth.", ["pool"]);
  depth.series("p").set(7);
  depth.series("p").set(-1.5);
  expect(await sampleOf(metrics, 'espalier_queue_depth{pool="p"}')).toBe(-1.5);
});

test("a histogram counts a value on a bound into the bucket of that bound", async () => {
  const metrics = create();
  const seconds = metrics.meter.histogram("espalier_wait_seconds", "Wait.", [0.1, 1, 10], ["engine"]);
  for (const value of [0.1, 0.1001, 1, 10, 10.5]) seconds.series("a").observe(value);
  const { body } = await metrics.render();
  expect(body.split("\n").filter((line) => line.startsWith("espalier_wait_seconds"))).toEqual([
    'espalier_wait_seconds_bucket{engine="a",le="0.1"} 1',
    'espalier_wait_seconds_bucket{engine="a",le="1"} 3',
    'espalier_wait_seconds_bucket{engine="a",le="10"} 4',
    'espalier_wait_seconds_bucket{engine="a",le="+Inf"} 5',
    'espalier_wait_seconds_sum{engine="a"} 21.7001',
    'espalier_wait_seconds_count{engine="a"} 5',
  ]);
});

test("what a histogram prints agrees with a count made by hand, for random values", async () => {
  const random = createSeededRandom(20_240_601);
  const buckets = [0.05, 0.25, 0.5, 0.9];
  const metrics = create();
  const series = metrics.meter.histogram("espalier_draw_ratio", "Draws.", buckets).series();
  const values = Array.from({ length: 2_000 }, () => random.float());
  for (const value of values) series.observe(value);
  for (const bound of buckets) {
    const expected = values.filter((value) => value <= bound).length;
    expect(await sampleOf(metrics, `espalier_draw_ratio_bucket{le="${bound}"}`)).toBe(expected);
  }
  expect(await sampleOf(metrics, "espalier_draw_ratio_count")).toBe(2_000);
  const sum = values.reduce((total, value) => total + value, 0);
  expect(await sampleOf(metrics, "espalier_draw_ratio_sum")).toBeCloseTo(sum, 6);
});

test("a metric without labels is there, at zero, before its first use", async () => {
  const metrics = create();
  metrics.meter.counter("espalier_drains_total", "Drains.");
  metrics.meter.gauge("espalier_ready", "Ready.");
  metrics.meter.histogram("espalier_lag_seconds", "Lag.", [1]);
  expect(await sampleOf(metrics, "espalier_drains_total")).toBe(0);
  expect(await sampleOf(metrics, "espalier_ready")).toBe(0);
  expect(await sampleOf(metrics, "espalier_lag_seconds_count")).toBe(0);
});

test("the same label values give the same handle, other values another one", () => {
  const { meter } = create();
  const metric = meter.counter("espalier_hits_total", "Hits.", ["engine", "tier"]);
  expect(metric.series("a", "gpu")).toBe(metric.series("a", "gpu"));
  expect(metric.series("a", "gpu")).not.toBe(metric.series("gpu", "a"));
});

test("label values that look like others once joined stay apart", async () => {
  const metrics = create();
  const metric = metrics.meter.counter("espalier_pairs_total", "Pairs.", ["one", "two"]);
  metric.series("a", "1:b").add(1);
  metric.series("a1:", "b").add(10);
  metric.series("a\u0000", "b").add(100);
  metric.series("a", "\u0000b").add(1_000);
  expect(await sampleOf(metrics, 'espalier_pairs_total{one="a",two="1:b"}')).toBe(1);
  expect(await sampleOf(metrics, 'espalier_pairs_total{one="a1:",two="b"}')).toBe(10);
  expect(await sampleOf(metrics, 'espalier_pairs_total{one="a\u0000",two="b"}')).toBe(100);
  expect(await sampleOf(metrics, 'espalier_pairs_total{one="a",two="\u0000b"}')).toBe(1_000);
});

test("a removed series leaves the exposition and starts again from zero", async () => {
  const metrics = create();
  const metric = metrics.meter.counter("espalier_bytes_total", "Bytes.", ["engine"]);
  metric.series("gone").add(5);
  metric.series("stays").add(6);
  metric.forget("engine", "gone");
  metric.forget("engine", "never-was");
  metric.forget("pool", "stays");
  expect(await sampleOf(metrics, 'espalier_bytes_total{engine="gone"}')).toBeUndefined();
  expect(await sampleOf(metrics, 'espalier_bytes_total{engine="stays"}')).toBe(6);
  metric.series("gone").add(1);
  expect(await sampleOf(metrics, 'espalier_bytes_total{engine="gone"}')).toBe(1);
});

test("registering again with the same description gives the same metric", async () => {
  const metrics = create();
  const counter = () => metrics.meter.counter("espalier_twice_total", "Twice.", ["engine"]);
  expect(counter()).toBe(counter());
  const histogram = () => metrics.meter.histogram("espalier_twice_seconds", "Twice.", [1, 2]);
  expect(histogram()).toBe(histogram());
});

const base = { help: "A clash.", labels: ["engine"], buckets: [1, 2] };

test.each([
  ["another help", { ...base, help: "Another." }],
  ["other labels", { ...base, labels: ["pool"] }],
  ["more labels", { ...base, labels: ["engine", "pool"] }],
  ["other buckets", { ...base, buckets: [1, 3] }],
])("registering again with %s throws", (_, other) => {
  const { meter } = create();
  const register = ({ help, buckets, labels }: typeof base) => meter.histogram("espalier_clash", help, buckets, labels);
  register(base);
  expect(() => register(other)).toThrow("espalier_clash is registered already");
});

test("registering again as another type throws", () => {
  const { meter } = create();
  meter.counter("espalier_kind", "Kind.");
  expect(() => meter.gauge("espalier_kind", "Kind.")).toThrow("espalier_kind is registered already");
});

test.each<readonly [string, { name: string; help: string; labels?: readonly string[] }, string]>([
  ["a foreign prefix", { name: "router_requests_total", help: "x" }, "router_requests_total"],
  ["upper case", { name: "espalier_Requests", help: "x" }, "espalier_Requests"],
  ["a line break", { name: "espalier_a\nb", help: "x" }, "lower-case"],
  ["no help", { name: "espalier_a", help: " " }, "no help text"],
  ["a label that is no word", { name: "espalier_a", help: "x", labels: ["engine-id"] }, "engine-id"],
  ["a label with reserved underscores", { name: "espalier_a", help: "x", labels: ["__name__"] }, "__name__"],
  ["a label twice", { name: "espalier_a", help: "x", labels: ["engine", "engine"] }, "twice"],
])("a description with %s is refused", (_, { name, help, labels }, message) => {
  const { meter } = create();
  expect(() => meter.counter(name, help, labels)).toThrow(new RegExp(message));
});

test.each([
  ["no buckets", []],
  ["equal buckets", [1, 1]],
  ["descending buckets", [2, 1]],
  ["an infinite bucket", [1, Number.POSITIVE_INFINITY]],
  ["a bucket that is no number", [Number.NaN]],
])("a histogram with %s is refused", (_, buckets) => {
  const { meter } = create();
  expect(() => meter.histogram("espalier_a_seconds", "x", buckets)).toThrow("not ascending finite");
});

test("a histogram cannot have a label le, which its buckets use", () => {
  const { meter } = create();
  expect(() => meter.histogram("espalier_a_seconds", "x", [1], ["le"])).toThrow("reserved");
});

test("the number of label values has to be the number of labels", () => {
  const { meter } = create();
  const metric = meter.counter("espalier_a_total", "x", ["engine"]);
  expect(() => metric.series()).toThrow("takes 1 label values, not 0");
  expect(() => metric.series("a", "b")).toThrow("takes 1 label values, not 2");
});

test("values that would spoil a total are left out and counted, not thrown", async () => {
  const metrics = create();
  const counter = metrics.meter.counter("espalier_a_total", "x").series();
  const gauge = metrics.meter.gauge("espalier_b", "x").series();
  const histogram = metrics.meter.histogram("espalier_c_seconds", "x", [1]).series();
  counter.add(2);
  gauge.set(2);
  histogram.observe(2);
  for (const wrong of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
    counter.add(wrong);
    gauge.set(wrong);
    histogram.observe(wrong);
  }
  counter.add(-1);
  expect(await sampleOf(metrics, "espalier_a_total")).toBe(2);
  expect(await sampleOf(metrics, "espalier_b")).toBe(2);
  expect(await sampleOf(metrics, "espalier_c_seconds_sum")).toBe(2);
  expect(await sampleOf(metrics, "espalier_c_seconds_count")).toBe(1);
  expect(await sampleOf(metrics, 'espalier_metrics_refused_total{metric="espalier_a_total"}')).toBe(4);
  expect(await sampleOf(metrics, 'espalier_metrics_refused_total{metric="espalier_b"}')).toBe(3);
  expect(await sampleOf(metrics, 'espalier_metrics_refused_total{metric="espalier_c_seconds"}')).toBe(3);
});

test("two sets of metrics in one process do not meet", async () => {
  const one = create();
  const other = create();
  one.meter.counter("espalier_a_total", "x").series().add(3);
  other.meter.counter("espalier_a_total", "Another text.").series().add(4);
  expect(await sampleOf(one, "espalier_a_total")).toBe(3);
  expect(await sampleOf(other, "espalier_a_total")).toBe(4);
});

test("label values cannot break out of their quotes", async () => {
  const metrics = create();
  const metric = metrics.meter.counter("espalier_a_total", "x", ["model"]);
  metric.series('x"} 1\nespalier_forged_total 9\\').add();
  const { body } = await metrics.render();
  expect(body).toContain('espalier_a_total{model="x\\"} 1\\nespalier_forged_total 9\\\\"} 1');
  expect(body.split("\n").some((line) => line.startsWith("espalier_forged_total"))).toBe(false);
});
