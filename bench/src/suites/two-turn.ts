import { parseArgs } from "node:util";
import { systemClock, systemScheduler } from "@espalier/core";
import { formatTable } from "@espalier/simulator";
import { type Figures, summarizeRuns } from "../support/median-spread.ts";
import { readWhole } from "../support/read-options.ts";
import type { BenchReport, Suite } from "../support/suite.ts";
import { firstMessageTokens, laterMessageTokens, systemTokens } from "./two-turn-conversations.ts";
import {
  afterKillMs,
  enginePreset,
  measuredPolicy,
  measureTwoTurns,
  type TwoTurnRun,
  type TwoTurnSizes,
} from "./two-turn-measure.ts";

/** The report with one row for each time between the turns. */
export interface TwoTurnReport extends BenchReport {
  readonly w_sweep: readonly SweepRow[];
}

interface SweepRow {
  readonly w_ms: number;
  /** The median of the runs, and their extremes. */
  readonly same_engine_share: number;
  readonly min: number;
  readonly max: number;
}

interface TwoTurnPlan {
  readonly runs: number;
  readonly sizes: TwoTurnSizes;
}

const help = `Usage: npm run bench -- two-turn [options]

Conversations of two turns through several routers under ${measuredPolicy}: the first turn at one router, the second one at
another, W after the first has left the client. Counted are the conversations both of whose turns went to one engine,
with the mesh, through Redis, with KV events, after the death of the router of the first turns, and without sharing,
where it must be chance.

  --conversations N  of each measurement (200)
  --warm-up N        conversations that each fleet sees before (200)
  --rate X           conversations that begin in a second (40)
  --wait MS          W (50)
  --engines N        simulated engines (8)
  --speed X          engine seconds per real second (4)
  --runs N           runs with fresh processes, of which the medians count (3)
  --quick            one run, without the sweep of W
  --json             one JSON object on standard output
`;

/** Above this share without the mesh, turns meet by chance and the figures mean nothing. */
export const maxShareByChance = 0.2;
const sweepMs = [10, 25, 50, 100, 200, 500];

/** Whether a conversation that changes routers reaches its engine again. */
export const twoTurnSuite: Suite = {
  name: "two-turn",
  summary: "share of conversations that change routers and still find their engine, with the mesh and without",
  help,
  async run(args, note) {
    const { runs: count, sizes } = readTwoTurnPlan(args);
    const runs: TwoTurnRun[] = [];
    for (let index = 0; index < count; index++) {
      runs.push(
        await measureTwoTurns({
          sizes,
          seed: index + 1,
          ports: { clock: systemClock, scheduler: systemScheduler },
          note: (line) => note(`run ${index + 1} of ${count}: ${line}`),
        }),
      );
    }
    const report = twoTurnReport(runs, sizes);
    return { report, table: () => twoTurnTable(report) };
  },
};

/** @throws UsageError */
export function readTwoTurnPlan(args: readonly string[]): TwoTurnPlan {
  const text = { type: "string" } as const;
  const { values } = parseArgs({
    args: [...args],
    options: {
      conversations: text,
      "warm-up": text,
      rate: text,
      wait: text,
      engines: text,
      speed: text,
      runs: text,
      quick: { type: "boolean" },
    },
  });
  const quick = values.quick === true;
  const waitMs = readWhole("--wait", values.wait, { standard: 50, max: 60_000 });
  return {
    runs: readWhole("--runs", values.runs, { standard: quick ? 1 : 3, max: 100 }),
    sizes: {
      conversations: readWhole("--conversations", values.conversations, { standard: 200, max: 10_000 }),
      warmUpConversations: readWhole("--warm-up", values["warm-up"], { standard: 200, max: 10_000 }),
      ratePerSecond: readWhole("--rate", values.rate, { standard: 40, max: 1_000 }),
      waitMs,
      engines: readWhole("--engines", values.engines, { standard: 8, max: 256 }),
      speed: readWhole("--speed", values.speed, { standard: 4, max: 1_000 }),
      sweepMs: quick ? [] : sweepMs.filter((each) => each !== waitMs),
    },
  };
}

/** Joins runs into medians. */
export function twoTurnReport(runs: readonly TwoTurnRun[], sizes: TwoTurnSizes): TwoTurnReport {
  const mesh = summarizeRuns(runs.map((run) => run.mesh));
  const without = summarizeRuns(runs.map((run) => run.withoutMesh));
  const sweep = summarizeRuns(runs.map((run) => run.sweep));
  const withoutShare = without.medians.same_engine_share!;
  const highest = Math.max(withoutShare, without.medians.same_engine_share_3_routers!);
  const warnings =
    highest > maxShareByChance
      ? [`void: without the mesh ${percent(highest)} stayed at their engine, so it was not the mesh that kept them`]
      : [];
  const { sweepMs: _, ...params } = sizes;
  return {
    name: "two-turn",
    params: {
      ...params,
      runs: runs.length,
      policy: measuredPolicy,
      preset: enginePreset,
      system_tokens: systemTokens,
      first_message_tokens: firstMessageTokens,
      later_message_tokens: laterMessageTokens,
      after_kill_ms: afterKillMs,
    },
    metrics: { ...mesh.medians, without_mesh_share: withoutShare },
    baselines: { without_mesh: without.medians },
    spread: { mesh: mesh.spread, without_mesh: without.spread },
    shares: [],
    warnings,
    w_sweep: Object.entries(sweep.medians).map(([waitMs, share]) => ({
      w_ms: Number(waitMs),
      same_engine_share: share,
      ...sweep.spread[waitMs]!,
    })),
  };
}

/** The report for a terminal: medians, followed by the extremes of the runs. */
export function twoTurnTable({ metrics, baselines, spread, warnings, w_sweep: sweep }: TwoTurnReport): string {
  const without: Figures = baselines.without_mesh ?? {};
  const cell = (figure: string, value: number | undefined, system: string): string | undefined => {
    if (value === undefined) return undefined;
    const extremes = spread[system]?.[figure];
    const show = figure.endsWith("_share") || figure.includes("_share_") ? percent : short;
    return extremes ? `${show(value)} (${show(extremes.min)} .. ${show(extremes.max)})` : show(value);
  };
  const figures = formatTable(
    Object.keys(metrics).filter((name) => name !== "without_mesh_share"),
    [
      { header: "figure", value: (name) => name },
      { header: "with the mesh", value: (name) => cell(name, metrics[name], "mesh") },
      { header: "without", value: (name) => cell(name, without[name], "without_mesh") },
    ],
  );
  const rows = formatTable(sweep, [
    { header: "W (ms)", value: (row) => row.w_ms },
    {
      header: "same engine",
      value: (row) => `${percent(row.same_engine_share)} (${percent(row.min)} .. ${percent(row.max)})`,
    },
  ]);
  return `${figures}\n${rows}${warnings.map((warning) => `Warning: ${warning}.\n`).join("")}`;
}

function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

function short(value: number): string {
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(2);
}
