import { EspalierError, formatDuration, layOutTable, type Scheduler, type TableColumn, wrapText } from "@espalier/core";
import type { MeshDescription, RouterStatus } from "@espalier/server";
import type { Command } from "commander";
import { type AdminOptions, addAdminOptions, askStatus } from "../cli/admin-client.ts";
import { UsageError } from "../cli/read-flags.ts";
import { withRegion } from "../cli/region-column.ts";
import { writeJson, writeResult } from "../output.ts";
import { abortOnSignal, wait } from "../signals.ts";
import { addCommand } from "./command-list.ts";

export function registerStatus(program: Command): void {
  const command = addCommand(program, "status").description(
    "Shows the readiness of a running router and the state of its mesh: members, lag, " +
      "convergence, traffic, and the reader of each engine's events. Exits with 1 if the router " +
      "is not ready.",
  );
  const watched = "refresh every this many seconds (default: 2); with --json, one line per refresh";
  addAdminOptions(command)
    .option("--watch [seconds]", watched)
    .action(async (options: StatusOptions) => {
      const ask = (): Promise<RouterStatus> => askStatus(options);
      if (options.watch !== undefined) {
        const look = async (): Promise<string> => (options.json ? JSON.stringify(await ask()) : describe(await ask()));
        return watch({ periodMs: readPeriodMs(options.watch), signal: abortOnSignal(), look });
      }
      const status = await ask();
      if (options.json) writeJson(status);
      else writeResult(describe(status));
      if (!status.ready) process.exitCode = 1;
    });
}

interface StatusOptions extends AdminOptions {
  /** `true` when the option has no number. */
  readonly watch?: string | true;
}

const standardPeriodMs = 2_000;
/** Longest `--watch`. */
const longestPeriodMs = 3_600_000;

/** @throws UsageError */
function readPeriodMs(written: string | true): number {
  if (written === true) return standardPeriodMs;
  const periodMs = Number(written) * 1_000;
  if (periodMs >= 100 && periodMs <= longestPeriodMs) return periodMs;
  throw new UsageError(`--watch ${written}: expected seconds from 0.1 to 3600`);
}

/** The prefix of the lines. */
const labelColumns = 10;

function describe(status: RouterStatus): string {
  const state = status.ready ? "ready" : `not ready: ${status.reasons.join("; ")}`;
  const { asleepEngines: asleep } = status;
  const { lastReload } = status;
  const lines = [
    state,
    // What runs is not what the file says: this comes before everything that it may explain.
    ...(lastReload?.error ? [failedReload(lastReload)] : []),
    `version   ${status.version ?? "unknown"}, settings ${status.settings}`,
    `engines   ${status.usableEngines} of ${status.engines} usable${asleep > 0 ? `, ${asleep} asleep` : ""}`,
    ...status.troubledEngines.map(({ engine, trouble }) => `trouble   ${engine} ${trouble}`),
    `models    ${status.models.join(", ") || "none"}`,
    `in flight ${status.inFlight}`,
    `requests  ${outcomesOf(status.totals)}`,
    ...goodputLines(status.goodput),
  ];
  if (lastReload?.needsRestart.length) lines.push(`config    needs a restart: ${lastReload.needsRestart.join(", ")}`);
  for (const member of status.mesh?.members ?? []) lines.push(...warningsOf(member, status));
  const text = wrapText(lines.join("\n"), labelColumns);
  return status.mesh === null ? text : [text, "", describeMesh(status.mesh)].join("\n");
}

const triggers = { file: "changed file", signal: "signal", admin: "espalier reload" } as const;

function failedReload({ atMs, trigger, error }: NonNullable<RouterStatus["lastReload"]>): string {
  const when = `last reload (${triggers[trigger]}, ${timeText(atMs)})`;
  return `config    ${when} failed, previous configuration in use: ${error?.message}`;
}

function outcomesOf({ answered, refused, failed, cut, cancelled }: RouterStatus["totals"]): string {
  return `${answered} answered, ${refused} refused, ${failed} failed, ${cut} cut, ${cancelled} cancelled by their clients`;
}

/** A line for each model and class of which requests were measured. */
function goodputLines(rows: RouterStatus["goodput"]): string[] {
  return rows.map(({ model, class: className, met, missed, ttftMs, tpotMs }) => {
    if (model === "") return `goodput   ${missed} more requests were refused before their model was known`;
    const share = ((100 * met) / (met + missed)).toFixed(1);
    const of = className === "" ? model : `${model}, class ${className}`;
    const first = ttftMs === null ? [] : [`${formatDuration(ttftMs)} to the first token`];
    const later = tpotMs === null ? [] : [`${formatDuration(tpotMs)} per token after it`];
    const objectives = [...first, ...later].join(", ") || "no objectives";
    return `goodput   ${share} % of ${met + missed} requests (${of}; ${objectives})`;
  });
}

