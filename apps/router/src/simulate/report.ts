import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { systemClock, systemScheduler } from "@espalier/core";
import { type MedianRow, medianRows, renderFigure, type Scenario, scenario, withGaps } from "@espalier/simulator";
import { writeNote } from "../output.ts";
import { executeJobs } from "./execute-jobs.ts";
import { figureOf } from "./figures.ts";
import { commandOf, type ReportEntry } from "./report-plan.ts";
import { noteFailures, prepareRuns } from "./run-plan.ts";
import { readSelection } from "./simulate-options.ts";
import { loadScenario } from "./simulated-scenario.ts";
import { boundsNotes, columnsOf, documentCell, extraTables, markdown, partialRows, type TextTable } from "./tables.ts";

interface ReportOptions {
  readonly plan: readonly ReportEntry[];
  readonly isQuick: boolean;
  /** Concurrent runs. */
  readonly size: number;
  /**
   * Deadline: runs that have not ended by then are left out, and the page names their rows. No scenario may take more
   * than its part of the time. Without a deadline every run ends, however busy the machine.
   */
  readonly budgetMs: number | undefined;
  /** `docs/benchmarks`: gets a page and a plot for each scenario. */
  readonly pages: string;
  /** Contains the traces that scenarios name. */
  readonly traces: string;
  readonly signal: AbortSignal;
}

/**
 * Makes the runs of a plan and writes the result of each scenario into its page, as soon as it is there. Prose around
 * the result stays. A page without any new run stays as it is, and so does that of the scenario that is under way when
 * the signal aborts.
 *
 * @returns whether all runs were made
 * @throws Error without the folder of the pages
 */
export async function writeReport(options: ReportOptions): Promise<boolean> {
  const { plan, pages, signal } = options;
  if (!existsSync(pages)) throw new Error(`${pages} is not there: run it in a clone of the repository`);
  const endMs = options.budgetMs === undefined ? undefined : systemClock.nowMs() + options.budgetMs;
  let isWhole = true;
  for (const [at, entry] of plan.entries()) {
    writeNote(`${at + 1} of ${plan.length}: ${entry.scenario}`);
    const { result, remarks } =
      endMs === undefined
        ? await runEntry(entry, options, signal)
        : await withinMs(shareOf(endMs, plan.length - at), signal, (aborted) => runEntry(entry, options, aborted));
    if (signal.aborted) return false;
    if (remarks.length > 0) isWhole = false;
    if (result === undefined) writeNote(`${entry.scenario} keeps its page. ${remarks.join(" ")}`);
    else await writePage(pages, { ...result, remarks });
  }
  return isWhole;
}

async function writePage(pages: string, result: ScenarioResult): Promise<void> {
  const path = join(pages, `${result.scenario.name}.md`);
  const isNew = !existsSync(path);
  await writeFile(path, withResult(isNew ? `# ${result.scenario.name}\n` : await readFile(path, "utf8"), result));
  if (isNew) writeNote(`${path} is new: link it from docs/benchmarks/README.md, and say what it answers.`);
}

/** A scenario may take this multiple of its equal share of the remaining time, because most take less. */
const generosity = 3;

/** Time of the next scenario, in milliseconds. @param left scenarios that have yet to run */
function shareOf(endMs: number, left: number): number {
  return Math.max(0, endMs - systemClock.nowMs()) * Math.min(1, generosity / left);
}

/** @param work receives a signal that aborts when the time is up, or when `signal` aborts */
async function withinMs<Result>(
  timeoutMs: number,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const controller = new AbortController();
  const cancel = systemScheduler.after(timeoutMs, () => controller.abort());
  try {
    return await work(AbortSignal.any([signal, controller.signal]));
  } finally {
    cancel();
  }
}

/** What an entry's runs came to: nothing if there were none. */
interface EntryResult {
  readonly result: Omit<ScenarioResult, "remarks"> | undefined;
  readonly remarks: readonly string[];
}

