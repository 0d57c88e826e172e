import { expect, test } from "vitest";
import type { RunJob } from "../../src/simulate/run-job.ts";
import { createRowStream } from "../../src/simulate/tables.ts";
import { jobOf, outcomeOf } from "./fake-outcome.ts";

function stream(jobs: readonly RunJob[]) {
  const lines: string[] = [];
  const made = createRowStream(jobs, (line) => lines.push(line));
  return {
    lines,
    end: () => made.end(),
    add: (at: number, figures = {}) => made.add(at, outcomeOf(jobs[at]!, figures).row),
  };
}

const cells = (line: string | undefined): readonly string[] => line?.split(/ {2,}/) ?? [];

test("a line comes when the last of its seeds has ended, with the medians, under headers that come once", () => {
  const { lines, add } = stream([1, 2, 3].map((seed) => jobOf({ seed })));
  add(0, { ttft_mean_s: 5 });
  add(1, { ttft_mean_s: 1 });
  expect(lines).toEqual([]);
  add(2, { ttft_mean_s: 2 });
  expect(lines).toHaveLength(2);
  const [header, line] = lines;
  const at = cells(header).indexOf("ttft mean (s)");
  expect(cells(header).slice(0, 4)).toEqual(["policy", "engines", "routers", "sharing"]);
  expect(cells(line)[0]).toBe("least_work");
  expect(cells(line)[at]).toBe("2.000");
});

test("lines that come one by one are aligned as if they had come together", () => {
  const jobs = [
    jobOf({ policy: "random", routers: 128, sharing: "none" }),
    jobOf({ policy: "consistent_hashing", engines: 16_384, sharing: "events-only" }),
  ];
  const { lines, add } = stream(jobs);
  add(0, { ttft_mean_s: 12.5 });
  add(1, { ttft_mean_s: 7_123.25, output_tokens_per_s: undefined });
  const [header = "", ...rest] = lines;
  for (const name of ["engines", "routers", "ttft mean (s)", "load cov"]) {
    const end = header.indexOf(name) + name.length;
    for (const line of rest) expect(line.slice(0, end).trimEnd().length).toBe(end);
  }
  const sharing = header.indexOf("sharing");
  expect(rest.map((line) => line.slice(sharing).split(" ")[0])).toEqual(["none", "events-only"]);
  for (const line of lines) expect(line).toBe(line.trimEnd());
});

test("what is absent is a dash", () => {
  const { lines, add } = stream([jobOf()]);
  add(0, { bytes_per_s_per_router: 2_500 });
  const of = (name: string) => cells(lines[1])[cells(lines[0]).indexOf(name)];
  expect([of("ttft/oracle"), of("tokens/s out"), of("kB/s per router")]).toEqual(["-", "-", "2.5"]);
});

test("only fleets with regions have columns of what crosses between them", () => {
  const named = (line: string | undefined) => cells(line).filter((name) => /crossed|network/.test(name));
  const plain = stream([jobOf()]);
  plain.add(0);
  expect(named(plain.lines[0])).toEqual([]);
  const { lines, add } = stream([jobOf()]);
  add(0, { crossed: 0.125, network_ms: 61.25 });
  expect(named(lines[0])).toEqual(["crossed (%)", "network (ms)"]);
  const of = (name: string) => cells(lines[1])[cells(lines[0]).indexOf(name)];
  expect([of("crossed (%)"), of("network (ms)")]).toEqual(["12.5", "61.3"]);
});

test("the gap is to the oracle's run before it, seed by seed", () => {
  const jobs = (["oracle", "mesh"] as const).flatMap((sharing) => [1, 2, 3].map((seed) => jobOf({ sharing, seed })));
  const { lines, add } = stream(jobs);
  for (const [at, ttft] of [1, 2, 4].entries()) add(at, { ttft_mean_s: ttft, cached_share: 0.8 });
  for (const [at, ttft] of [2, 2.2, 4.4].entries()) add(3 + at, { ttft_mean_s: ttft, cached_share: 0.6 });
  const of = (line: number, name: string) => cells(lines[line])[cells(lines[0]).indexOf(name)];
  expect([of(1, "ttft/oracle"), of(2, "ttft/oracle"), of(2, "cached/oracle")]).toEqual(["-", "1.100", "0.750"]);
});

test("seeds that are missing leave a line with the rest", () => {
  const jobs = [...[1, 2].map((seed) => jobOf({ policy: "random", seed })), ...[1, 2].map((seed) => jobOf({ seed }))];
  const { lines, add, end } = stream(jobs);
  add(0);
  add(2);
  expect(lines.map((line) => cells(line)[0])).toEqual(["policy", "random"]);
  end();
  end();
  expect(lines.map((line) => cells(line)[0])).toEqual(["policy", "random", "least_work"]);
});

test("nothing was run: no line, not even headers", () => {
  const { lines, end } = stream([jobOf()]);
  end();
  expect(lines).toEqual([]);
});

test("variants, loads and models of links have columns where they vary", () => {
  const jobs = [
    jobOf({ variant: "2x", load: 0.5, links: "real" }),
    jobOf({ load: 0.95, links: "delays" }),
    jobOf({ sharing: "none", links: "delays" }),
  ];
  const { lines, add } = stream(jobs);
  for (const at of jobs.keys()) add(at);
  expect(lines.map((line) => cells(line).slice(0, 6))).toEqual([
    ["policy", "variant", "of knee", "engines", "routers", "sharing"],
    ["least_work", "2x", "0.5", "8", "2", "mesh (real)"],
    ["least_work", "-", "0.95", "8", "2", "mesh (delays)"],
    ["least_work", "-", "-", "8", "2", "none"],
  ]);
});