/** In what a live router differs from the one that was asked. */
function warningsOf({ router, state, version, differs }: MemberStatus, here: Pick<RouterStatus, "version">): string[] {
  if (state !== "alive" && state !== "suspect") return [];
  const sections = differs.filter((name) => name !== "version");
  return [
    ...(differs.includes("version")
      ? [`warning   ${router} runs ${version}, this router ${here.version ?? "does not say which"}`]
      : []),
    ...(sections.length > 0 ? [`warning   ${router} has other settings: ${sections.join(", ")}`] : []),
  ];
}

type Member = MeshDescription["members"][number];

interface MemberStatus extends Omit<Member, "state" | "sentBytes" | "receivedBytes"> {
  readonly state: string;
}

/** The displayed part of `GET /admin/mesh`. */
export interface MeshStatus
  extends Pick<
    MeshDescription,
    "router" | "epoch" | "region" | "address" | "lost" | "feeds" | "droppedEstimates" | "droppedEntries"
  > {
  readonly backend: string;
  readonly members: readonly MemberStatus[];
  readonly refused: readonly Omit<MeshDescription["refused"][number], "firstMs">[];
  readonly facts: Omit<MeshDescription["facts"], "waitingBytes">;
  readonly journals: Pick<MeshDescription["journals"], "count" | "bytes">;
}

const columns: readonly TableColumn<MemberStatus>[] = [
  { header: "router", value: (member) => member.router },
  { header: "state", value: (member) => (member.isDraining ? `${member.state}, draining` : member.state) },
  { header: "address", value: (member) => member.address ?? undefined },
  { header: "version", value: ({ version }) => version ?? undefined },
  { header: "settings", value: ({ settings }) => settings ?? undefined },
  { header: "linked", value: (member) => (member.isLinked ? "yes" : "no") },
  { header: "round trip (ms)", value: (member) => member.roundTripMs ?? undefined, digits: 2 },
  { header: "lag (ms)", value: (member) => member.lagMs ?? undefined, digits: 1 },
  { header: "sent (B/s)", value: (member) => Math.round(member.sentBytesPerS) },
  { header: "received (B/s)", value: (member) => Math.round(member.receivedBytesPerS) },
  { header: "waiting (B)", value: (member) => member.bufferedBytes },
];

/** A router's state in the mesh, for people. */
export function describeMesh(mesh: MeshStatus): string {
  const { backend, router, epoch, region, address, members, lost, refused, feeds, facts, journals } = mesh;
  const lines = [
    `mesh      ${router}, epoch ${epoch}, by ${backend}${address === null ? "" : ` at ${address}`}${region ? `, in ${region}` : ""}`,
    `feeds     ${feeds.owned} read here, ${feeds.backup} followed as backup, ${feeds.unowned} unowned`,
    `facts     ${count(facts.blocks, "block")} of ${count(facts.targets, "target")}, ${facts.settled} settled, digest ${facts.digest}`,
    `journals  ${journals.count}, ${journals.bytes} B`,
    ...lost.map(
      (one) => `lost      ${one.router}${one.address ? ` at ${one.address}` : ""}, since ${timeText(one.sinceMs)}`,
    ),
    ...refused.map(
      ({ address: at, by, claimed, reason, detail, count: times, lastMs }) =>
        `refused   ${by === "self" ? at : `by ${at}`}${claimed ? `, says it is ${claimed}` : ""}: ${reason} (${detail}), ${count(times, "time")}, last at ${timeText(lastMs)}`,
    ),
    ...mesh.droppedEstimates.map((one) => `estimates too many of kind ${one.kind}: ${one.count} dropped`),
    ...mesh.droppedEntries.map((one) => `registry  too many of kind ${one.kind}: ${one.count} dropped`),
  ];
  const text = wrapText(lines.join("\n"), labelColumns);
  return `${text}\n\n${members.length === 0 ? "no other router" : layOutTable(members, withRegion(columns, members))}`;
}

const count = (value: number, noun: string): string => `${value} ${noun}${value === 1 ? "" : "s"}`;

/** In UTC, to the second: the routers' clocks count, not that of the reader. */
const timeText = (wallMs: number): string => `${new Date(wallMs).toISOString().slice(0, 19)}Z`;

export interface WatchOptions {
  readonly periodMs: number;
  /** Ends the view. */
  readonly signal: AbortSignal;
  /** The current text. If it throws an EspalierError, the view shows the error instead and continues. */
  readonly look: () => Promise<string>;
  readonly scheduler?: Scheduler;
  readonly output?: { readonly isTTY?: boolean; write(text: string): unknown };
}

/** Moves to the top left corner and clears the rest. */
const clearScreen = "\u001b[H\u001b[J";

/** Shows the same view repeatedly: in place on a terminal, else one below the other. */
export async function watch(options: WatchOptions): Promise<void> {
  const { periodMs, signal, look, scheduler, output = process.stdout } = options;
  while (!signal.aborted) {
    const text = await look().catch((error: unknown) => {
      if (error instanceof EspalierError) return error.message;
      throw error;
    });
    if (signal.aborted) return;
    output.write(`${output.isTTY ? clearScreen : ""}${text}\n`);
    await wait(periodMs, signal, scheduler);
  }
}
