import { existsSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { systemClock, systemScheduler } from "@espalier/core";
import { type MedianRow, medianRows, renderFigure, scenario, withGaps } from "@espalier/simulator";
import { writeNote } from "../output.ts";
import { executeJobs } from "./execute-jobs.ts";
import { figureOf } from "./figures.ts";
import { commandOf, type ReportEntry } from "./report-plan.ts";
import { noteFailures, prepareRuns } from "./run-plan.ts";
import { readSelection } from "./simulate-options.ts";
import { loadScenario } from "./simulated-scenario.ts";
import { boundsNotes, columnsOf, documentCell, extraTables, markdown, type TextTable } from "./tables.ts";

interface ReportOptions {
  readonly plan: readonly ReportEntry[];
  /** Whether to remove the document's sections on other scenarios. */
  readonly isWhole: boolean;
  readonly isQuick: boolean;
  /** Concurrent runs. */
  readonly size: number;
  /** Deadline: runs that have not ended by then are left out. No scenario may take more than its part of the time. */
  readonly budgetMs: number;
  /** Contains `BENCHMARKS.md`, and gets the plots under `benchmarks/`. */
  readonly docs: string;
  /** Contains the traces that scenarios name. */
  readonly traces: string;
  readonly signal: AbortSignal;
}

/**
 * Makes the runs of a plan and writes their results into the document. If the signal aborts it, it writes nothing.
 *
 * @returns whether all runs were made
 * @throws Error without a document
 */
export async function writeReport(options: ReportOptions): Promise<boolean> {
  const path = join(options.docs, "BENCHMARKS.md");
  if (!existsSync(path)) throw new Error(`${path} is not there: run it in a clone of the repository`);
  const endMs = systemClock.nowMs() + options.budgetMs;
  const sections: ReportSection[] = [];
  for (const [at, entry] of options.plan.entries()) {
    writeNote(`${at + 1} of ${options.plan.length}: ${entry.scenario}`);
    const leftMs = Math.max(0, endMs - systemClock.nowMs());
    const shareMs = leftMs * Math.min(1, generosity / (options.plan.length - at));
    sections.push(await withinMs(shareMs, options.signal, (signal) => writeSection(entry, options, signal)));
    if (options.signal.aborted) return false;
  }
  const command = `npx espalier simulate --report${options.isQuick ? " --quick" : ""}`;
  const document = await readFile(path, "utf8");
  const written = options.isWhole
    ? replaceReport(document, renderReport(sections, command))
    : sections.reduce((text, section) => replaceSection(text, section), document);
  await writeFile(path, written);
  return sections.every(({ remarks }) => remarks.length === 0);
}

/** A scenario may take this multiple of its equal share of the remaining time, because most take less. */
const generosity = 3;

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

async function writeSection(entry: ReportEntry, options: ReportOptions, signal: AbortSignal): Promise<ReportSection> {
  const { isQuick, size, docs, traces } = options;
  const flags = isQuick ? { ...entry.flags, ...entry.quick } : entry.flags;
  const { trace: file, summary } = scenario(entry.scenario);
  const trace = file === undefined ? undefined : join(traces, file);
  const section = {
    ...{ scenario: entry.scenario, summary, medians: [], tables: [], plot: undefined },
    command: commandOf({ scenario: entry.scenario, flags: file === undefined ? flags : { trace: file, ...flags } }),
  };
  if (trace !== undefined && !existsSync(trace)) return { ...section, remarks: [`Not run: ${trace} is not there.`] };
  const source = { name: entry.scenario, trace, format: undefined, fleet: undefined };
  const simulated = await loadScenario(source);
  const prepared = await prepareRuns(readSelection(source, flags), simulated, { size, signal });
  const { jobs } = prepared;
  const result = await executeJobs(jobs, { size, signal, title: entry.scenario });
  const failures = [...prepared.failures, ...result.failures];
  noteFailures(failures);
  const outcomes = result.outcomes.filter((outcome) => outcome !== undefined);
  const missing = jobs.length - outcomes.length - result.failures.length;
  const remarks = [
    ...(failures.length === 0 ? [] : [`${failures.length} of its runs failed: ${failures[0]?.error.message}.`]),
    ...(missing === 0 ? [] : [`The time of the report was up: ${missing} of its ${jobs.length} runs are missing.`]),
    ...(jobs.length > 0 || !signal.aborted ? [] : ["The time of the report was up before its knee was found."]),
  ];
  if (outcomes.length === 0 || options.signal.aborted) return { ...section, remarks };
  const rows = withGaps(outcomes.map(({ row }) => row));
  const medians = medianRows(rows);
  const plot = `benchmarks/${entry.scenario}.svg`;
  await mkdir(join(docs, "benchmarks"), { recursive: true });
  await writeFile(join(docs, plot), renderFigure(figureOf(entry.scenario, outcomes, rows)));
  return { ...section, medians, tables: extraTables(simulated.scenario, outcomes, medians), plot, remarks };
}

const begin = "<!-- simulate:begin -->";
const end = "<!-- simulate:end -->";

/** The result of one entry of the report. */
export interface ReportSection {
  readonly scenario: string;
  readonly summary: string;
  readonly command: string;
  readonly medians: readonly MedianRow[];
  readonly tables: readonly TextTable[];
  /** Path of the plot, relative to the document. */
  readonly plot: string | undefined;
  /** What is missing, and why. */
  readonly remarks: readonly string[];
}

/** The part of the document between its marks. */
export function renderReport(sections: readonly ReportSection[], command: string): string {
  return [
    "## Fleets in virtual time",
    "",
    "```sh",
    command,
    "```",
    "",
    "Made by that command. The policies, the index and the mesh are the routers' own; engines, links and clients are modelled.",
    "Medians over seeds, with the extremes where they differ.",
    "",
    ...sections.flatMap(renderSection),
  ]
    .join("\n")
    .trimEnd();
}

function renderSection({ scenario, summary, command, medians, tables, plot, remarks }: ReportSection): string[] {
  return [
    `### ${scenario}`,
    "",
    summary,
    "",
    "```sh",
    command,
    "```",
    "",
    ...(medians.length === 0 ? [] : [...rowTable(medians), "", ...boundsNotes(medians).flatMap((line) => [line, ""])]),
    ...tables.flatMap(({ title, headers, lines }) => [`${title}:`, "", ...markdown(headers, lines), ""]),
    ...(plot === undefined ? [] : [`![${scenario}: plots of the table's runs](${plot})`, ""]),
    ...remarks.flatMap((remark) => [remark, ""]),
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

/**
 * Puts one scenario's section into a document with a report. It replaces the scenario's existing section, or follows
 * the others.
 *
 * @throws Error for a document without a report
 */
export function replaceSection(document: string, section: ReportSection): string {
  const from = document.indexOf(begin);
  const to = document.indexOf(end);
  if (from === -1 || to < from) throw new Error("the document has no report yet: make the whole one first");
  const report = document.slice(from + begin.length, to).trim();
  const parts = report.split(/\n(?=### )/);
  const rendered = renderSection(section).join("\n").trimEnd();
  const at = parts.findIndex((part) => part.startsWith(`### ${section.scenario}\n`));
  const others = parts.map((part) => part.trimEnd());
  if (at === -1) others.push(rendered);
  else others[at] = rendered;
  return replaceReport(document, others.join("\n\n"));
}

/**
 * Puts the report into a document: between its marks, or at the end of a document without marks.
 *
 * @throws Error for a document with only one mark, or with marks in the wrong order
 */
export function replaceReport(document: string, report: string): string {
  const from = document.indexOf(begin);
  const to = document.indexOf(end);
  const section = `${begin}\n${report}\n${end}`;
  if (from === -1 && to === -1) return `${document.trimEnd()}\n\n${section}\n`;
  if (from === -1 || to < from) throw new Error(`the document has ${begin} and ${end} not in pairs: mend it first`);
  return document.slice(0, from) + section + document.slice(to + end.length);
}
