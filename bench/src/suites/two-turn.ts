import { layOutTable, systemClock, systemScheduler } from "@espalier/core";
import { type ParamValues, quick, runs, whole } from "../support/params.ts";
import { repeatRuns } from "../support/repeat-runs.ts";
import { defineSuite, figuresTable, joinRuns, reportOf, shown, withExtremes } from "../support/suite.ts";
import { firstMessageTokens, laterMessageTokens, systemTokens } from "../turns/conversations.ts";
import {
  afterKillMs,
  enginePreset,
  measuredPolicy,
  measureTwoTurns,
  type TwoTurnRun,
  type TwoTurnSizes,
} from "../turns/measure-two-turns.ts";

/** Above this share without the mesh, turns meet by chance and the figures mean nothing. */
export const maxShareByChance = 0.2;
const sweepMs = [10, 25, 50, 100, 200, 500];

export const twoTurnParams = {
  conversations: whole({ help: "of each measurement", standard: 200, most: 10_000 }),
  "warm-up": whole({ help: "conversations that each fleet sees before", standard: 200, most: 10_000 }),
  rate: whole({ placeholder: "X", help: "conversations that begin in a second", standard: 40, most: 1_000 }),
  wait: whole({ placeholder: "MS", help: "W", standard: 50, most: 60_000 }),
  engines: whole({ help: "simulated engines", standard: 8, most: 256 }),
  speed: whole({ placeholder: "X", help: "engine seconds per real second", standard: 4, most: 1_000 }),
  runs: runs(3, 100, "runs with fresh processes, of which the medians count"),
  quick: quick("one run, without the sweep of W"),
};

/** Whether a conversation that changes routers reaches its engine again. */
export const twoTurnSuite = defineSuite({
  name: "two-turn",
  summary: "share of conversations that change routers and still find their engine, with the mesh and without",
  about: `
Conversations of two turns through several routers under ${measuredPolicy}: the first turn at one router, the second one at
another, W after the first has left the client. Counted are the conversations both of whose turns went to one engine,
with the mesh, through Redis, with KV events, after the death of the router of the first turns, and without sharing,
where it must be chance.`,
  params: twoTurnParams,
  async measure(values, note) {
    const sizes = twoTurnSizes(values);
    const ports = { clock: systemClock, scheduler: systemScheduler };
    const done = await repeatRuns({ runs: values.runs, note }, (seed, noteRun) =>
      measureTwoTurns({ sizes, seed, ports, note: noteRun }),
    );
    return twoTurnReport(done, sizes);
  },
  table: twoTurnTable,
});

export function twoTurnSizes({ quick, ...values }: ParamValues<typeof twoTurnParams>): TwoTurnSizes {
  const { conversations, rate, wait, engines, speed } = values;
  return {
    ...{ conversations, warmUpConversations: values["warm-up"], ratePerSecond: rate, waitMs: wait, engines, speed },
    sweepMs: quick ? [] : sweepMs.filter((each) => each !== wait),
  };
}

/** Joins runs into medians, with one row for each time between the turns. */
export function twoTurnReport(runs: readonly TwoTurnRun[], { sweepMs: _, ...sizes }: TwoTurnSizes) {
  const { metrics, baselines, spread } = joinRuns(
    runs.map(({ mesh, withoutMesh, sweep }) => ({ mesh, without_mesh: withoutMesh, sweep })),
  );
  const { without_mesh: without = {}, sweep = {} } = baselines;
  const { sweep: sweepSpread = {}, ...ofSystems } = spread;
  const byChance = Math.max(without.same_engine_share!, without.same_engine_share_3_routers!);
  return reportOf("two-turn", {
    params: {
      ...{ ...sizes, runs: runs.length, policy: measuredPolicy, preset: enginePreset, system_tokens: systemTokens },
      ...{ first_message_tokens: firstMessageTokens, later_message_tokens: laterMessageTokens },
      after_kill_ms: afterKillMs,
    },
    metrics: { ...metrics, without_mesh_share: without.same_engine_share! },
    baselines: { without_mesh: without },
    spread: ofSystems,
    warnings:
      byChance > maxShareByChance
        ? [
            `void: without the mesh ${shown("_share", byChance)} stayed at their engine, so it was not the mesh that kept them`,
          ]
        : [],
    w_sweep: Object.entries(sweep).map(([waitMs, share]) => ({
      ...{ w_ms: Number(waitMs), same_engine_share: share, ...sweepSpread[waitMs]! },
    })),
  });
}

/** Figures beside those without the mesh, and the sweep. */
export function twoTurnTable(report: ReturnType<typeof twoTurnReport>): string {
  const rows = layOutTable(report.w_sweep, [
    { header: "W (ms)", value: (row) => row.w_ms },
    { header: "same engine", value: (row) => withExtremes("_share", row.same_engine_share, row) },
  ]);
  return `${figuresTable(report, (name) => name in report.spread.mesh!)}\n${rows}`;
}
