import {
  type FigureSpread,
  type MedianRow,
  medianRows,
  type PublishedResult,
  percentile,
  type Scenario,
  type Sharing,
  type SimulateRow,
  withGaps,
} from "@espalier/simulator";
import type { RunJob, RunOutcome } from "./run-job.ts";
import { isBlind } from "./simulated-scenario.ts";

/** A column in a table of runs: a label or a figure of each row. */
type RowColumn = { readonly header: string; label(row: RowLabels): string | number | undefined } | FigureColumn;

interface FigureColumn {
  readonly header: string;
  readonly figure: string;
  readonly factor: number;
  readonly digits: number;
}

/** What is known of a row before its measurement. */
type RowLabels = Pick<
  MedianRow,
  "variant" | "policy" | "routers" | "engines" | "sharing" | "links" | "load" | "users" | "link_delay_ms"
>;

/** Labels of a planned run, as its row will have them. */
function labelsOf({ variant, policy, routers, engines, sharing, links, load, users, linkDelayMs }: RunJob): RowLabels {
  return {
    ...{ policy, routers, engines, sharing, links },
    ...(variant === undefined ? {} : { variant }),
    ...(load === undefined ? {} : { load }),
    ...(users === undefined ? {} : { users }),
    ...(linkDelayMs === undefined ? {} : { link_delay_ms: linkDelayMs }),
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
  figure("tpot p50 (ms)", "tpot_p50_s", 1, 1_000),
  figure("p99 (ms)", "tpot_p99_s", 1, 1_000),
  figure("goodput (%)", "goodput_share", 1, 100),
  figure("tokens/s out", "output_tokens_per_s", 0),
  figure("cached (%)", "cached_share", 1, 100),
  figure("pulled (%)", "pulled_share", 1, 100),
  figure("crossed (%)", "crossed", 1, 100),
  figure("network (ms)", "network_ms", 1),
  figure("followup (%)", "followup_cached_share", 1, 100),
  figure("session mean (s)", "session_mean_s", 1),
  figure("group mean (s)", "group_mean_s", 1),
  figure("load cov", "load_cov", 3),
  figure("cov in time", "load_cov_time", 3),
  figure("ttft/oracle", "oracle_gap_ttft", 3),
  figure("cached/oracle", "oracle_gap_cached", 3),
  figure("kB/s per router", "bytes_per_s_per_router", 1, 0.001),
  figure("x real time", "realtime_factor", 1),
];

const unsharedGap = figure("ttft/none", "unshared_gap_ttft", 3);

/** The columns of a plan's table: labels that differ between its runs or are always shown, and all figures. */
export function columnsOf(rows: readonly RowLabels[]): readonly RowColumn[] {
  const hasVariants = rows.some((row) => row.variant !== undefined);
  const hasUsers = rows.some((row) => row.users !== undefined);
  const hasLoads = rows.some((row) => row.load !== undefined);
  const hasDelays = rows.some((row) => row.link_delay_ms !== undefined);
  const linkModels = new Set(rows.filter(({ sharing }) => sharing === "mesh").map(({ links }) => links));
  const sharing = (row: RowLabels): string =>
    row.sharing === "mesh" && linkModels.size > 1 ? `mesh (${row.links})` : row.sharing;
  return [
    { header: "policy", label: (row) => row.policy },
    ...(hasVariants ? [{ header: "variant", label: (row: RowLabels) => row.variant }] : []),
    ...(hasLoads ? [{ header: "of knee", label: (row: RowLabels) => row.load }] : []),
    ...(hasUsers ? [{ header: "users", label: (row: RowLabels) => row.users }] : []),
    { header: "engines", label: (row) => row.engines },
    { header: "routers", label: (row) => row.routers },
    { header: "sharing", label: sharing },
    ...(hasDelays ? [{ header: "link (ms)", label: (row: RowLabels) => row.link_delay_ms }, unsharedGap] : []),
    ...figures,
  ];
}

/** A cell for a terminal: the median over seeds. */
function textCell(column: RowColumn, row: MedianRow): string {
  if ("label" in column) return String(column.label(row) ?? "-");
  const spread = row.figures[column.figure];
  return spread === undefined ? "-" : (spread.median * column.factor).toFixed(column.digits);
}

/** A cell for a document: the median over seeds, and the extremes if they differ. */
export function documentCell(column: RowColumn, row: MedianRow): string {
  if ("label" in column) return String(column.label(row) ?? "-");
  const spread = row.figures[column.figure];
  return spread === undefined ? "-" : describeSpread(spread, column.factor, column.digits);
}

function describeSpread({ median, min, max }: FigureSpread, factor: number, digits: number): string {
  const [middle, low, high] = [median, min, max].map((value) => (value * factor).toFixed(digits));
  return low === high ? `${middle}` : `${middle} (${low} .. ${high})`;
}

/** Usual maximum width of a figure. */
const figureWidth = 7;

/** A table that is written line by line as runs end. @param write receives whole lines, without line ends */
export function createRowStream(jobs: readonly RunJob[], write: (line: string) => void) {
  const labels = jobs.map(labelsOf);
  let columns = columnsOf(labels);
  const widths = new Map(columns.map((column) => [column, widthOf(column, jobs)]));
  const keys = jobs.map((job) => JSON.stringify(labelsOf(job)));
  const rows: SimulateRow[] = [];
  let pending: { readonly key: string; readonly from: number } | undefined;
  let hasHeader = false;

  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, at) => {
        const column = columns[at]!;
        const width = widths.get(column) ?? 0;
        return isText(column) ? cell.padEnd(width) : cell.padStart(width);
      })
      .join("  ")
      .trimEnd();
  const flush = (): void => {
    if (pending === undefined) return;
    const group: MedianRow | undefined = medianRows(withGaps(rows).slice(pending.from))[0];
    pending = undefined;
    if (group === undefined) return;
    if (!hasHeader) {
      columns = columns.filter((column) => !isOptional(column) || column.figure in group.figures);
      write(line(columns.map(({ header }) => header)));
      hasHeader = true;
    }
    write(line(columns.map((column) => textCell(column, group))));
  };
  return {
    /** Adds a finished run, in plan order. Writes a line after the last seed of a row. */
    add(at: number, row: SimulateRow): void {
      const key = keys[at] as string;
      if (pending?.key !== key) flush();
      pending ??= { key, from: rows.length };
      rows.push(row);
      if (keys[at + 1] !== key) flush();
    },
    /** Writes the lines that lack seeds because runs failed or were not made. */
    end: flush,
  };
}

