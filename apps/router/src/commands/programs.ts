import { layOutTable, type TableColumn } from "@espalier/core";
import type { Pause, Program, ProgramReport } from "@espalier/server";
import type { Command } from "commander";
import { type AdminOptions, addAdminOptions, askAdmin } from "../cli/admin-client.ts";
import { writeJson, writeResult } from "../output.ts";
import { addCommand } from "./command-list.ts";

const seconds = (ms: number): string => (ms / 1_000).toFixed(1);

const columns: readonly TableColumn<Program>[] = [
  { header: "program", value: ({ name }) => name },
  { header: "parent", value: ({ parent }) => parent ?? undefined },
  { header: "state", value: ({ state }) => state },
  { header: "model", value: ({ model }) => model },
  { header: "engine", value: ({ engine }) => engine ?? undefined },
  { header: "steps", value: ({ steps }) => steps },
  { header: "failed", value: ({ failed }) => failed },
  { header: "last end", value: ({ answerEnd }) => answerEnd ?? undefined },
  { header: "context", value: ({ contextTokens }) => contextTokens },
  {
    header: "cached (%)",
    value: ({ cachedShare }) => (cachedShare === null ? undefined : (100 * cachedShare).toFixed(1)),
  },
  { header: "computed", value: ({ computedTokens }) => computedTokens },
  { header: "queued (s)", value: ({ queuedMs }) => seconds(queuedMs) },
  { header: "longest (s)", value: ({ longestQueuedMs }) => seconds(longestQueuedMs) },
  { header: "idle (s)", value: ({ idleMs }) => seconds(idleMs) },
  { header: "known by", value: ({ source }) => source || undefined },
  { header: "tenant", value: ({ tenant }) => tenant ?? undefined },
];

const pauseColumns: readonly TableColumn<Pause>[] = [
  { header: "pauses after", value: ({ answerEnd }) => answerEnd ?? undefined },
  { header: "p50 (s)", value: ({ p50Ms }) => seconds(p50Ms) },
  { header: "p95 (s)", value: ({ p95Ms }) => seconds(p95Ms) },
  { header: "count", value: ({ count }) => count },
  { header: "known by", value: ({ source }) => source || undefined },
];

interface ProgramOptions extends AdminOptions {
  readonly all: boolean;
}

/** Rows without `--all`. */
const shownPrograms = 20;

export function registerPrograms(program: Command): void {
  const command = addCommand(program, "programs")
    .description(
      "Lists programs: sessions, and the agents in them, by the session key of their requests, over all routers. Each has its engine, " +
        "the program that started it, steps (answered requests), how the last answer ended, tokens of context, cached share, computed tokens and time in queues. Below, times from an answer to the next request, at the router that is asked.",
    )
    .option("--all", `list up to 1,000 programs, not only the latest ${shownPrograms}`, false);
  addAdminOptions(command).action(async (options: ProgramOptions) => {
    const report = await askAdmin<ProgramReport>(options, "/admin/programs");
    if (options.json) writeJson(report);
    else writeResult(describePrograms(report, options.all));
  });
}

function describePrograms({ programs, counts, pauses }: ProgramReport, showsAll: boolean): string {
  if (programs.length === 0) {
    return "no program: no request of the last 30 minutes had a session key (docs/guides/requests.md)";
  }
  const shown = showsAll ? programs : programs.slice(0, shownPrograms);
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const states = Object.entries(counts).map(([state, count]) => `${count} ${state}`);
  const more = total > shown.length ? `, the latest ${shown.length} shown` : "";
  const learned = pauses.length === 0 ? "" : `\n${layOutTable(pauses, pauseColumns)}`;
  return `${total} programs: ${states.join(", ")}${more}\n\n${layOutTable(shown, columns)}${learned}`;
}
