import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { medianRows, scenario, scenarioNames } from "@espalier/simulator";
import { beforeEach, expect, onTestFinished, test, vi } from "vitest";
import {
  type ReportSection,
  renderReport,
  replaceReport,
  replaceSection,
  writeReport,
} from "../../src/simulate/report.ts";
import { commandOf, reportBudgetMs, reportPlan } from "../../src/simulate/report-plan.ts";
import type { SimJob } from "../../src/simulate/run-job.ts";
import { planKnees, planRuns } from "../../src/simulate/run-plan.ts";
import { runTasks } from "../../src/simulate/run-tasks.ts";
import { readSimulateOptions } from "../../src/simulate/simulate-options.ts";
import { jobOf, outcomeOf } from "./fake-outcome.ts";

vi.mock(import("../../src/simulate/run-tasks.ts"), () => ({ runTasks: vi.fn() }));

beforeEach(() => {
  vi.spyOn(process.stderr, "write").mockReturnValue(true);
  vi.mocked(runTasks)
    .mockReset()
    .mockImplementation(async (tasks, options) => {
      for (const [at, task] of tasks.entries()) {
        const job = task as SimJob;
        const knee = { scale: 2, position: "between", runs: [] };
        options.onResult(at, (job.kind === "knee" ? knee : outcomeOf(job)) as never);
      }
    });
});

test("the plan has every scenario once, and every entry is one that the command would take", () => {
  expect(reportPlan.map((entry) => entry.scenario).sort()).toEqual([...scenarioNames].sort());
  for (const entry of reportPlan) {
    for (const flags of [entry.flags, { ...entry.flags, ...entry.quick }]) {
      const of = scenario(entry.scenario);
      const given = of.trace === undefined ? flags : { ...flags, trace: of.trace };
      const command = readSimulateOptions(entry.scenario, given);
      if (command.kind !== "run") throw new Error(`${entry.scenario} is a ${command.kind}`);
      planKnees(command.selection, of);
      const runs = planRuns(command.selection, of, () => 1);
      expect(runs.length).toBeGreaterThan(0);
      expect(runs.length).toBeLessThan(200);
    }
  }
  expect(reportBudgetMs.full).toBeLessThan(30 * 60_000);
  expect(reportBudgetMs.quick).toBeLessThan(3 * 60_000);
});

test("an entry names its command", () => {
  expect(commandOf({ scenario: "rag", flags: { seeds: "3", routers: "1,2" } })).toBe(
    "npx espalier simulate rag --seeds 3 --routers 1,2",
  );
});

const sectionOf = (scenario: string, command = `npx espalier simulate ${scenario}`): ReportSection => {
  const outcomes = [1, 2, 3].map((seed) => outcomeOf(jobOf({ seed })).row);
  return {
    ...{ scenario, summary: "A summary.", command, medians: medianRows(outcomes) },
    ...{ tables: [{ title: "More", headers: ["a", "b"], lines: [["x|y", "1"]] }], plot: "benchmarks/rag.svg" },
    remarks: ["Something is missing."],
  };
};
const rendered = (): string => renderReport([sectionOf("rag")], "npx espalier simulate --report");

test("a section: its command, medians with their extremes, other tables, the plot, what is missing", () => {
  const text = rendered();
  expect(text).toContain("```sh\nnpx espalier simulate --report\n```");
  expect(text).toContain("### rag\n\nA summary.\n\n```sh\nnpx espalier simulate rag\n```");
  expect(text).toMatch(/\| policy \| engines \| routers \| sharing \| requests \|.*\n\|---\|/);
  expect(text).toMatch(/\| least_work \| 8 \| 2 \| mesh \| 100 \| 0 \| 2\.200 \(2\.100 \.\. 2\.300\) \|/);
  expect(text).not.toContain("ttft/oracle");
  expect(text).toContain("8 engines: an infinite shared cache would hold 75.0 %");
  expect(text).toContain("More:\n\n| a | b |\n|---|---|\n| x\\|y | 1 |\n");
  expect(text).toContain("![rag: plots of the table's runs](benchmarks/rag.svg)");
  expect(text).toContain("\n\nSomething is missing.");
  expect(text).toBe(text.trimEnd());
});

