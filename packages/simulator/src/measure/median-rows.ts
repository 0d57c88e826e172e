import type { SimulateRow } from "./row.ts";

/** One figure over the seeds. */
export interface FigureSpread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** What the rows of one run under several seeds have in common, and the spread of what they have not. */
export interface MedianRow
  extends Pick<SimulateRow, "scenario" | "variant" | "policy" | "routers" | "engines" | "sharing" | "links" | "load"> {
  readonly seeds: readonly number[];
  /**
   * By the key of a row; of its parts with a dot, as in `bounds.pooled_lru` and `by_class.batch.ttft_p99_s`. A figure
   * is there if every row has it.
   */
  readonly figures: Readonly<Record<string, FigureSpread>>;
}

/**
 * Puts rows together that differ in their seed alone, in the order in which the first of each came.
 *
 * @param rows with oracle gaps where wanted, since those are between runs of one seed
 */
export function medianRows(rows: readonly SimulateRow[]): MedianRow[] {
  const groups = new Map<string, SimulateRow[]>();
  for (const row of rows) {
    const key = JSON.stringify(Object.values(labelsOf(row)));
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [row]);
    else group.push(row);
  }
  return [...groups.values()].map((group) => {
    const { variant, load, ...labels } = labelsOf(group[0]!);
    return {
      ...labels,
      ...(variant === undefined ? {} : { variant }),
      ...(load === undefined ? {} : { load }),
      seeds: group.map(({ seed }) => seed),
      figures: spreads(group.map(figuresOf)),
    };
  });
}

function labelsOf({ scenario, variant, policy, routers, engines, sharing, links, load }: SimulateRow) {
  return { scenario, variant, policy, routers, engines, sharing, links, load };
}

function figuresOf(row: SimulateRow): Map<string, number> {
  const figures = new Map<string, number>();
  const { seed: _seed, ...measured } = row;
  const labels: Readonly<Record<string, unknown>> = labelsOf(row);
  collect(Object.fromEntries(Object.entries(measured).filter(([name]) => !(name in labels))), "", figures);
  return figures;
}

function collect(values: object, prefix: string, figures: Map<string, number>): void {
  for (const [name, value] of Object.entries(values)) {
    if (typeof value === "number") figures.set(prefix + name, value);
    else if (typeof value === "object" && value !== null) collect(value, `${prefix}${name}.`, figures);
  }
}

function spreads(runs: readonly ReadonlyMap<string, number>[]): Record<string, FigureSpread> {
  const found: Record<string, FigureSpread> = {};
  for (const name of runs[0]!.keys()) {
    const values = runs.map((run) => run.get(name)).filter((value) => value !== undefined);
    if (values.length < runs.length) continue;
    values.sort((one, other) => one - other);
    const median = (values[(values.length - 1) >> 1]! + values[values.length >> 1]!) / 2;
    found[name] = { median, min: values[0]!, max: values.at(-1)! };
  }
  return found;
}