/** Figures of fleets with regions, and of clients who end their sessions. */
const optionalFigures = ["crossed", "network_ms", "session_mean_s", "group_mean_s"];
const isOptional = (column: RowColumn): column is FigureColumn =>
  "figure" in column && optionalFigures.includes(column.figure);

const isText = (column: RowColumn): boolean =>
  "label" in column && !["engines", "routers", "of knee", "users", "link (ms)"].includes(column.header);

function widthOf(column: RowColumn, jobs: readonly RunJob[]): number {
  const widest =
    "label" in column ? jobs.map((job) => String(column.label(labelsOf(job)) ?? "-").length) : [figureWidth];
  return widest.reduce((most, width) => Math.max(most, width), column.header.length);
}

/**
 * Upper bounds of the cached share, each of the requests of its row: where clients wait for answers, a faster policy gets
 * more of their requests. One line per fleet and load where all its rows have the same bounds, else one per row.
 */
export function boundsNotes(medians: readonly MedianRow[]): readonly string[] {
  const notes = medians.flatMap((row) => {
    const text = boundsText(row);
    return text === undefined ? [] : [{ row, where: placeOf(row), text }];
  });
  const textsOf = new Map<string, Set<string>>();
  for (const { where, text } of notes) textsOf.set(where, (textsOf.get(where) ?? new Set()).add(text));
  const lines = notes.map(({ row: { policy, routers, sharing }, where, text }) => {
    const isShared = textsOf.get(where)?.size === 1;
    return isShared ? `${where}: ${text}` : `${where}, ${policy} (routers: ${routers}, sharing: ${sharing}): ${text}`;
  });
  return [...new Set(lines)];
}

