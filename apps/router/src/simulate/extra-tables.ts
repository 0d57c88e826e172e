import type { MedianRow, Scenario } from "@espalier/simulator";
import { percentile } from "@espalier/workload";
import { compareWithPublished, maxDeviation } from "./published-comparison.ts";
import type { RunOutcome } from "./sim-job.ts";

/** A small table, for a terminal or a document. */
export interface TextTable {
  readonly title: string;
  readonly headers: readonly string[];
  readonly lines: readonly (readonly string[])[];
}

/** What stands beside the rows of a plan, as far as there is something to say: published results, faults, classes. */
export function extraTables(
  scenario: Scenario,
  outcomes: readonly RunOutcome[],
  medians: readonly MedianRow[],
): readonly TextTable[] {
  return [publishedTable(scenario, medians), phaseTable(outcomes), classTable(medians)].filter(
    (table) => table.lines.length > 0,
  );
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
      one.published.toFixed(3),
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
    const { policy, routers, sharing } = outcome.row;
    const name = `${policy}, ${sharing}, ${routers} router${routers === 1 ? "" : "s"}`;
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

/** Undefined when a run has no such figure: a median over the rest would be of something else. */
function medianOf(values: readonly (number | undefined)[]): number | undefined {
  const known = values.filter((value) => value !== undefined);
  if (known.length === 0 || known.length < values.length) return undefined;
  return percentile(Float64Array.from(known).sort(), 50);
}

const show = (value: number | undefined, digits: number, factor: number): string =>
  value === undefined ? "-" : (value * factor).toFixed(digits);
