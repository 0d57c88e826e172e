import type { SimulateRow } from "./row.ts";

/**
 * Adds to each row its ratios to the oracle's row of the same scenario, variant, policy, engines, load and seed, whose
 * number of routers is always one. Rows of the oracle itself, and rows without one, stay as they are; a ratio that is
 * not a number is absent.
 *
 * @param rows of any runs, in any order; the first of several equal rows of the oracle counts
 */
export function withOracleGaps(rows: readonly SimulateRow[]): SimulateRow[] {
  const oracles = new Map<string, SimulateRow>();
  for (const row of rows) {
    const key = runKey(row);
    if (row.sharing === "oracle" && !oracles.has(key)) oracles.set(key, row);
  }
  return rows.map((row) => {
    const oracle = row.sharing === "oracle" ? undefined : oracles.get(runKey(row));
    return oracle === undefined ? row : { ...row, ...gaps(row, oracle) };
  });
}

function gaps(row: SimulateRow, oracle: SimulateRow): Partial<SimulateRow> {
  return {
    ...gap("oracle_gap_ttft", row.ttft_mean_s, oracle.ttft_mean_s),
    ...gap("oracle_gap_ttft_p90", row.ttft_p90_s, oracle.ttft_p90_s),
    ...gap("oracle_gap_cached", row.cached_share, oracle.cached_share),
    ...gap("oracle_gap_followup", row.followup_cached_share, oracle.followup_cached_share),
    ...gap("oracle_gap_load_cov_time", row.load_cov_time, oracle.load_cov_time),
  };
}

function gap(name: keyof SimulateRow, own: number | undefined, oracle: number | undefined): Partial<SimulateRow> {
  return own === undefined || oracle === undefined || oracle === 0 ? {} : { [name]: own / oracle };
}

function runKey({ scenario, variant, policy, engines, load, seed }: SimulateRow): string {
  return JSON.stringify([scenario, variant, policy, engines, load, seed]);
}