test("the report takes the place of the earlier one, and of nothing else", () => {
  const before = "# B\n\nintro\n\n";
  const after = "\n\n## Other\n\ntext\n";
  const first = replaceReport(`${before}<!-- simulate:begin -->\nold\n<!-- simulate:end -->${after}`, "new $& text");
  expect(first).toBe(`${before}<!-- simulate:begin -->\nnew $& text\n<!-- simulate:end -->${after}`);
  expect(replaceReport(first, "newer")).toBe(first.replace("new $& text", () => "newer"));
});

test("a document without marks gets the report at its end, and keeps it there", () => {
  const first = replaceReport("# B\n\nintro\n\n\n", "one");
  expect(first).toBe("# B\n\nintro\n\n<!-- simulate:begin -->\none\n<!-- simulate:end -->\n");
  expect(replaceReport(first, "two")).toBe(first.replace("one", "two"));
});

test("one section takes the place of the scenario's earlier one, or comes behind the others", () => {
  const report = renderReport(
    ["rag", "evict", "toolagent"].map((name) => sectionOf(name)),
    "all",
  );
  const document = replaceReport("# B\n\n## Other\n", report);
  const changed = replaceSection(document, sectionOf("evict", "another command"));
  expect(changed).toBe(document.replace("npx espalier simulate evict", "another command"));
  expect(replaceSection(changed, sectionOf("evict"))).toBe(document);
  const more = replaceSection(document, sectionOf("baseten-4"));
  expect(more.indexOf("### baseten-4")).toBeGreaterThan(more.indexOf("### toolagent"));
  expect(replaceSection(more, sectionOf("baseten-4"))).toBe(more);
  expect(() => replaceSection("# B\n", sectionOf("rag"))).toThrow("no report yet");
});

test.each(["<!-- simulate:begin -->", "<!-- simulate:end -->", "<!-- simulate:end --> <!-- simulate:begin -->"])(
  "marks that are not in pairs are told: %s",
  (marks) => {
    expect(() => replaceReport(`# B\n${marks}\n`, "one")).toThrow("not in pairs");
  },
);

