import { existsSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { systemClock, systemScheduler } from "@espalier/common";
import { medianRows, renderFigure, scenario, withOracleGaps } from "@espalier/simulator";
import { writeNote } from "../output/write.ts";
import { executeJobs } from "./execute-jobs.ts";
import { extraTables } from "./extra-tables.ts";
import { figureOf } from "./figures.ts";
import { noteFailures, prepareRuns } from "./prepare-runs.ts";
import { commandOf, type ReportEntry } from "./report-plan.ts";
import { type ReportSection, renderReport, replaceReport, replaceSection } from "./report-section.ts";
import { readSelection } from "./simulate-options.ts";
import { loadScenario } from "./simulated-scenario.ts";

export interface ReportOptions {
  readonly plan: readonly ReportEntry[];
  /** Whether what the document has of other scenarios goes. */
  readonly isWhole: boolean;
  readonly isQuick: boolean;
  /** Runs at a time. */
  readonly size: number;
  /** Runs that have not ended by then are left out; no scenario may take more than its part of it. */
  readonly budgetMs: number;
  /** Holds `BENCHMARKS.md`, and gets the plots under `benchmarks/`. */
  readonly docs: string;
  /** Holds the traces that scenarios ask for by name. */
  readonly traces: string;
  readonly signal: AbortSignal;
}

/**
 * Makes the runs of a plan and writes what they came to into the document. Ended by the signal, it writes nothing.
 *
 * @returns whether all runs were made
 * @throws Error when there is no document
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

/** A scenario may take so many times its equal share of the time that is left, since most take less. */
const generosity = 3;

/** @param work is given a signal that aborts when the time is up, or when `signal` does */
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
  const rows = withOracleGaps(outcomes.map(({ row }) => row));
  const medians = medianRows(rows);
  const plot = `benchmarks/${entry.scenario}.svg`;
  await mkdir(join(docs, "benchmarks"), { recursive: true });
  await writeFile(join(docs, plot), renderFigure(figureOf(entry.scenario, outcomes, rows)));
  return { ...section, medians, tables: extraTables(simulated.scenario, outcomes, medians), plot, remarks };
}
