import { layOutTable } from "@espalier/core";
import { type Figures, type RunSummary, summarizeRuns } from "./median-spread.ts";
import { helpOf, type Params, type ParamValues, readParams } from "./params.ts";

/** The JSON output of a suite (`--json`). `name`, `params`, `metrics` and `baselines` are the same for all. */
export interface BenchReport extends Required<Measured> {
  readonly name: string;
}

/** What a suite measured. */
export interface Measured {
  readonly params: Readonly<Record<string, number | string | boolean>>;
  readonly metrics: Figures;
  readonly baselines?: Readonly<Record<string, Figures>>;
  /** Extremes over the runs, by system; the first one is that of the metrics. */
  readonly spread?: Readonly<Record<string, RunSummary["spread"]>>;
  /** How busy the processes were, for each run. */
  readonly shares?: readonly unknown[];
  /** Reasons to doubt a figure. */
  readonly warnings?: readonly string[];
}

/** Receives a line of progress. */
export type Note = (line: string) => void;

/** A suite: its parameters, and how it is measured. Parser, help, table and JSON follow from that. */
export interface SuiteDeclaration<P extends Params, M extends Measured> {
  readonly name: string;
  /** One line. */
  readonly summary: string;
  /** What is measured, and against what: paragraphs of the help. */
  readonly about: string;
  readonly params: P;
  /** @throws UsageError for parameters that do not go together, Error when a measured part fails */
  measure(values: ParamValues<P>, note: Note): M | Promise<M>;
  /** What a terminal gets in place of the table of all figures. */
  table?(report: M & BenchReport): string;
}

interface SuiteResult {
  readonly report: BenchReport;
  /** The report for a terminal. */
  readonly table: string;
  /** Why the command fails although it has a report, as a sentence; absent when it does not fail. */
  readonly failure?: string;
}

/** One benchmark, named on the command line. */
export interface Suite {
  readonly name: string;
  readonly summary: string;
  readonly help: string;
  /**
   * @param args after the name, without `--json` and `--help`
   * @throws UsageError for wrong arguments, Error when a measured part fails
   */
  run(args: readonly string[], note: Note): Promise<SuiteResult>;
}

export function defineSuite<P extends Params, M extends Measured>(declared: SuiteDeclaration<P, M>): Suite {
  const { name, summary, about, params } = declared;
  return {
    ...{ name, summary },
    help: `Usage: npm run bench -- ${name} [options]\n\n${about.trim()}\n\n${helpOf(params)}`,
    async run(args, note) {
      const measured = await declared.measure(readParams(params, args), note);
      const report = reportOf(name, measured);
      const failures = failuresOf(report);
      return {
        report,
        table: `${declared.table?.(report) ?? figuresTable(report)}${remarks(report)}`,
        ...(failures.length > 0 ? { failure: failures.join("; ") } : {}),
      };
    },
  };
}

/** Adds what a suite has not measured. */
export function reportOf<M extends Measured>(name: string, measured: M): M & BenchReport {
  const { params, metrics, baselines = {}, spread = {}, shares = [], warnings = [] } = measured;
  return { ...measured, name, params, metrics, baselines, spread, shares, warnings };
}

/**
 * Joins runs into medians and extremes.
 *
 * @param runs the figures of each run by system; the first system's are the metrics
 */
export function joinRuns(runs: readonly Readonly<Record<string, Figures>>[]) {
  const systems = Object.keys(runs[0] ?? {});
  const summaries = systems.map((system) => [system, summarizeRuns(runs.map((run) => run[system] ?? {}))] as const);
  const medians = summaries.map(([system, summary]) => [system, summary.medians] as const);
  return {
    metrics: medians[0]?.[1] ?? {},
    baselines: Object.fromEntries(medians.slice(1)),
    spread: Object.fromEntries(summaries.map(([system, summary]) => [system, summary.spread])),
  };
}

/** Every figure in a line, with a column for each system: medians, followed by the extremes of the runs. */
export function figuresTable({ metrics, baselines, spread }: BenchReport, isShown = (_figure: string) => true): string {
  const [first = "espalier"] = Object.keys(spread);
  const systems: Readonly<Record<string, Figures>> = { [first]: metrics, ...baselines };
  const figures = new Set(Object.values(systems).flatMap((each) => Object.keys(each)));
  return layOutTable([...figures].filter(isShown), [
    { header: "figure", value: (figure) => figure },
    ...Object.entries(systems).map(([system, values]) => ({
      header: system,
      value: (figure: string) => withExtremes(figure, values[figure], spread[system]?.[figure]),
    })),
  ]);
}

/** A median followed by its extremes. */
export function withExtremes(
  figure: string,
  median: number | undefined,
  extremes: { readonly min: number; readonly max: number } | undefined,
): string | undefined {
  if (median === undefined) return undefined;
  if (!extremes) return shown(figure, median);
  return `${shown(figure, median)} (${shown(figure, extremes.min)} .. ${shown(figure, extremes.max)})`;
}

const million = 1e6;

/** Three digits: shares in percent, what is large in millions. */
export function shown(figure: string, value: number): string {
  if (Number.isNaN(value)) return "not measured";
  if (/_share(_|$)/.test(figure)) return `${(value * 100).toFixed(1)} %`;
  if (Math.abs(value) >= million) return `${digits(value / million)} M`;
  return Number.isInteger(value) ? String(value) : digits(value);
}

function digits(value: number): string {
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
}

/** What some suites measure besides figures: parts that went wrong. */
function failuresOf(report: BenchReport): readonly string[] {
  return "failures" in report ? (report.failures as readonly string[]) : [];
}

function remarks(report: BenchReport): string {
  const { params, warnings } = report;
  return [
    ...(params.pinned === false ? ["Not pinned to cores: figures are of the whole machine."] : []),
    ...warnings.map((warning) => `Warning: ${warning}.`),
    ...failuresOf(report).map((failure) => `Failed: ${failure}.`),
  ]
    .map((line) => `${line}\n`)
    .join("");
}
