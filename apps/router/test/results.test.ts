import type { RequestResult } from "@espalier/simulator";
import { expect, test } from "vitest";
import { describeFailures, renderResults } from "../src/replay/replay-results.ts";

test("a table has a line for each row, its columns aligned, and a dash for what is absent", () => {
  const table = renderResults([
    {
      policy: "round_robin",
      routers: 1,
      engines: 4,
      sharing: "none",
      seed: 1,
      requests: 12_031,
      errors: 0,
      duration_s: 60,
      ttft_mean_s: 0.30712,
      ttft_p50_s: 0.2,
      ttft_p90_s: 0.5,
      ttft_p99_s: 1.25,
      itl_mean_s: 0.01234,
      output_tokens_per_s: 1_234.5,
      cached_share: 0.1182,
      followup_cached_share: 0.5,
      load_cov: 0.0456,
    },
    { policy: "consistent_hashing", requests: 3, errors: 3, duration_s: 1 },
  ]);
  const [header = "", first = "", second = "", ...rest] = table.split("\n");
  expect(rest).toEqual([""]);
  expect(header.split(/ {2,}/)).toEqual([
    ...[
      "policy",
      "routers",
      "sharing",
      "engines",
      "requests",
      "errors",
      "ttft mean (s)",
      "p50 (s)",
      "p90 (s)",
      "p99 (s)",
    ],
    ...["itl mean (ms)", "tpot p99 (ms)", "goodput (%)", "tokens/s out", "cached (%)", "followup (%)", "load cov"],
  ]);
  const cells = first.split(/ +/);
  expect(cells).toEqual([
    ...[
      "round_robin",
      "1",
      "none",
      "4",
      "12031",
      "0",
      "0.307",
      "0.200",
      "0.500",
      "1.250",
      "12.3",
      "-",
      "-",
      "1235",
      "11.8",
      "50.0",
    ],
    "0.046",
  ]);
  expect(second.split(/ +/)).toEqual(["consistent_hashing", "-", "-", "-", "3", "3", ...Array(11).fill("-")]);
  for (const name of ["errors", "load cov"]) {
    const end = header.indexOf(name) + name.length;
    expect([first.slice(0, end).trimEnd().length, second.slice(0, end).trimEnd().length]).toEqual([end, end]);
  }
});

const result = (error: string | undefined): RequestResult => ({
  index: 0,
  session: "s",
  turn: 0,
  startMs: 0,
  firstTokenMs: 0,
  endMs: 0,
  inputTokens: 0,
  outputTokens: 0,
  cachedTokens: 0,
  engine: undefined,
  error,
  itlSumMs: 0,
  itlCount: 0,
});

test("nothing failed: nothing to say", () => {
  expect(describeFailures([])).toBeUndefined();
  expect(describeFailures([result(undefined)])).toBeUndefined();
});

test("failures are counted by reason, the most frequent first", () => {
  const results = ["a", "b", "b", undefined, "b", "a", "c"].map(result);
  expect(describeFailures(results)).toBe("6 of 7 requests failed:\n  3 x b\n  2 x a\n  1 x c");
});

test("failures that have a code are counted by it, with the first message", () => {
  const refused = (error: string) => ({ ...result(error), errorCode: "no_engine_available" });
  const results = [refused("status 503: all 4 are down"), result("cut"), refused("status 503: all 3 are down")];
  expect(describeFailures(results)).toBe(
    "3 of 3 requests failed:\n  2 x no_engine_available: status 503: all 4 are down\n  1 x cut",
  );
});

test("more than three reasons are counted", () => {
  const results = ["a", "a", "b", "c", "d", "e"].map(result);
  expect(describeFailures(results)).toBe("6 of 6 requests failed:\n  2 x a\n  1 x b\n  1 x c\n  and 2 other reasons");
});
