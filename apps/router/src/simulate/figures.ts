import {
  type Figure,
  type MedianRow,
  maxLineNames,
  medianRows,
  type PlotAxis,
  type PlotLine,
  type PlotPanel,
  type SimulateRow,
} from "@espalier/simulator";
import type { RunOutcome } from "./run-job.ts";

/** Maximum fleets and loads with panels; the table shows the others. */
const maxCases = 7;
/** More bands than this hide each other. */
const maxBands = 3;
/** Upper end of a drawn distribution: the last requests are noise. */
const maxShare = 0.995;

/**
 * Renders the figure of a command's runs. For the first seed and the largest number of routers it shows the
 * distribution of TTFT, load over time, and, with a fault, the cached share over time. It also shows medians over seeds
 * by routers, engines and load, if these vary.
 *
 * @param rows of all outcomes, with their gaps
 */
export function figureOf(title: string, outcomes: readonly RunOutcome[], rows: readonly SimulateRow[]): Figure {
  const nameOf = namesFor(rows);
  const names = [...new Set(rows.map(nameOf))].slice(0, maxLineNames);
  const kept = outcomes.filter(({ row }) => names.includes(nameOf(row)));
  const cases = casesOf(kept).slice(0, maxCases);
  const medians = medianRows(rows.filter((row) => names.includes(nameOf(row))));
  return {
    title,
    description: `Runs of ${names.join("; ")}. Each figure is also in the table.`,
    panels: [
      ...cases.map((one) => ttftPanel(one, nameOf)),
      ...cases.map((one) => loadPanel(one, nameOf)),
      ...cases.filter(({ outcomes: [first] }) => first?.phases).map((one) => cachedPanel(one, nameOf)),
      ...comparisonPanels(medians, nameOf),
    ],
  };
}

type Labels = Pick<SimulateRow, "policy" | "sharing" | "routers" | "links">;
type NameOf = (row: Labels) => string;

/** The label that distinguishes lines: the policy, and what is shared if that varies for any policy. */
function namesFor(rows: readonly SimulateRow[]): NameOf {
  const sharings = new Map<string, Set<string>>();
  const sharingOf = ({ sharing, links }: Labels): string =>
    sharing === "mesh" && hasBoth ? `mesh (${links})` : sharing;
  const hasBoth = new Set(rows.filter(({ sharing }) => sharing === "mesh").map(({ links }) => links)).size > 1;
  for (const row of rows) sharings.set(row.policy, (sharings.get(row.policy) ?? new Set()).add(sharingOf(row)));
  return (row) => ((sharings.get(row.policy)?.size ?? 0) > 1 ? `${row.policy}, ${sharingOf(row)}` : row.policy);
}

interface FigureCase {
  readonly title: string;
  readonly outcomes: readonly RunOutcome[];
}

function casesOf(outcomes: readonly RunOutcome[]): readonly FigureCase[] {
  const variants = new Set(outcomes.map(({ row }) => row.variant));
  const engineCounts = new Set(outcomes.map(({ row }) => row.engines));
  const cases = new Map<string, RunOutcome[]>();
  for (const outcome of firstOfGroups(outcomes)) {
    const { variant, engines, load } = outcome.row;
    const title = [
      ...(variants.size > 1 ? [variant ?? "as published"] : []),
      ...(engineCounts.size > 1 ? [`${engines} engines`] : []),
      ...(load === undefined ? [] : [`${load} of the knee`]),
    ].join(", ");
    cases.set(title, [...(cases.get(title) ?? []), outcome]);
  }
  return [...cases].map(([title, group]) => ({ title, outcomes: group }));
}

/** Among runs that differ only in seed or number of routers: the first seed with the most routers. */
function firstOfGroups(outcomes: readonly RunOutcome[]): readonly RunOutcome[] {
  const kept = new Map<string, RunOutcome>();
  for (const outcome of outcomes) {
    const { policy, sharing, links, variant, engines, load, routers } = outcome.row;
    const key = JSON.stringify([policy, sharing, links, variant, engines, load]);
    if ((kept.get(key)?.row.routers ?? 0) < routers) kept.set(key, outcome);
  }
  return [...kept.values()];
}

const titled = (what: string, title: string): string => (title === "" ? what : `${what}: ${title}`);