function placeOf({ variant, engines, load, users }: RowLabels): string {
  return [
    ...(variant === undefined ? [] : [variant]),
    `${engines} engines`,
    ...(load === undefined ? [] : [`${load} of the knee`]),
    ...(users === undefined ? [] : [`${users} users`]),
  ].join(", ");
}

function boundsText({ figures }: MedianRow): string | undefined {
  const infinite = figures["bounds.infinite_cache"]?.median;
  if (infinite === undefined) return undefined;
  const followups = figures["bounds.infinite_cache_followup"]?.median;
  const pooled = figures["bounds.pooled_lru"]?.median;
  const parts = [
    `an infinite shared cache would hold ${percent(infinite)}`,
    ...(followups === undefined ? [] : [` (${percent(followups)} of follow-ups)`]),
    ...(pooled === undefined ? [] : [`, one cache of the size of all ${percent(pooled)}`]),
  ];
  return parts.join("");
}

const percent = (share: number): string => `${(share * 100).toFixed(1)} %`;

function nameOf({ policy, sharing, routers }: Pick<RowLabels, "policy" | "sharing" | "routers">): string {
  return `${policy}, ${sharing}, ${routers} router${routers === 1 ? "" : "s"}`;
}

/** Says of each row that lacks runs how many of them it has. @param outcomes by place of their job */
export function partialRows(jobs: readonly RunJob[], outcomes: readonly (RunOutcome | undefined)[]): readonly string[] {
  const runs = new Map<string, { made: number; planned: number }>();
  for (const [at, job] of jobs.entries()) {
    const labels = labelsOf(job);
    const row = `${placeOf(labels)}, ${nameOf(labels)}`;
    const { made, planned } = runs.get(row) ?? { made: 0, planned: 0 };
    runs.set(row, { made: made + (outcomes[at] === undefined ? 0 : 1), planned: planned + 1 });
  }
  return [...runs]
    .filter(([, { made, planned }]) => made < planned)
    .map(([row, { made, planned }]) => `${row}: ${made} of ${planned} runs.`);
}

/** A small table, for a terminal or a document. */
export interface TextTable {
  readonly title: string;
  readonly headers: readonly string[];
  readonly lines: readonly (readonly string[])[];
}

/** The additional tables for a plan's rows, without the empty ones: published results, faults, classes, sessions. */
export function extraTables(
  scenario: Scenario,
  outcomes: readonly RunOutcome[],
  medians: readonly MedianRow[],
): readonly TextTable[] {
  const tables = [publishedTable(scenario, medians), phaseTable(outcomes), classTable(medians)];
  if (scenario.users !== undefined) tables.push(sessionTable(medians));
  return tables.filter((table) => table.lines.length > 0);
}

/**
 * What the sessions of users cost, and what they waited for a whole answer. Users of a slow fleet send less of their
 * sessions, so the bound of each row is that of its own requests.
 */
function sessionTable(medians: readonly MedianRow[]): TextTable {
  return {
    title: "By session",
    headers: [
      ...["policy", "variant", "users", "routers", "sharing", "sessions", "uncached tokens", "engine time (ms)"],
      ...["e2e p50 (s)", "p99 (s)", "cached (%)", "infinite memory (%)"],
    ],
    lines: medians.map((row) => {
      const figure = (key: string, digits: number, factor = 1): string =>
        show(row.figures[key]?.median, digits, factor);
      return [
        ...[row.policy, row.variant ?? "-", String(row.users ?? "-"), String(row.routers), row.sharing],
        ...[figure("sessions", 0), figure("uncached_tokens_per_session", 0), figure("engine_ms_per_session", 0)],
        ...[figure("e2e_p50_s", 2), figure("e2e_p99_s", 2)],
        ...[figure("cached_share", 1, 100), figure("bounds.infinite_cache", 1, 100)],
      ];
    }),
  };
}

