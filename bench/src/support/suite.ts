import type { Figures, RunSummary } from "./median-spread.ts";

/** What a suite prints with `--json`; `name`, `params`, `metrics` and `baselines` are the same for all. */
export interface BenchReport {
  readonly name: string;
  readonly params: Readonly<Record<string, number | string | boolean>>;
  readonly metrics: Figures;
  readonly baselines: Readonly<Record<string, Figures>>;
  /** Extremes over the runs, by system. */
  readonly spread: Readonly<Record<string, RunSummary["spread"]>>;
  /** How busy the processes were, for each run. */
  readonly shares: readonly unknown[];
  /** What to know before believing a figure. */
  readonly warnings: readonly string[];
}

export interface SuiteResult {
  readonly report: BenchReport;
  /** Lays the report out for a terminal. */
  readonly table: (report: BenchReport) => string;
  /** Why the command fails all the same, in a sentence; absent when it does not. */
  readonly failure?: string;
}

/** One benchmark that has a name on the command line. */
export interface Suite {
  readonly name: string;
  /** One line. */
  readonly summary: string;
  readonly help: string;
  /**
   * @param args what follows the name, without `--json` and `--help`
   * @param note takes a line of progress
   * @throws UsageError for wrong arguments, Error when something that is measured fails
   */
  run(args: readonly string[], note: (line: string) => void): Promise<SuiteResult>;
}