function ttftPanel({ title, outcomes }: FigureCase, nameOf: NameOf): PlotPanel {
  return {
    title: titled("Time to first token", title),
    x: { label: "share of requests (%)", from: 0 },
    y: { label: "TTFT (s)", kind: "log" },
    lines: outcomes.map(({ row, ttft }) => ({
      name: nameOf(row),
      points: ttft
        .filter(({ share }) => share <= maxShare)
        .map(({ share, seconds }) => ({ x: share * 100, y: seconds })),
    })),
  };
}

function loadPanel({ title, outcomes }: FigureCase, nameOf: NameOf): PlotPanel {
  const hasBands = outcomes.length <= maxBands;
  return {
    title: titled(hasBands ? "Load, least and most loaded engine" : "Load of the most loaded engine", title),
    x: { label: "time (s)", from: 0 },
    y: { label: "running and waiting", from: 0 },
    lines: outcomes.map(({ row, load }) => ({
      name: nameOf(row),
      points: load.map(({ atS, mean, min, max }) =>
        hasBands ? { x: atS, y: mean, low: min, high: max } : { x: atS, y: max },
      ),
    })),
  };
}

function cachedPanel({ title, outcomes }: FigureCase, nameOf: NameOf): PlotPanel {
  return {
    title: titled("Follow-ups, cached share over time", title),
    x: { label: "time (s)", from: 0 },
    y: { label: "cached (%)", from: 0 },
    lines: outcomes.map(({ row, cached }) => ({
      name: nameOf(row),
      points: cached.map(({ atS, followupShare }) => ({ x: atS, y: (followupShare ?? Number.NaN) * 100 })),
    })),
  };
}

/** A figure of rows by a varying parameter. */
interface Comparison {
  readonly title: string;
  readonly x: PlotAxis;
  readonly xOf: (row: MedianRow) => number | undefined;
  readonly y: PlotAxis;
  readonly figure: string;
  readonly factor: number;
}

function comparisonPanels(medians: readonly MedianRow[], nameOf: NameOf): readonly PlotPanel[] {
  const followups = medians.some(({ figures }) => "followup_cached_share" in figures);
  const cached = {
    figure: followups ? "followup_cached_share" : "cached_share",
    factor: 100,
    y: { label: followups ? "cached, follow-ups (%)" : "cached (%)", from: 0 },
  };
  const ttft = { figure: "ttft_mean_s", factor: 1, y: { label: "TTFT mean (s)", from: 0 } };
  const routers = axis(
    "routers",
    medians.map((row) => row.routers),
  );
  const engines = axis(
    "engines",
    medians.map((row) => row.engines),
  );
  const comparisons: readonly Comparison[] = [
    { title: "Cached share by routers", x: routers, xOf: (row) => row.routers, ...cached },
    { title: "Cached share by engines", x: engines, xOf: (row) => row.engines, ...cached },
    { title: "Time to first token by load", x: { label: "share of the knee" }, xOf: (row) => row.load, ...ttft },
  ];
  return comparisons
    .filter(({ xOf }) => new Set(medians.filter(isShared).map(xOf)).size > 1)
    .map((comparison) => comparisonPanel(comparison, medians, nameOf));
}

/** The oracle has one router, regardless of the others. */
const isShared = (row: MedianRow): boolean => row.sharing !== "oracle";

const axis = (label: string, counts: readonly number[]): PlotAxis => ({
  label,
  kind: "log",
  marks: [...new Set(counts)].sort((one, other) => one - other),
});

function comparisonPanel(comparison: Comparison, medians: readonly MedianRow[], nameOf: NameOf): PlotPanel {
  const { title, x, xOf, y, figure, factor } = comparison;
  const lines = new Map<string, { x: number; y: number; low: number; high: number }[]>();
  for (const row of medians) {
    const spread = row.figures[figure];
    const at = xOf(row);
    if (spread === undefined || at === undefined) continue;
    const point = { x: at, y: spread.median * factor, low: spread.min * factor, high: spread.max * factor };
    lines.set(nameOf(row), [...(lines.get(nameOf(row)) ?? []), point]);
  }
  return {
    title,
    x,
    y,
    lines: [...lines].map(
      ([name, points]): PlotLine => ({ name, points: points.sort((one, other) => one.x - other.x) }),
    ),
  };
}