function publishedTable(scenario: Scenario, medians: readonly MedianRow[]): TextTable {
  const comparisons = compareWithPublished(scenario, medians);
  const hasNotes = comparisons.some(({ note }) => note !== undefined);
  return {
    title: `Ratios of a policy to a baseline: published, reproduced (within ${maxDeviation * 100} %?), and ours`,
    headers: [
      ...["source", "variant", "figure", "policy / baseline", "published", "reproduced", "deviation", "ours", "is"],
      ...(hasNotes ? ["what the source leaves open"] : []),
    ],
    lines: comparisons.map((one) => [
      one.source,
      one.variant ?? "-",
      one.metric,
      `${one.policy} / ${one.baseline}`,
      one.publishedUpTo === undefined
        ? one.published.toFixed(3)
        : `${one.published.toFixed(3)} .. ${one.publishedUpTo.toFixed(3)}`,
      one.reproduced?.toFixed(3) ?? "-",
      one.deviation === undefined
        ? "-"
        : `${(one.deviation * 100).toFixed(0)} %${Math.abs(one.deviation) <= maxDeviation ? "" : " (not reproduced)"}`,
      one.ours?.toFixed(3) ?? "-",
      one.ourPolicy,
      ...(hasNotes ? [one.note ?? ""] : []),
    ]),
  };
}

const phaseNames = ["before", "during", "after"] as const;

function phaseTable(outcomes: readonly RunOutcome[]): TextTable {
  const groups = new Map<string, RunOutcome[]>();
  for (const outcome of outcomes) {
    if (outcome.phases === undefined) continue;
    const name = nameOf(outcome.row);
    groups.set(name, [...(groups.get(name) ?? []), outcome]);
  }
  return {
    title: "Before, during and after the fault (medians over seeds)",
    headers: [
      ...["run", "phase", "requests", "errors", "ttft mean (s)", "p99 (s)", "followup (%)", "load cov"],
      "recovered after (s)",
    ],
    lines: [...groups].flatMap(([name, group]) =>
      phaseNames.map((phase) => {
        const figure = (key: PhaseFigure, digits: number, factor = 1): string =>
          show(medianOf(group.map(({ phases }) => phases?.[phase][key])), digits, factor);
        return [
          ...[name, phase, figure("requests", 0), figure("errors", 0), figure("ttft_mean_s", 3)],
          ...[figure("ttft_p99_s", 3), figure("followup_cached_share", 1, 100), figure("load_cov", 3)],
          phase === "after" ? show(medianOf(group.map(({ phases }) => phases?.seconds_to_recover)), 0, 1) : "",
        ];
      }),
    ),
  };
}

type PhaseFigure = "requests" | "errors" | "ttft_mean_s" | "ttft_p99_s" | "followup_cached_share" | "load_cov";

const classFigure = /^by_class\.([^.]+)\.ttft_mean_s$/;

function classTable(medians: readonly MedianRow[]): TextTable {
  return {
    title: "By class of request",
    headers: [
      ...["policy", "variant", "of knee", "routers", "sharing", "class"],
      ...["ttft mean (s)", "p50 (s)", "p99 (s)", "e2e mean (s)", "tokens/s out"],
    ],
    lines: medians.flatMap((row) =>
      Object.keys(row.figures).flatMap((key) => {
        const name = classFigure.exec(key)?.[1];
        if (name === undefined) return [];
        const figure = (part: string, digits: number): string =>
          show(row.figures[`by_class.${name}.${part}`]?.median, digits, 1);
        return [
          [
            ...[row.policy, row.variant ?? "-", String(row.load ?? "-"), String(row.routers), row.sharing, name],
            ...[figure("ttft_mean_s", 3), figure("ttft_p50_s", 3), figure("ttft_p99_s", 3)],
            ...[figure("e2e_mean_s", 2), figure("output_tokens_per_s", 0)],
          ],
        ];
      }),
    ),
  };
}

