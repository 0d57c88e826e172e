/** Named numbers. A number that could not be measured is absent. */
export type Figures = Readonly<Record<string, number>>;

/** The medians of several runs, and their extremes. */
export interface RunSummary {
  readonly medians: Figures;
  readonly spread: Readonly<Record<string, { readonly min: number; readonly max: number }>>;
}

/** Summarises runs figure by figure. A figure must be in all of them to be in the summary. */
export function summarizeRuns(runs: readonly Figures[]): RunSummary {
  const medians: Record<string, number> = {};
  const spread: Record<string, { min: number; max: number }> = {};
  for (const name of Object.keys(runs[0] ?? {})) {
    const values = runs.map((run) => run[name]).filter((value) => value !== undefined);
    if (values.length < runs.length) continue;
    values.sort((one, other) => one - other);
    medians[name] = (values[(values.length - 1) >> 1]! + values[values.length >> 1]!) / 2;
    spread[name] = { min: values[0]!, max: values.at(-1)! };
  }
  return { medians, spread };
}
