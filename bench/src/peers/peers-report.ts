import { formatTable } from "@espalier/simulator";
import { bareName, type Contender, ownName } from "../data-path/contenders.ts";
import {
  burstStreams,
  concurrency,
  largeBodyBytes,
  longBodyBytes,
  longestBodyBytes,
  smallBodyBytes,
  steadyPerSecond,
  streamGapMs,
  streamsPerSecond,
  streamTokens,
} from "../data-path/loads.ts";
import { type DataPathRun, saturationWarnings } from "../data-path/measure-data-path.ts";
import { type Figures, type RunSummary, summarizeRuns } from "../support/median-spread.ts";
import type { BenchReport } from "../support/suite.ts";
import type { TurnShare } from "./measure-turns.ts";
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
export interface PeerRow {
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

export interface PeersReport extends BenchReport {
  readonly rows: readonly PeerRow[];
  readonly two_turn: readonly TurnRow[];
  /** What was requested but not available. */
  readonly not_had: readonly NotHad[];
}

/** Joins each product's successful runs into medians; a product without one has no row. */
export function peersReport(run: PeersRun): PeersReport {
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
  return {
    name: "peers",
    params: { ...paramsOf(plan, otherCores !== undefined), runs: runs.length },
    metrics: figuresOfRow(rows, ownName),
    baselines: { bare: figuresOfRow(rows, bareName), direct: direct.medians },
    spread: { ...spread, direct: direct.spread },
    shares: runs.map((each) => each.shares),
    warnings: [...warnings, ...saturationWarnings(runs, otherCores)],
    rows,
    two_turn: turnRows(turns),
    not_had: [...notHad, ...failed],
  };
}

function figuresOfRow(rows: readonly PeerRow[], name: string): Figures {
  const row = rows.find((each) => each.name === name);
  return Object.fromEntries(Object.entries(row ?? {}).filter(([, value]) => typeof value === "number")) as Figures;
}

function paramsOf({ sizes, turns }: PeersPlan, isPinned: boolean): BenchReport["params"] {
  const { waitsMs: _, ...turnParams } = turns;
  return {
    ...sizes,
    concurrency,
    small_body_bytes: smallBodyBytes,
    large_body_bytes: largeBodyBytes,
    long_body_bytes: longBodyBytes,
    longest_body_bytes: longestBodyBytes,
    burst_streams: burstStreams,
    stream_tokens: streamTokens,
    stream_gap_ms: streamGapMs,
    streams_per_second: streamsPerSecond,
    steady_per_second: steadyPerSecond,
    pinned: isPinned,
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

/** The report for a terminal: one column per product, medians with the extremes of the runs. */
export function peersTable({ rows, spread, two_turn: turns, not_had: notHad, params, warnings }: PeersReport): string {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((name) => !textKeys.has(name));
  const cell = (row: PeerRow, figure: string): string | undefined => {
    const value = row[figure];
    if (typeof value !== "number") return undefined;
    const extremes = params.runs === 1 ? undefined : spread[row.name]?.[figure];
    return extremes ? `${short(value)} (${short(extremes.min)} .. ${short(extremes.max)})` : short(value);
  };
  const figures = formatTable(
    [...textRows, ...names],
    [
      { header: "figure", value: (name) => name },
      ...rows.map((row) => ({
        header: row.name,
        value: (name: string) => (textKeys.has(name) ? String(row[name]) : cell(row, name)),
      })),
    ],
  );
  const shares = formatTable(turns, [
    { header: "two turns at", value: (row) => row.name },
    { header: "sharing", value: (row) => row.sharing },
    { header: "W (ms)", value: (row) => row.w_ms },
    {
      header: "same engine",
      value: (row) => `${percent(row.same_engine_share)} (${percent(row.min)} .. ${percent(row.max)})`,
    },
    { header: "largest engine", value: (row) => percent(row.largest_engine_share) },
  ]);
  const missing = notHad.map(({ name, reason }) => `Left out: ${name}: ${reason}\n`).join("");
  const pinned = params.pinned ? "" : "Not pinned to cores: figures are of the whole machine.\n";
  const warned = warnings.map((warning) => `Warning: ${warning}.\n`).join("");
  return `${figures}\n${turns.length > 0 ? shares : ""}${pinned}${missing}${warned}`;
}

const textRows = ["version", "policy"] as const;
const textKeys: ReadonlySet<string> = new Set(["name", ...textRows]);

function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

function short(value: number): string {
  if (Math.abs(value) >= 1_000) return value.toFixed(0);
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}
