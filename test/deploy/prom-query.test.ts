import { expect, test } from "vitest";
import { checkQuery } from "./prom-query.ts";

test("a query that reads what is there has no problems, and says what it reads", () => {
  const query =
    'histogram_quantile(0.99, sum by (le, model) (rate(espalier_time_to_first_byte_seconds_bucket{job=~"a"}[5m]))) / on () max(espalier_ready)';
  const { problems, metrics } = checkQuery(query);
  expect(problems).toEqual([]);
  expect([...metrics].sort()).toEqual(["espalier_ready", "espalier_time_to_first_byte_seconds"]);
});

test.each([
  ["sum(rate(espalier_requests_total[5m])", /^is no PromQL/],
  ["rate(espalier_request_total[5m])", "espalier_request_total does not exist"],
  ['rate(espalier_requests_total{code="429"}[5m])', "espalier_requests_total has no label code"],
  ["sum by (tenant) (rate(espalier_requests_total[5m]))", "espalier_requests_total has no label tenant"],
  ["sum by (le) (rate(espalier_requests_total[5m]))", "espalier_requests_total has no label le"],
  ["espalier_requests_total", "espalier_requests_total only grows: read its rate"],
  ["rate(espalier_ready[5m])", "espalier_ready is a gauge, which has no rate"],
  ["rate(espalier_overhead_seconds[5m])", "espalier_overhead_seconds is a histogram: read its parts"],
  ["espalier_overhead_seconds_sum", "espalier_overhead_seconds_sum only grows: read its rate"],
  ["rate(espalier_requests_total_bucket[5m])", "espalier_requests_total_bucket does not exist"],
  [
    "histogram_quantile(0.5, sum by (job) (rate(espalier_overhead_seconds_bucket[5m])))",
    "a quantile needs the label le",
  ],
  ["histogram_quantile(0.5, sum by (le) (rate(espalier_overhead_seconds_sum[5m])))", "a quantile is read from buckets"],
])("%s is refused", (query, problem) => {
  const { problems } = checkQuery(query);
  expect(problems).toContainEqual(typeof problem === "string" ? problem : expect.stringMatching(problem));
});

test("what a recording rule makes has the labels that it kept", () => {
  const recorded = new Map([["job:espalier_requests:rate5m", ["job"]]]);
  expect(checkQuery("job:espalier_requests:rate5m > 1", recorded).problems).toEqual([]);
  expect(checkQuery('job:espalier_requests:rate5m{model="x"}', recorded).problems).toEqual([
    "job:espalier_requests:rate5m has no label model",
  ]);
});