/** Undefined when a run lacks the figure: a median over the others would describe something else. */
function medianOf(values: readonly (number | undefined)[]): number | undefined {
  const known = values.filter((value) => value !== undefined);
  if (known.length === 0 || known.length < values.length) return undefined;
  return percentile(Float64Array.from(known).sort(), 50);
}

const show = (value: number | undefined, digits: number, factor: number): string =>
  value === undefined ? "-" : (value * factor).toFixed(digits);

/** Maximum deviation from the published ratio that still counts as reproduced. */
const maxDeviation = 0.25;

/**
 * Compares every published result of a scenario for which at least the baseline was run with the simulator's figures for
 * the same two policies, and for the scenario's last one. Figures are undefined when a run is missing.
 */
export function compareWithPublished(scenario: Scenario, rows: readonly MedianRow[]) {
  const ourPolicy = scenario.policies.at(-1) ?? "predicted_latency";
  return scenario.published.flatMap((result) => {
    const baseline = figureOfRun(scenario, rows, result, {
      policy: result.baseline,
      sharing: result.baselineSharing,
      variant: result.baselineVariant,
    });
    if (baseline === undefined) return [];
    const ratioOf = (policy: string, sharing?: Sharing): number | undefined => {
      const value = figureOfRun(scenario, rows, result, { policy, sharing });
      return value === undefined ? undefined : value / baseline;
    };
    const published = result.policyValue / result.baselineValue;
    const publishedUpTo = result.policyUpTo === undefined ? undefined : result.policyUpTo / result.baselineValue;
    const reproduced = ratioOf(result.policy, result.sharing);
    return [
      {
        ...{ source: result.source, variant: result.variant, metric: result.metric },
        ...{ policy: result.policy, baseline: result.baseline },
        /** Ratios of the policy to the baseline. */
        published,
        /** The other end of a published range. */
        publishedUpTo,
        reproduced,
        /** The same with the scenario's last policy instead of the published one. */
        ours: ratioOf(ourPolicy),
        ourPolicy,
        /** Reproduced divided by published, or by the nearer end of a range, minus 1; 0 within a range. */
        deviation: reproduced && reproduced / Math.min(Math.max(reproduced, published), publishedUpTo ?? published) - 1,
        /** What the source leaves open, if that explains a deviation. */
        note: result.note,
      },
    ];
  });
}

/** Sharing modes; those most similar to one router come first. */
const likeness: readonly string[] = ["mesh", "oracle", "events-only", "gossip-1s", "none"];

/**
 * Selects the run most similar to the published one: the scenario's own fleet and load, with the named sharing, or else
 * the mesh if there is a choice.
 */
function figureOfRun(
  scenario: Scenario,
  rows: readonly MedianRow[],
  { variant: named, metric }: PublishedResult,
  {
    policy,
    sharing,
    variant: name = named,
  }: { readonly policy: string; readonly sharing: Sharing | undefined; readonly variant?: string | undefined },
): number | undefined {
  const variant = scenario.variants.find((one) => one.name === name);
  const routers = variant?.routers ?? scenario.fleet.routers;
  const engines = variant?.engines ?? scenario.fleet.engines;
  const isAsked = (row: MedianRow): boolean => sharing === undefined || isBlind(policy) || row.sharing === sharing;
  const distance = (row: MedianRow): number =>
    (row.routers === routers ? 0 : 1) + 2 * likeness.indexOf(row.sharing ?? "none");
  const [best] = rows
    .filter((row) => row.policy === policy && row.variant === name && row.engines === engines && row.load === undefined)
    .filter(isAsked)
    .sort((one, other) => distance(one) - distance(other));
  return best?.figures[metric]?.median;
}

/** A table in Markdown. */
export function markdown(headers: readonly string[], lines: readonly (readonly string[])[]): readonly string[] {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(headers), `|${headers.map(() => "---").join("|")}|`, ...lines.map(line)];
}
