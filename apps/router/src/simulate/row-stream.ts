import { type MedianRow, medianRows, type SimulateRow, withOracleGaps } from "@espalier/simulator";
import { columnsOf, labelsOf, type RowColumn, textCell } from "./row-columns.ts";
import type { RunJob } from "./sim-job.ts";

/** A table whose lines come as their runs end. */
export interface RowStream {
  /** A run of the plan has ended, in the order of the plan. Writes a line when it was the last of its seeds. */
  add(at: number, row: SimulateRow): void;
  /** Writes the lines of those that lack seeds, because runs failed or were not made. */
  end(): void;
}

/** Figures are mostly no wider than this. */
const figureWidth = 7;

/** @param write is given whole lines, without their ends */
export function createRowStream(jobs: readonly RunJob[], write: (line: string) => void): RowStream {
  const labels = jobs.map(labelsOf);
  const columns = columnsOf(labels);
  const widths = columns.map((column) => widthOf(column, jobs));
  const keys = jobs.map((job) => JSON.stringify(labelsOf(job)));
  const rows: SimulateRow[] = [];
  let pending: { readonly key: string; readonly from: number } | undefined;
  let hasHeader = false;

  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, at) => (isText(columns[at]) ? cell.padEnd(widths[at] ?? 0) : cell.padStart(widths[at] ?? 0)))
      .join("  ")
      .trimEnd();
  const flush = (): void => {
    if (pending === undefined) return;
    const group: MedianRow | undefined = medianRows(withOracleGaps(rows).slice(pending.from))[0];
    pending = undefined;
    if (group === undefined) return;
    if (!hasHeader) write(line(columns.map(({ header }) => header)));
    hasHeader = true;
    write(line(columns.map((column) => textCell(column, group))));
  };
  return {
    add(at, row) {
      const key = keys[at] as string;
      if (pending?.key !== key) flush();
      pending ??= { key, from: rows.length };
      rows.push(row);
      if (keys[at + 1] !== key) flush();
    },
    end: flush,
  };
}

const isText = (column: RowColumn | undefined): boolean =>
  column !== undefined && "label" in column && !["engines", "routers", "of knee"].includes(column.header);

function widthOf(column: RowColumn, jobs: readonly RunJob[]): number {
  const widest =
    "label" in column ? jobs.map((job) => String(column.label(labelsOf(job)) ?? "-").length) : [figureWidth];
  return widest.reduce((most, width) => Math.max(most, width), column.header.length);
}
