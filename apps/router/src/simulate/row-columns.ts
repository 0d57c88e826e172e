import type { FigureSpread, MedianRow } from "@espalier/simulator";
import type { RunJob } from "./sim-job.ts";

/** A column of a table of runs: what a row is called, or one figure of it. */
export type RowColumn =
  | { readonly header: string; label(row: RowLabels): string | number | undefined }
  | { readonly header: string; readonly figure: string; readonly factor: number; readonly digits: number };

/** What is known of a row before it is measured. */
export type RowLabels = Pick<MedianRow, "variant" | "policy" | "routers" | "engines" | "sharing" | "links" | "load">;

/** Labels of a planned run, as its row will have them. */
export function labelsOf({ variant, policy, routers, engines, sharing, links, load }: RunJob): RowLabels {
  return {
    ...{ policy, routers, engines, sharing, links },
    ...(variant === undefined ? {} : { variant }),
    ...(load === undefined ? {} : { load }),
  };
}

const figure = (header: string, key: string, digits: number, factor = 1): RowColumn => ({
  header,
  figure: key,
  digits,
  factor,
});

const figures: readonly RowColumn[] = [
  figure("requests", "requests", 0),
  figure("errors", "errors", 0),
  figure("ttft mean (s)", "ttft_mean_s", 3),
  figure("p50 (s)", "ttft_p50_s", 3),
  figure("p90 (s)", "ttft_p90_s", 3),
  figure("p99 (s)", "ttft_p99_s", 3),
  figure("e2e mean (s)", "e2e_mean_s", 2),
  figure("tokens/s out", "output_tokens_per_s", 0),
  figure("cached (%)", "cached_share", 1, 100),
  figure("followup (%)", "followup_cached_share", 1, 100),
  figure("load cov", "load_cov", 3),
  figure("cov in time", "load_cov_time", 3),
  figure("ttft/oracle", "oracle_gap_ttft", 3),
  figure("cached/oracle", "oracle_gap_cached", 3),
  figure("kB/s per router", "bytes_per_s_per_router", 1, 0.001),
  figure("x real time", "realtime_factor", 1),
];

/** The columns of a plan's table: labels that differ between its runs, or are always told, and all figures. */
export function columnsOf(rows: readonly RowLabels[]): readonly RowColumn[] {
  const hasVariants = rows.some((row) => row.variant !== undefined);
  const hasLoads = rows.some((row) => row.load !== undefined);
  const linkModels = new Set(rows.filter(({ sharing }) => sharing === "mesh").map(({ links }) => links));
  const sharing = (row: RowLabels): string =>
    row.sharing === "mesh" && linkModels.size > 1 ? `mesh (${row.links})` : row.sharing;
  return [
    { header: "policy", label: (row) => row.policy },
    ...(hasVariants ? [{ header: "variant", label: (row: RowLabels) => row.variant }] : []),
    ...(hasLoads ? [{ header: "of knee", label: (row: RowLabels) => row.load }] : []),
    { header: "engines", label: (row) => row.engines },
    { header: "routers", label: (row) => row.routers },
    { header: "sharing", label: sharing },
    ...figures,
  ];
}

/** A cell for a terminal: the median over seeds. */
export function textCell(column: RowColumn, row: MedianRow): string {
  if ("label" in column) return String(column.label(row) ?? "-");
  const spread = row.figures[column.figure];
  return spread === undefined ? "-" : (spread.median * column.factor).toFixed(column.digits);
}

/** A cell for a document: the median over seeds, and the extremes where they differ. */
export function documentCell(column: RowColumn, row: MedianRow): string {
  if ("label" in column) return String(column.label(row) ?? "-");
  const spread = row.figures[column.figure];
  return spread === undefined ? "-" : describeSpread(spread, column.factor, column.digits);
}

function describeSpread({ median, min, max }: FigureSpread, factor: number, digits: number): string {
  const [middle, low, high] = [median, min, max].map((value) => (value * factor).toFixed(digits));
  return low === high ? `${middle}` : `${middle} (${low} .. ${high})`;
}
