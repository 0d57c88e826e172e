import type { Figures, RunSummary } from "./median-spread.ts";

/** The JSON output of a suite (`--json`). `name`, `params`, `metrics` and `baselines` are the same for all. */
export interface BenchReport {
  readonly name: string;
  readonly params: Readonly<Record<string, number | string | boolean>>;
  readonly metrics: Figures;
  readonly baselines: Readonly<Record<string, Figures>>;
  /** Extremes over the runs, by system. */
  readonly spread: Readonly<Record<string, RunSummary["spread"]>>;
  /** How busy the processes were, for each run. */
  readonly shares: readonly unknown[];
  /** Reasons to doubt a figure. */
  readonly warnings: readonly string[];
}

export interface SuiteResult {
  readonly report: BenchReport;
  /** Formats the report for a terminal. */
  readonly table: (report: BenchReport) => string;
  /** Why the command fails although it has a report, as a sentence; absent when it does not fail. */
  readonly failure?: string;
}

/** One benchmark, named on the command line. */
export interface Suite {
  readonly name: string;
  /** One line. */
  readonly summary: string;
  readonly help: string;
  /**
   * @param args after the name, without `--json` and `--help`
   * @param note receives a line of progress
   * @throws UsageError for wrong arguments, Error when a measured part fails
   */
  run(args: readonly string[], note: (line: string) => void): Promise<SuiteResult>;
}
