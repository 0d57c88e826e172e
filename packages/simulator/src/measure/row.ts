import { type ReplayRow, summarize } from "@espalier/workload";
import type { RunOptions } from "../run/run-options.ts";
import type { RunRecord } from "../run/run-result.ts";
import type { Scenario } from "../scenarios/scenario.ts";
import { sendingSpan } from "./sending-span.ts";
import { toRequestResult } from "./to-request-result.ts";

/** Upper bounds of the cached share in a run: see `createBoundsMeter`. */
export interface RowBounds {
  readonly infinite_cache?: number;
  readonly infinite_cache_followup?: number;
  readonly pooled_lru?: number;
}

/** One row of `espalier simulate`. Seconds are virtual ones. What has no meaning in a run is absent. */
export interface SimulateRow extends Omit<ReplayRow, "kv_events"> {
  readonly scenario: string;
  readonly variant?: string;
  readonly policy: string;
  readonly routers: number;
  readonly engines: number;
  readonly sharing: string;
  readonly links: string;
  /** Share of the knee. */
  readonly load?: number;
  readonly seed: number;
  /** LoRA adapters that engines loaded; absent where no request was for one. */
  readonly adapter_loads_per_1000?: number;
  /** Sent over links of routers. */
  readonly bytes_per_s_per_router?: number;
  /** Share of requests whose prompt another engine computed than the one that answered; absent where none was. */
  readonly split_share?: number;
  /** Requests that went elsewhere because their first choice was overloaded or gone. */
  readonly spills: number;
  /** Ratios to what the same policy does in one all-knowing router: see `withOracleGaps`. */
  readonly oracle_gap_ttft?: number;
  readonly oracle_gap_ttft_p90?: number;
  readonly oracle_gap_cached?: number;
  readonly oracle_gap_followup?: number;
  readonly oracle_gap_load_cov_time?: number;
  readonly bounds?: RowBounds;
  /** Seconds of a real core. */
  readonly wall_s: number;
  /** Virtual seconds in a real one; absent for a run that took none. */
  readonly realtime_factor?: number;
}

/** What a row tells of the run that it is of. */
export type RowOptions = Pick<
  RunOptions,
  "variant" | "policy" | "routers" | "engines" | "sharing" | "links" | "seed"
> & {
  readonly scenario: Pick<Scenario, "name">;
  /** Share of the knee at which the run was made. */
  readonly load?: number;
};

/**
 * Sums up a run. `load_cov_time` is over the seconds until the last request is sent: while the last answers drain, a few
 * busy engines among idle ones would outweigh the whole run.
 */
export function createRow(record: RunRecord, options: RowOptions): SimulateRow {
  const { scenario, variant, policy, routers, engines, sharing, links, load, seed } = options;
  const { toMs } = sendingSpan(record.results);
  const summary = summarize(record.results.map(toRequestResult), {
    engines,
    speed: 1,
    loadSamples: record.samples.filter(({ atMs }) => atMs <= toMs).map((sample) => sample.load),
  });
  const bounds = finite({
    infinite_cache: record.bounds.infiniteCache,
    infinite_cache_followup: record.bounds.infiniteCacheFollowup,
    pooled_lru: record.bounds.pooledLru,
  });
  return {
    scenario: scenario.name,
    ...(variant === undefined ? {} : { variant }),
    policy,
    routers,
    sharing,
    links,
    ...(load === undefined ? {} : { load }),
    seed,
    ...summary,
    engines,
    ...finite({ adapter_loads_per_1000: (1_000 * record.adapterLoads) / record.results.length }),
    ...finite({ bytes_per_s_per_router: record.linkBytes / summary.duration_s / routers }),
    ...splitShare(record),
    spills: record.results.reduce((spills, { isSpill }) => spills + (isSpill ? 1 : 0), 0),
    ...(Object.keys(bounds).length === 0 ? {} : { bounds }),
    wall_s: record.wallS,
    ...finite({ realtime_factor: summary.duration_s / record.wallS }),
  };
}

function splitShare({ results }: RunRecord): Pick<SimulateRow, "split_share"> {
  const split = results.filter(({ prefillEngine }) => prefillEngine !== undefined).length;
  return split === 0 ? {} : { split_share: split / results.length };
}

function finite<Names extends string>(figures: Readonly<Record<Names, number>>): Partial<Record<Names, number>> {
  const kept: Partial<Record<Names, number>> = {};
  for (const name in figures) if (Number.isFinite(figures[name])) kept[name] = figures[name];
  return kept;
}
