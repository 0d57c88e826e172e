import { layOutTable } from "@espalier/core";
import { bareName, type Contender, ownName } from "../data-path/contenders.ts";
import { loadParams } from "../data-path/loads.ts";
import { type DataPathRun, saturationWarnings } from "../data-path/measure-data-path.ts";
import type { TurnShare } from "../peers/measure-turns.ts";
import { type Figures, type RunSummary, summarizeRuns } from "../support/median-spread.ts";
import { reportOf, withExtremes } from "../support/suite.ts";
import type { PeersPlan } from "./peers-plan.ts";

/** A product that could not be installed or failed, and why. */
export interface NotHad {
  readonly name: string;
  readonly reason: string;
}

/** All measurements of a run of the suite. */
export interface PeersRun {
  readonly contenders: readonly Contender[];
  readonly runs: readonly DataPathRun[];
  /** Of all runs. */
  readonly turns: readonly TurnShare[];
  readonly notHad: readonly NotHad[];
  readonly plan: PeersPlan;
  /** Cores of load generator and engines; undefined when nothing is pinned. */
  readonly otherCores: number | undefined;
}

/** One product: its name, its release, the policy of its figures, and the figures. */
interface PeerRow {
  readonly name: string;
  readonly version: string;
  readonly policy: string;
  readonly [figure: string]: string | number;
}

/** One line of the two-turn test: medians of the runs, with their extremes. */
export interface TurnRow {
  readonly name: string;
  readonly sharing: "mesh" | "none";
  readonly w_ms: number;
  readonly same_engine_share: number;
  readonly min: number;
  readonly max: number;
  readonly largest_engine_share: number;
}

/** Joins each product's successful runs into medians; a product without one has no row. */
export function peersReport(run: PeersRun) {
  const { contenders, runs, turns, notHad, plan, otherCores } = run;
  const rows: PeerRow[] = [];
  const spread: Record<string, RunSummary["spread"]> = {};
  const failed: NotHad[] = [];
  const warnings: string[] = [];
  for (const { name, version, policy } of contenders) {
    const outcomes = runs.flatMap((each) => each.outcomes.get(name) ?? []);
    const figures = outcomes.flatMap((outcome) => ("figures" in outcome ? [outcome.figures] : []));
    const reasons = outcomes.flatMap((outcome) => ("failure" in outcome ? [outcome.failure] : []));
    if (figures.length === 0) {
      failed.push({ name, reason: reasons[0] ?? "it was not measured" });
      continue;
    }
    warnings.push(...reasons.map((reason) => `${name} failed once: ${reason}`));
    const summary = summarizeRuns(figures);
    rows.push({ name, version, policy, ...summary.medians });
    spread[name] = summary.spread;
  }
  if (plan.parts.loads && runs.length < plan.runs)
    warnings.push(`${runs.length} of ${plan.runs} runs: there was no time for more`);
  const direct = summarizeRuns(runs.map((each) => each.direct));
  return reportOf("peers", {
    params: { ...paramsOf(plan, otherCores !== undefined), runs: runs.length },
    metrics: figuresOfRow(rows, ownName),
    baselines: { bare: figuresOfRow(rows, bareName), direct: direct.medians },
    spread: { ...spread, direct: direct.spread },
    shares: runs.map((each) => each.shares),
    warnings: [...warnings, ...saturationWarnings(runs, otherCores)],
    rows,
    two_turn: turnRows(turns),
    not_had: [...notHad, ...failed],
  });
}

function figuresOfRow(rows: readonly PeerRow[], name: string): Figures {
  const row = rows.find((each) => each.name === name);
  return Object.fromEntries(Object.entries(row ?? {}).filter(([, value]) => typeof value === "number")) as Figures;
}

function paramsOf({ sizes, turns }: PeersPlan, isPinned: boolean) {
  const { waitsMs: _, ...turnParams } = turns;
  return {
    ...{ ...sizes, ...loadParams, pinned: isPinned },
    ...Object.fromEntries(Object.entries(turnParams).map(([name, value]) => [`two_turn_${name}`, value])),
  };
}

function turnRows(turns: readonly TurnShare[]): readonly TurnRow[] {
  const groups = new Map<string, TurnShare[]>();
  for (const turn of turns) {
    const key = `${turn.name} ${turn.isMesh} ${turn.waitMs}`;
    groups.set(key, [...(groups.get(key) ?? []), turn]);
  }
  return [...groups.values()].map((group) => {
    const { name, isMesh, waitMs } = group[0]!;
    const { medians, spread } = summarizeRuns(
      group.map(({ sameEngineShare: share, largestEngineShare: largest }) => ({ share, largest })),
    );
    return {
      name,
      sharing: isMesh ? "mesh" : "none",
      w_ms: waitMs,
      same_engine_share: medians.share!,
      ...spread.share!,
      largest_engine_share: medians.largest!,
    };
  });
}

/** One column per product, medians with the extremes of the runs; then where second turns went. */
export function peersTable({ rows, spread, two_turn: turns, not_had: notHad }: ReturnType<typeof peersReport>): string {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((name) => name !== "name");
  const cell = (row: PeerRow, figure: string): string | undefined => {
    const value = row[figure];
    return typeof value === "number" ? withExtremes(figure, value, spread[row.name]?.[figure]) : value;
  };
  const figures = layOutTable(names, [
    { header: "figure", value: (name) => name },
    ...rows.map((row) => ({ header: row.name, value: (name: string) => cell(row, name) })),
  ]);
  const shares = layOutTable(turns, [
    { header: "two turns at", value: (row) => row.name },
    { header: "sharing", value: (row) => row.sharing },
    { header: "W (ms)", value: (row) => row.w_ms },
    { header: "same engine", value: (row) => withExtremes("_share", row.same_engine_share, row) },
    { header: "largest engine", value: (row) => withExtremes("_share", row.largest_engine_share, undefined) },
  ]);
  const missing = notHad.map(({ name, reason }) => `Skipped: ${name}: ${reason}\n`).join("");
  return `${figures}\n${turns.length > 0 ? shares : ""}${missing}`;
}
