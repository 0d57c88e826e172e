import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { medianRows, scenario, scenarioNames } from "@espalier/simulator";
import { beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { type ScenarioResult, withResult, writeReport } from "../../src/simulate/report.ts";
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

const resultOf = (name: string, command = `npx espalier simulate ${name}`): ScenarioResult => {
  const outcomes = [1, 2, 3].map((seed) => outcomeOf(jobOf({ seed })).row);
  const fleet = { preset: "h100-32b-tp2", parameters: {}, engines: 8, routers: 1 } as const;
  return {
    ...{ scenario: { name, summary: "A summary.", notes: ["A note.", "Another."], fleet }, command },
    ...{ medians: medianRows(outcomes), plot: `${name}.svg`, remarks: ["Something is missing."] },
    tables: [{ title: "More", headers: ["a", "b"], lines: [["x|y", "1"]] }],
  };
};

test("a result: setup, command, medians with their extremes, other tables, the plot, what is missing", () => {
  const text = withResult("# rag\n", resultOf("rag"));
  expect(text).toMatch(
    /^# rag\n\n<!-- simulate:begin -->\n## Setup\n\nA summary\.\n\nFleet: 8 engines of preset `h100-32b-tp2`, 1 router,/,
  );
  expect(text).toContain("\n\nA note.\n\nAnother.\n\n## Result\n\n```sh\nnpx espalier simulate rag\n```");
  expect(text).toMatch(/\| policy \| engines \| routers \| sharing \| requests \|.*\n\|---\|/);
  expect(text).toMatch(/\| least_work \| 8 \| 2 \| mesh \| 100 \| 0 \| 2\.200 \(2\.100 \.\. 2\.300\) \|/);
  expect(text).not.toContain("ttft/oracle");
  expect(text).toContain("8 engines: an infinite shared cache would hold 75.0 %");
  expect(text).toContain("More:\n\n| a | b |\n|---|---|\n| x\\|y | 1 |\n");
  expect(text).toContain("![rag: plots of the table's runs](rag.svg)");
  expect(text).toMatch(/\n\nSomething is missing\.\n<!-- simulate:end -->\n$/);
});

test("a result takes the place of the earlier one, and of nothing else", () => {
  const before = "# rag\n\nA question?\n\n";
  const after = "\n\n## Reading\n\ntext $& text\n";
  const first = withResult(`${before}<!-- simulate:begin -->\nold\n<!-- simulate:end -->${after}`, resultOf("rag"));
  expect(first.startsWith(`${before}<!-- simulate:begin -->\n## Setup\n`)).toBe(true);
  expect(first.endsWith(`<!-- simulate:end -->${after}`)).toBe(true);
  const second = withResult(first, resultOf("rag", "another $& command"));
  expect(second).toBe(first.replace("npx espalier simulate rag", () => "another $& command"));
});

test("a page without marks gets the result at its end, and keeps it there", () => {
  const first = withResult("# rag\n\nA question?\n\n\n", resultOf("rag"));
  expect(first).toMatch(/^# rag\n\nA question\?\n\n<!-- simulate:begin -->\n## Setup\n/);
  expect(withResult(first, resultOf("rag"))).toBe(first);
});

test.each(["<!-- simulate:begin -->", "<!-- simulate:end -->", "<!-- simulate:end --> <!-- simulate:begin -->"])(
  "marks that are not in pairs are an error: %s",
  (marks) => {
    expect(() => withResult(`# B\n${marks}\n`, resultOf("rag"))).toThrow("the page of rag has");
  },
);

test("every page with a result is that of a scenario", () => {
  const folder = fileURLToPath(new URL("../../../../docs/benchmarks", import.meta.url));
  const withMarks = readdirSync(folder).filter(
    (name) => name.endsWith(".md") && readFileSync(join(folder, name), "utf8").includes("<!-- simulate:begin -->"),
  );
  expect(withMarks.length).toBeGreaterThan(30);
  expect(withMarks.filter((name) => !scenarioNames.includes(name.replace(/\.md$/, "")))).toEqual([]);
});

function pagesFolder(pages: Readonly<Record<string, string>> = {}): string {
  const folder = mkdtempSync(join(tmpdir(), "espalier-report-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  for (const [name, page] of Object.entries(pages)) writeFileSync(join(folder, `${name}.md`), page);
  return folder;
}

const pageOf = (pages: string, name: string): string => readFileSync(join(pages, `${name}.md`), "utf8");

const options = (pages: string) => ({
  plan: [
    { scenario: "rag", flags: { policy: "least_work", seeds: "3" }, quick: { seeds: "1" } },
    { scenario: "toolagent", flags: { policy: "random", load: "0.5" }, quick: {} },
  ],
  isQuick: false,
  size: 2,
  budgetMs: 60_000,
  pages,
  traces: pages,
  signal: new AbortController().signal,
});

test("each scenario's result goes into its page, with a plot beside it; other pages stay", async () => {
  const pages = pagesFolder({ rag: "# rag\n\nWhat for?\n", evict: "# evict\n" });
  expect(await writeReport(options(pages))).toBe(true);
  expect(pageOf(pages, "rag")).toMatch(/^# rag\n\nWhat for\?\n\n<!-- simulate:begin -->\n## Setup\n/);
  expect(pageOf(pages, "rag")).toContain("npx espalier simulate rag --policy least_work --seeds 3\n");
  expect(pageOf(pages, "toolagent")).toMatch(/^# toolagent\n\n<!-- simulate:begin -->\n/);
  expect(pageOf(pages, "toolagent")).toMatch(/\| random \| 0\.5 \|/);
  expect(pageOf(pages, "evict")).toBe("# evict\n");
  for (const name of ["rag", "toolagent"]) {
    expect(pageOf(pages, name)).toContain(`](${name}.svg)`);
    expect(readFileSync(join(pages, `${name}.svg`), "utf8")).toMatch(/^<svg /);
  }
  const notes = vi.mocked(process.stderr.write).mock.calls.join("");
  expect(notes).toContain("toolagent.md is new: link it from docs/benchmarks/README.md");
  expect(notes).not.toContain("rag.md is new");
});

test("a quick one has fewer seeds, and its command says so", async () => {
  const pages = pagesFolder();
  await writeReport({ ...options(pages), isQuick: true });
  expect(pageOf(pages, "rag")).toContain("npx espalier simulate rag --policy least_work --seeds 1\n");
});

test("without the folder of the pages nothing is run", async () => {
  await expect(writeReport(options(join(pagesFolder(), "benchmarks")))).rejects.toThrow(
    "run it in a clone of the repository",
  );
  expect(runTasks).not.toHaveBeenCalled();
});

test("a page says what is missing of its runs; without a trace it stays as it is, and the reason is printed", async () => {
  const pages = pagesFolder({ "mooncake-conversation": "# kept\n" });
  vi.mocked(runTasks).mockImplementationOnce(async (tasks, { onFailure, onResult }) => {
    onFailure(0, new Error("it broke"));
    onResult(1, outcomeOf(tasks[1] as ReturnType<typeof jobOf>) as never);
  });
  const plan = [
    { scenario: "rag", flags: { policy: "random", seeds: "3" }, quick: {} },
    { scenario: "mooncake-conversation", flags: {}, quick: {} },
  ];
  expect(await writeReport({ ...options(pages), plan })).toBe(false);
  expect(pageOf(pages, "rag")).toContain("1 of its runs failed: it broke.");
  expect(pageOf(pages, "rag")).toContain("The time of the report was up: 1 of its 3 runs are missing.");
  expect(pageOf(pages, "rag")).toMatch(/\n8 engines, random, none, 2 routers: 1 of 3 runs\.\n/);
  expect(pageOf(pages, "mooncake-conversation")).toBe("# kept\n");
  expect(vi.mocked(process.stderr.write).mock.calls.join("")).toContain(
    `mooncake-conversation keeps its page. ${join(pages, "conversation_trace.jsonl.gz")} is not there.`,
  );
});

test("a scenario that takes too long is cut short, and leaves time for those after it", async () => {
  const pages = pagesFolder({ rag: "# kept\n" });
  vi.mocked(runTasks).mockImplementationOnce(
    (_, { signal }) => new Promise((resolve) => signal.addEventListener("abort", () => resolve())),
  );
  const entry = (name: string) => ({ scenario: name, flags: { policy: "random" }, quick: {} });
  const plan = ["rag", "evict", "session-affinity", "baseten-4"].map(entry);
  // Three quarters of the time are the first one's. What is left is enough for runs that end at once.
  expect(await writeReport({ ...options(pages), plan, budgetMs: 2_000 })).toBe(false);
  expect(pageOf(pages, "rag")).toBe("# kept\n");
  expect(vi.mocked(process.stderr.write).mock.calls.join("")).toContain(
    "rag keeps its page. The time of the report was up: 1 of its 1 runs are missing.",
  );
  expect(pageOf(pages, "baseten-4")).toContain("](baseten-4.svg)");
});

test("what was measured before the time was up is there", async () => {
  const pages = pagesFolder();
  vi.mocked(runTasks).mockImplementationOnce(async (tasks, { signal, onResult }) => {
    onResult(0, outcomeOf(tasks[0] as ReturnType<typeof jobOf>) as never);
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
  });
  const plan = [{ scenario: "rag", flags: { policy: "random", seeds: "2" }, quick: {} }];
  expect(await writeReport({ ...options(pages), plan, budgetMs: 300 })).toBe(false);
  expect(pageOf(pages, "rag")).toContain("| random | 8 | 2 | none | 100 |");
  expect(pageOf(pages, "rag")).toContain("1 of its 2 runs are missing.");
});

test("without a deadline every run ends, even after the time of a whole report", async () => {
  const pages = pagesFolder();
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  vi.mocked(runTasks).mockImplementationOnce(async (tasks, { signal, onResult }) => {
    await vi.advanceTimersByTimeAsync(2 * reportBudgetMs.full);
    expect(signal.aborted).toBe(false);
    for (const [at, task] of tasks.entries()) onResult(at, outcomeOf(task as ReturnType<typeof jobOf>) as never);
  });
  const plan = [{ scenario: "rag", flags: { policy: "random", seeds: "3" }, quick: {} }];
  expect(await writeReport({ ...options(pages), plan, budgetMs: undefined })).toBe(true);
  expect(pageOf(pages, "rag")).not.toContain("runs are missing");
});

test("a knee that was not found in time is said", async () => {
  const pages = pagesFolder({ rag: "# kept\n" });
  vi.mocked(runTasks).mockImplementationOnce(
    (_, { signal }) => new Promise((resolve) => signal.addEventListener("abort", () => resolve())),
  );
  const plan = [{ scenario: "rag", flags: { load: "0.5" }, quick: {} }];
  expect(await writeReport({ ...options(pages), plan, budgetMs: 100 })).toBe(false);
  expect(pageOf(pages, "rag")).toBe("# kept\n");
  expect(vi.mocked(process.stderr.write).mock.calls.join("")).toContain("was up before its knee was found.");
});

test("ended by Ctrl-C, the page of the scenario under way stays as it is, and none is begun after it", async () => {
  const pages = pagesFolder({ rag: "# kept\n" });
  const controller = new AbortController();
  vi.mocked(runTasks).mockImplementation(async () => controller.abort());
  expect(await writeReport({ ...options(pages), signal: controller.signal })).toBe(false);
  expect(readdirSync(pages)).toEqual(["rag.md"]);
  expect(pageOf(pages, "rag")).toBe("# kept\n");
});
