import type { Objectives } from "@espalier/policies";
import type { RunOptions, RunRecord } from "../run.ts";
import type { Scenario } from "../scenarios/scenario.ts";
import { percentile, type ReplayRow, summarize } from "../workload/index.ts";
import { sendingSpan, toRequestResult } from "./results.ts";

/** Upper bounds of the cached share in a run: see `createBoundsMeter`. */
interface RowBounds {
  readonly infinite_cache?: number;
  readonly infinite_cache_followup?: number;
  readonly pooled_lru?: number;
}

/** One row of `espalier simulate`. Seconds are virtual. Figures without meaning in a run are absent. */
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
  /** Users of a closed loop, if their number was chosen. */
  readonly users?: number;
  /** One way between two routers, if it was chosen. */
  readonly link_delay_ms?: number;
  readonly seed: number;
  /** LoRA adapters that engines loaded; absent when no request used one. */
  readonly adapter_loads_per_1000?: number;
  /** Bytes sent over links between routers. */
  readonly bytes_per_s_per_router?: number;
  /**
   * Share of requests whose prompt was computed by another engine than the one that answered; absent when there were
   * none.
   */
  readonly split_share?: number;
  /** Share of prompt tokens that engines pulled from each other or from a pool; absent when there were none. */
  readonly pulled_share?: number;
  /** In fleets with regions: share of answers from another region than the client's, and the mean way there and back. */
  readonly crossed?: number;
  readonly network_ms?: number;
  /** Sessions that sent requests, and what one of them cost on average: prompt tokens computed, time of engines. */
  readonly sessions: number;
  /**
   * Where clients end their sessions: seconds from a session's first request to its last answer, and the same of groups of
   * sessions that are waited for together.
   */
  readonly session_mean_s?: number;
  readonly session_p99_s?: number;
  readonly group_mean_s?: number;
  readonly uncached_tokens_per_session?: number;
  readonly engine_ms_per_session?: number;
  /** 99th percentile of the times to first token in the tenth of sessions with the shortest last prompts, and the longest. */
  readonly ttft_p99_small_s?: number;
  readonly ttft_p99_large_s?: number;
  /** Requests that were rerouted because their first choice was overloaded or down. */
  readonly spills: number;
  /** Ratios to the same policy in one all-knowing router: see `withGaps`. */
  readonly oracle_gap_ttft?: number;
  readonly oracle_gap_ttft_p90?: number;
  readonly oracle_gap_cached?: number;
  readonly oracle_gap_followup?: number;
  readonly oracle_gap_load_cov_time?: number;
  /** Ratio to the same policy in as many routers that share nothing. */
  readonly unshared_gap_ttft?: number;
  readonly bounds?: RowBounds;
  /** Seconds on a real core. */
  readonly wall_s: number;
  /** Virtual seconds per real second; absent for a run that took no time. */
  readonly realtime_factor?: number;
}

/** The labels of a row. */
export type RowOptions = Pick<
  RunOptions,
  "variant" | "policy" | "routers" | "engines" | "sharing" | "links" | "users" | "linkDelayMs" | "seed"
> & {
  readonly scenario: Pick<Scenario, "name">;
  readonly objectives?: Objectives | undefined;
  /** The run's share of the knee. */
  readonly load?: number;
};

/**
 * Summarizes a run. `load_cov_time` covers the seconds until the last request is sent. While the last answers drain, a
 * few busy engines among idle ones would outweigh the whole run.
 */
