import { expect, test } from "vitest";
import {
  duration,
  flag,
  names,
  optional,
  positive,
  quick,
  readWhole,
  runs,
  text,
  whole,
} from "../src/support/params.ts";
import { repeatRuns } from "../src/support/repeat-runs.ts";
import { defineSuite, joinRuns } from "../src/support/suite.ts";
import { UsageError } from "../src/support/usage-error.ts";

const params = {
  blocks: whole({ help: "blocks stored", standard: 2_000_000, quick: 100, most: 5_000_000 }),
  seconds: positive({ help: "of a loop", standard: 1.5, most: 60 }),
  wait: duration({ help: "between turns", standard: "20s", most: "1h" }),
  size: optional(whole({ help: "another size", standard: 1, least: 2, most: 9 })),
  only: names("these alone", ["one", "two"]),
  folder: text("DIR", "where it is kept", ".cache/x"),
  wrk: flag("once more by wrk"),
  runs: runs(3),
  quick: quick(),
};

/** A suite whose runs have the given figures, and what it was called with. */
function suiteOf(seen: unknown[], failures: readonly string[] = []) {
  return defineSuite({
    name: "sample",
    summary: "a sample",
    about: "\nWhat it measures.",
    params,
    async measure(values, note) {
      seen.push(values);
      const done = await repeatRuns({ runs: values.runs, note }, (seed, noteRun) => {
        noteRun(`seed ${seed}`);
        return {
          own: { ops_per_s: [4e6, 8e6, 2e6][seed - 1]!, hit_share: 0.5, us: 20.25 * seed },
          naive: { ops_per_s: 1e6, only_naive: 7 },
        };
      });
      return { params: { pinned: false }, ...joinRuns(done), warnings: ["it is a sample"], failures };
    },
  });
}

test("a suite without flags measures with the standard of each parameter", async () => {
  const seen: unknown[] = [];
  await suiteOf(seen).run([], () => {});
  expect(seen).toEqual([
    {
      ...{ blocks: 2_000_000, seconds: 1.5, wait: 20_000, size: undefined, only: ["one", "two"], folder: ".cache/x" },
      ...{ wrk: false, runs: 3, quick: false },
    },
  ]);
});

test("a suite with --quick takes the quick standards, and an explicit flag before them", async () => {
  const seen: unknown[] = [];
  await suiteOf(seen).run(
    ["--quick", "--runs", "2", "--only", "two", "--size=9", "--wait", "500ms", "--wrk"],
    () => {},
  );
  expect(seen).toMatchObject([{ blocks: 100, runs: 2, only: ["two"], size: 9, wait: 500, wrk: true, quick: true }]);
});

test.each([
  ["--blocks", "0", "--blocks must be a whole number from 1 to 5000000"],
  ["--blocks", "1.5", "--blocks must be a whole number from 1 to 5000000"],
  ["--blocks", "", "--blocks must be a whole number from 1 to 5000000"],
  ["--size", "1", "--size must be a whole number from 2 to 9"],
  ["--seconds", "0", "--seconds must be a number above 0 and at most 60"],
  ["--seconds", "soon", "--seconds must be a number above 0 and at most 60"],
  ["--wait", "2h", "--wait must be a time such as 90s, 30m or 1h, at most 1h"],
  ["--only", "one,three", '--only: there is no "three", but one, two'],
])("%s %j is refused by name", async (given, value, message) => {
  const run = suiteOf([]).run([`${given}=${value}`], () => {});
  await expect(run).rejects.toThrow(UsageError);
  await expect(suiteOf([]).run([`${given}=${value}`], () => {})).rejects.toThrow(message);
});

test.each(["1", "100", "1e2"])("a whole number may be written as %s", (given) => {
  expect(readWhole("--count", given, { most: 100 })).toBe(Number(given));
});

test.each(["0", "101", "-1", "1.5", "", " ", "many", "NaN", "Infinity"])("a whole number is not %j", (given) => {
  const read = (): number => readWhole("--count", given, { most: 100 });
  expect(read).toThrow(UsageError);
  expect(read).toThrow("--count must be a whole number from 1 to 100");
});

test("a flag that no parameter has is refused", async () => {
  await expect(suiteOf([]).run(["--block", "1"], () => {})).rejects.toThrow("Unknown option '--block'");
});

test("the help has every parameter with its standard", () => {
  expect(suiteOf([]).help).toBe(`Usage: npm run bench -- sample [options]

What it measures.

  --blocks N    blocks stored (2,000,000)
  --seconds S   of a loop (1.5)
  --wait T      between turns (20s)
  --size N      another size
  --only NAMES  these alone (one,two)
  --folder DIR  where it is kept (.cache/x)
  --wrk         once more by wrk
  --runs N      runs, of which the medians count (3)
  --quick       one short run
  --json        one JSON object on standard output
`);
});

test("a report has the medians of the first system as metrics, those of the others beside them, and all extremes", async () => {
  const notes: string[] = [];
  const { report } = await suiteOf([]).run([], (line) => notes.push(line));
  expect(notes).toEqual(["run 1 of 3: seed 1", "run 2 of 3: seed 2", "run 3 of 3: seed 3"]);
  expect(report).toEqual({
    name: "sample",
    params: { pinned: false },
    metrics: { ops_per_s: 4e6, hit_share: 0.5, us: 40.5 },
    baselines: { naive: { ops_per_s: 1e6, only_naive: 7 } },
    spread: {
      own: { ops_per_s: { min: 2e6, max: 8e6 }, hit_share: { min: 0.5, max: 0.5 }, us: { min: 20.25, max: 60.75 } },
      naive: { ops_per_s: { min: 1e6, max: 1e6 }, only_naive: { min: 7, max: 7 } },
    },
    shares: [],
    warnings: ["it is a sample"],
    failures: [],
  });
});

test("a table has a column for each system, medians followed by extremes, and then what to doubt", async () => {
  const { table, failure } = await suiteOf([], ["one target", "another target"]).run([], () => {});
  expect(table.replaceAll(/ {2,}/g, "  ")).toBe(
    [
      "figure  own  naive",
      "ops_per_s  4.00 M (2.00 M .. 8.00 M)  1.00 M (1.00 M .. 1.00 M)",
      "hit_share  50.0 % (50.0 % .. 50.0 %)  -",
      "us  40.5 (20.3 .. 60.8)  -",
      "only_naive  -  7 (7 .. 7)",
      "Not pinned to cores: figures are of the whole machine.",
      "Warning: it is a sample.",
      "Failed: one target.",
      "Failed: another target.",
      "",
    ].join("\n"),
  );
  expect(failure).toBe("one target; another target");
});