async function runEntry(entry: ReportEntry, options: ReportOptions, signal: AbortSignal): Promise<EntryResult> {
  const { isQuick, size, pages, traces } = options;
  const flags = isQuick ? { ...entry.flags, ...entry.quick } : entry.flags;
  const { trace: file } = scenario(entry.scenario);
  const trace = file === undefined ? undefined : join(traces, file);
  if (trace !== undefined && !existsSync(trace)) return { result: undefined, remarks: [`${trace} is not there.`] };
  const source = { name: entry.scenario, trace, format: undefined, fleet: undefined };
  const simulated = await loadScenario(source);
  const prepared = await prepareRuns(readSelection(source, flags), simulated, { size, signal });
  const { jobs } = prepared;
  const { outcomes: made, failures: lost } = await executeJobs(jobs, { size, signal, title: entry.scenario });
  const failures = [...prepared.failures, ...lost];
  noteFailures(failures);
  const outcomes = made.filter((outcome) => outcome !== undefined);
  const missing = jobs.length - outcomes.length - lost.length;
  const remarks = [
    ...(failures.length === 0 ? [] : [`${failures.length} of its runs failed: ${failures[0]?.error.message}.`]),
    ...(missing === 0 ? [] : [`The time of the report was up: ${missing} of its ${jobs.length} runs are missing.`]),
    ...partialRows(jobs, made),
    ...(jobs.length > 0 || !signal.aborted ? [] : ["The time of the report was up before its knee was found."]),
  ];
  if (outcomes.length === 0 || options.signal.aborted) return { result: undefined, remarks };
  const rows = withGaps(outcomes.map(({ row }) => row));
  const medians = medianRows(rows);
  const plot = `${entry.scenario}.svg`;
  await writeFile(join(pages, plot), renderFigure(figureOf(entry.scenario, outcomes, rows)));
  const command = commandOf({
    scenario: entry.scenario,
    flags: file === undefined ? flags : { trace: file, ...flags },
  });
  const tables = extraTables(simulated.scenario, outcomes, medians);
  return { result: { scenario: simulated.scenario, command, medians, tables, plot }, remarks };
}

const begin = "<!-- simulate:begin -->";
const end = "<!-- simulate:end -->";

/** The result of one entry of the report. */
export interface ScenarioResult {
  readonly scenario: Pick<Scenario, "name" | "summary" | "notes" | "fleet">;
  readonly command: string;
  readonly medians: readonly MedianRow[];
  readonly tables: readonly TextTable[];
  /** Path of the plot, relative to the page. */
  readonly plot: string;
  /** What is missing, and why. */
  readonly remarks: readonly string[];
}

/**
 * Puts a scenario's result into its page: between its marks, or at the end of a page without marks.
 *
 * @throws Error for a page with only one mark, or with marks in the wrong order
 */
export function withResult(page: string, result: ScenarioResult): string {
  const from = page.indexOf(begin);
  const to = page.indexOf(end);
  const section = `${begin}\n${renderResult(result)}\n${end}`;
  if (from === -1 && to === -1) return `${page.trimEnd()}\n\n${section}\n`;
  if (from === -1 || to < from)
    throw new Error(`the page of ${result.scenario.name} has ${begin} and ${end} not in pairs: correct it`);
  return page.slice(0, from) + section + page.slice(to + end.length);
}

function renderResult({ scenario, command, medians, tables, plot, remarks }: ScenarioResult): string {
  return [
    ...setupOf(scenario),
    "## Result",
    "",
    "```sh",
    command,
    "```",
    "",
    ...rowTable(medians),
    "",
    ...boundsNotes(medians).flatMap((line) => [line, ""]),
    ...tables.flatMap(({ title, headers, lines }) => [`${title}:`, "", ...markdown(headers, lines), ""]),
    `![${scenario.name}: plots of the table's runs](${plot})`,
    "",
    ...remarks.flatMap((remark) => [remark, ""]),
  ]
    .join("\n")
    .trimEnd();
}

function setupOf({ summary, notes = [], fleet }: ScenarioResult["scenario"]): string[] {
  const { engines, preset, routers } = fleet;
  const count = (number: number, noun: string): string => `${number} ${noun}${number === 1 ? "" : "s"}`;
  return [
    "## Setup",
    "",
    summary,
    "",
    `Fleet: ${count(engines, "engine")} of preset \`${preset}\`, ${count(routers, "router")}, unless a row says otherwise.`,
    "",
    ...notes.flatMap((note) => [note, ""]),
  ];
}

function rowTable(medians: readonly MedianRow[]): readonly string[] {
  const columns = columnsOf(medians).filter(
    (column) => "label" in column || medians.some(({ figures }) => column.figure in figures),
  );
  return markdown(
    columns.map(({ header }) => header),
    medians.map((row) => columns.map((column) => documentCell(column, row))),
  );
}