export function createRow(record: RunRecord, options: RowOptions): SimulateRow {
  const { scenario, variant, policy, routers, engines, sharing, links, load, users, linkDelayMs, seed } = options;
  const { toMs } = sendingSpan(record.results);
  const summary = summarize(record.results.map(toRequestResult), {
    engines,
    speed: 1,
    objectives: options.objectives,
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
    ...(users === undefined ? {} : { users }),
    ...(linkDelayMs === undefined ? {} : { link_delay_ms: linkDelayMs }),
    seed,
    ...summary,
    engines,
    ...finite({ adapter_loads_per_1000: (1_000 * record.adapterLoads) / record.results.length }),
    ...finite({ bytes_per_s_per_router: record.linkBytes / summary.duration_s / routers }),
    ...splitShare(record),
    ...pulledShare(record),
    ...crossings(record),
    ...sessionCosts(record),
    ...sessionTimes(record),
    ...waitsBySize(record),
    spills: record.results.reduce((spills, { isSpill }) => spills + (isSpill ? 1 : 0), 0),
    ...(Object.keys(bounds).length === 0 ? {} : { bounds }),
    wall_s: record.wallS,
    ...finite({ realtime_factor: summary.duration_s / record.wallS }),
  };
}

function sessionCosts({
  results,
  engineBusyMs,
}: RunRecord): Pick<SimulateRow, "sessions" | "uncached_tokens_per_session" | "engine_ms_per_session"> {
  const sessions = new Set(results.map(({ request }) => request.session)).size;
  let uncached = 0;
  for (const { request, cachedTokens, error } of results) {
    if (error === undefined && !Number.isNaN(cachedTokens)) uncached += request.promptTokens - cachedTokens;
  }
  return {
    sessions,
    ...finite({
      uncached_tokens_per_session: uncached / sessions,
      engine_ms_per_session: engineBusyMs / sessions,
    }),
  };
}

function sessionTimes({ results }: RunRecord): Pick<SimulateRow, "session_mean_s" | "session_p99_s" | "group_mean_s"> {
  const sessions = new Map<number, Span>();
  const groups = new Map<number, Span>();
  const ended = new Set<number>();
  for (const { request, sentMs, endMs } of results) {
    widen(sessions, request.session, sentMs, endMs);
    if (request.group !== undefined) widen(groups, request.group, sentMs, endMs);
    if (request.endsSession) ended.add(request.session);
  }
  if (ended.size === 0) return {};
  const secondsOf = ({ fromMs, toMs }: Span): number => (toMs - fromMs) / 1_000;
  const times = Float64Array.from(ended, (session) => secondsOf(sessions.get(session)!)).sort();
  const waited = Float64Array.from(groups.values(), secondsOf);
  const meanOf = (values: Float64Array): number => values.reduce((sum, value) => sum + value, 0) / values.length;
  return finite({
    session_mean_s: meanOf(times),
    session_p99_s: percentile(times, 99),
    group_mean_s: meanOf(waited),
  });
}

interface Span {
  fromMs: number;
  toMs: number;
}

function widen(spans: Map<number, Span>, key: number, fromMs: number, toMs: number): void {
  const span = spans.get(key);
  if (span === undefined) {
    spans.set(key, { fromMs, toMs });
    return;
  }
  span.fromMs = Math.min(span.fromMs, fromMs);
  span.toMs = Math.max(span.toMs, toMs);
}

/** Least sessions of which a tenth says something. */
const leastSessions = 30;

function waitsBySize({ results }: RunRecord): Pick<SimulateRow, "ttft_p99_small_s" | "ttft_p99_large_s"> {
  const sessions = [...Map.groupBy(results, ({ request }) => request.session).values()]
    .map((requests) => ({ requests, tokens: Math.max(...requests.map(({ request }) => request.promptTokens)) }))
    .sort((one, other) => one.tokens - other.tokens);
  if (sessions.length < leastSessions) return {};
  const tenth = Math.ceil(sessions.length / 10);
  const p99 = (some: typeof sessions): number => {
    const answered = some.flatMap(({ requests }) => requests).filter(({ error }) => error === undefined);
    const seconds = answered.map(({ sentMs, firstTokenMs }) => (firstTokenMs - sentMs) / 1_000);
    return percentile(Float64Array.from(seconds).sort(), 99);
  };
  return finite({ ttft_p99_small_s: p99(sessions.slice(0, tenth)), ttft_p99_large_s: p99(sessions.slice(-tenth)) });
}

function splitShare({ results }: RunRecord): Pick<SimulateRow, "split_share"> {
  const split = results.filter(({ prefillEngine }) => prefillEngine !== undefined).length;
  return split === 0 ? {} : { split_share: split / results.length };
}

function pulledShare({ results }: RunRecord): Pick<SimulateRow, "pulled_share"> {
  const pulled = results.reduce((sum, { pulledTokens = 0 }) => sum + pulledTokens, 0);
  const all = results.reduce((sum, { request }) => sum + request.promptTokens, 0);
  return pulled === 0 ? {} : { pulled_share: pulled / all };
}

function crossings({ results }: RunRecord): Pick<SimulateRow, "crossed" | "network_ms"> {
  let answers = 0;
  let crossed = 0;
  let networkMs = 0;
  for (const { isCrossed, networkMs: wayMs } of results) {
    if (isCrossed === undefined || wayMs === undefined) continue;
    answers += 1;
    if (isCrossed) crossed += 1;
    networkMs += wayMs;
  }
  return finite({ crossed: crossed / answers, network_ms: networkMs / answers });
}

function finite<Names extends string>(figures: Readonly<Record<Names, number>>): Partial<Record<Names, number>> {
  const kept: Partial<Record<Names, number>> = {};
  for (const name in figures) if (Number.isFinite(figures[name])) kept[name] = figures[name];
  return kept;
}

/**
 * Adds to each row its ratios to the oracle's row with the same scenario, variant, policy, engines, load, users and seed; the
 * oracle always has one router. Adds the ratio to the row of as many routers that share nothing, too. Rows of the oracle, and rows
 * without a matching one, are unchanged. A ratio that is not a number is absent.
 *
 * @param rows of any runs, in any order; the first of several matching rows counts
 */
export function withGaps(rows: readonly SimulateRow[]): SimulateRow[] {
  const oracles = new Map<string, SimulateRow>();
  const unshared = new Map<string, SimulateRow>();
  for (const row of rows) {
    const key = runKey(row);
    if (row.sharing === "oracle" && !oracles.has(key)) oracles.set(key, row);
    const alone = `${key} ${row.routers}`;
    if (row.sharing === "none" && !unshared.has(alone)) unshared.set(alone, row);
  }
  return rows.map((row) => {
    if (row.sharing === "oracle") return row;
    const oracle = oracles.get(runKey(row));
    const alone = row.sharing === "none" ? undefined : unshared.get(`${runKey(row)} ${row.routers}`);
    return {
      ...row,
      ...(oracle && oracleGaps(row, oracle)),
      ...gap("unshared_gap_ttft", row.ttft_mean_s, alone?.ttft_mean_s),
    };
  });
}

function oracleGaps(row: SimulateRow, oracle: SimulateRow): Partial<SimulateRow> {
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

function runKey({ scenario, variant, policy, engines, load, users, seed }: SimulateRow): string {
  return JSON.stringify([scenario, variant, policy, engines, load, users, seed]);
}

/** One figure across the seeds. */
export interface FigureSpread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** What the rows of one run share across several seeds, and the spread of the rest. */
export interface MedianRow
  extends Pick<
    SimulateRow,
    "scenario" | "variant" | "policy" | "routers" | "engines" | "sharing" | "links" | "load" | "users" | "link_delay_ms"
  > {
  readonly seeds: readonly number[];
  /**
   * By row key, with a dot in nested keys, as in `bounds.pooled_lru` and `by_class.batch.ttft_p99_s`. A figure is
   * present if every row has it.
   */
  readonly figures: Readonly<Record<string, FigureSpread>>;
}

/**
 * Groups rows that differ only in their seed, in the order in which the first row of each group appears.
 *
 * @param rows including gaps where wanted, since gaps compare runs with the same seed
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
    const { variant, load, users, link_delay_ms: delayMs, ...labels } = labelsOf(group[0]!);
    return {
      ...labels,
      ...(variant === undefined ? {} : { variant }),
      ...(load === undefined ? {} : { load }),
      ...(users === undefined ? {} : { users }),
      ...(delayMs === undefined ? {} : { link_delay_ms: delayMs }),
      seeds: group.map(({ seed }) => seed),
      figures: spreads(group.map(figuresOf)),
    };
  });
}

function labelsOf(row: SimulateRow) {
  const { scenario, variant, policy, routers, engines, sharing, links, load, users, link_delay_ms } = row;
  return { scenario, variant, policy, routers, engines, sharing, links, load, users, link_delay_ms };
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