function docsFolder(document?: string): string {
  const folder = mkdtempSync(join(tmpdir(), "espalier-report-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  if (document !== undefined) writeFileSync(join(folder, "BENCHMARKS.md"), document);
  return folder;
}

const options = (docs: string) => ({
  plan: [
    { scenario: "rag", flags: { policy: "least_work", seeds: "3" }, quick: { seeds: "1" } },
    { scenario: "toolagent", flags: { policy: "random", load: "0.5" }, quick: {} },
  ],
  isWhole: true,
  isQuick: false,
  size: 2,
  budgetMs: 60_000,
  docs,
  traces: docs,
  signal: new AbortController().signal,
});

test("a report is written into the document, with a plot for each scenario", async () => {
  const docs = docsFolder("# B\n");
  expect(await writeReport(options(docs))).toBe(true);
  const text = readFileSync(join(docs, "BENCHMARKS.md"), "utf8");
  expect(text).toMatch(/^# B\n\n<!-- simulate:begin -->\n/);
  expect(text).toContain("npx espalier simulate rag --policy least_work --seeds 3\n");
  expect(text).toMatch(/\| random \| 0\.5 \|/);
  for (const name of ["rag", "toolagent"]) {
    expect(text).toContain(`](benchmarks/${name}.svg)`);
    expect(readFileSync(join(docs, "benchmarks", `${name}.svg`), "utf8")).toMatch(/^<svg /);
  }
});

test("a quick one has fewer seeds, and says that it is one", async () => {
  const docs = docsFolder("# B\n");
  await writeReport({ ...options(docs), isQuick: true });
  const text = readFileSync(join(docs, "BENCHMARKS.md"), "utf8");
  expect(text).toContain("npx espalier simulate --report --quick\n");
  expect(text).toContain("npx espalier simulate rag --policy least_work --seeds 1\n");
});

test("without a document nothing is run", async () => {
  await expect(writeReport(options(docsFolder()))).rejects.toThrow("run it in a clone of the repository");
  expect(runTasks).not.toHaveBeenCalled();
});

test("what is missing is said: a trace, runs that failed, and what there was no time for", async () => {
  const docs = docsFolder("# B\n");
  vi.mocked(runTasks).mockImplementationOnce(async (tasks, { onFailure, onResult }) => {
    onFailure(0, new Error("it broke"));
    onResult(1, outcomeOf(tasks[1] as ReturnType<typeof jobOf>) as never);
  });
  const plan = [
    { scenario: "rag", flags: { policy: "random", seeds: "3" }, quick: {} },
    { scenario: "mooncake-conversation", flags: {}, quick: {} },
  ];
  expect(await writeReport({ ...options(docs), plan })).toBe(false);
  const text = readFileSync(join(docs, "BENCHMARKS.md"), "utf8");
  expect(text).toContain("1 of its runs failed: it broke.");
  expect(text).toContain("The time of the report was up: 1 of its 3 runs are missing.");
  expect(text).toContain(`Not run: ${join(docs, "conversation_trace.jsonl.gz")} is not there.`);
});

test("a scenario that takes too long is cut short, and leaves time for those after it", async () => {
  const docs = docsFolder("# B\n");
  vi.mocked(runTasks).mockImplementationOnce(
    (_, { signal }) => new Promise((resolve) => signal.addEventListener("abort", () => resolve())),
  );
  const entry = (name: string) => ({ scenario: name, flags: { policy: "random" }, quick: {} });
  const plan = ["rag", "evict", "session-affinity", "baseten-4"].map(entry);
  // Three quarters of the time are the first one's. What is left is enough for runs that end at once.
  expect(await writeReport({ ...options(docs), plan, budgetMs: 2_000 })).toBe(false);
  const text = readFileSync(join(docs, "BENCHMARKS.md"), "utf8");
  expect(text.match(/The time of the report was up/g)).toHaveLength(1);
  expect(text).toMatch(/### rag[^#]*The time of the report was up: 1 of its 1 runs are missing\./);
  expect(text).toContain("](benchmarks/baseten-4.svg)");
});

test("what was measured before the time was up is there", async () => {
  const docs = docsFolder("# B\n");
  vi.mocked(runTasks).mockImplementationOnce(async (tasks, { signal, onResult }) => {
    onResult(0, outcomeOf(tasks[0] as ReturnType<typeof jobOf>) as never);
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
  });
  const plan = [{ scenario: "rag", flags: { policy: "random", seeds: "2" }, quick: {} }];
  expect(await writeReport({ ...options(docs), plan, budgetMs: 300 })).toBe(false);
  const text = readFileSync(join(docs, "BENCHMARKS.md"), "utf8");
  expect(text).toContain("| random | 8 | 2 | none | 100 |");
  expect(text).toContain("1 of its 2 runs are missing.");
});

test("a knee that was not found in time is said", async () => {
  const docs = docsFolder("# B\n");
  vi.mocked(runTasks).mockImplementationOnce(
    (_, { signal }) => new Promise((resolve) => signal.addEventListener("abort", () => resolve())),
  );
  const plan = [{ scenario: "rag", flags: { load: "0.5" }, quick: {} }];
  expect(await writeReport({ ...options(docs), plan, budgetMs: 100 })).toBe(false);
  expect(readFileSync(join(docs, "BENCHMARKS.md"), "utf8")).toContain("was up before its knee was found.");
});

test("ended by Ctrl-C, the document stays as it is", async () => {
  const docs = docsFolder("# B\n");
  const controller = new AbortController();
  vi.mocked(runTasks).mockImplementation(async () => controller.abort());
  expect(await writeReport({ ...options(docs), signal: controller.signal })).toBe(false);
  expect(readFileSync(join(docs, "BENCHMARKS.md"), "utf8")).toBe("# B\n");
  expect(existsSync(join(docs, "benchmarks"))).toBe(false);
});
