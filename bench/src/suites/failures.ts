import { parseArgs } from "node:util";
import { systemClock, systemScheduler } from "@espalier/core";
import { formatTable } from "@espalier/simulator";
import type { AdmissionSettings } from "../failures/admission-settings.ts";
import { type FigureRow, isMet, type PartName, type PartResult, partNames } from "../failures/figure-row.ts";
import { runKill } from "../failures/kill.ts";
import { runOverload } from "../failures/overload.ts";
import { runRestart } from "../failures/restart.ts";
import { readDurationMs, readWhole } from "../support/read-options.ts";
import type { BenchReport, Suite } from "../support/suite.ts";
import { UsageError } from "../support/usage-error.ts";

/** The report with each figure's target and whether it is met. */
export interface FailuresReport extends BenchReport {
  readonly rows: readonly ReportedRow[];
  /** The missed targets, as sentences; empty when there are none. */
  readonly failures: readonly string[];
}

interface ReportedRow extends FigureRow {
  readonly met?: boolean;
}

interface FailuresPlan {
  readonly parts: readonly PartName[];
  readonly rate: number;
  readonly engines: number;
  readonly overloadEngines: number;
  readonly durationMs: number;
  readonly ttftMs: number;
  readonly admission?: AdmissionSettings;
}

const help = `Usage: npm run bench -- failures [options]

Routers in a mesh and simulated engines with KV events, each a process, while something goes wrong. It fails when a target
is missed.

  restart   three routers under an open loop, half of it streams of some seconds, are restarted one after the other. Clients
            take the routers' addresses in turn and go to the next one when a connection is refused, nothing else is sent
            again. No request may fail, no stream be cut.
  kill      an engine is killed under the same load. No request without a first byte may fail; what was cut has to end with
            an error frame.
  overload  two routers: searches the rate at which most answers have their first token in time, then offers twice as much.
            As many are to be in time then, 9 of 10, and the others are to be told when to come again.

  --only PART             one of restart, kill, overload (all)
  --rate X                requests in a second, in restart and kill (200)
  --engines N             in restart and kill (4)
  --overload-engines N    in overload (8)
  --duration T            of the overload; each step of the search takes half of it (40s)
  --ttft T                in overload, when a first token is in time (3s)
  --target T              the routers' admission.classes[].target in overload (what --ttft says)
  --max-pending-tokens N  and their admission.classes[].max-pending-tokens (the routers' default)
  --admission-defaults    neither of the two: routers as they are without a configuration
  --json                  one JSON object on standard output
`;

/** What clients notice when routers restart, engines die, and the load exceeds the capacity. */
export const failuresSuite: Suite = {
  name: "failures",
  summary: "routers restarted and an engine killed under load, and twice the load that a fleet can take",
  help,
  async run(args, note) {
    const plan = readFailuresPlan(args);
    const results = new Map<PartName, PartResult>();
    for (const part of plan.parts) results.set(part, await runPart(part, plan, (line) => note(`${part}: ${line}`)));
    const report = failuresReport(results);
    const failure = report.failures.length > 0 ? report.failures.join("; ") : undefined;
    return { report, table: () => failuresTable(report), ...(failure === undefined ? {} : { failure }) };
  },
};

function runPart(part: PartName, plan: FailuresPlan, note: (line: string) => void): Promise<PartResult> {
  const { rate, engines, overloadEngines, ...rest } = plan;
  const ports = { clock: systemClock, scheduler: systemScheduler };
  if (part === "overload") return runOverload({ ...rest, engines: overloadEngines, ports, note });
  return (part === "restart" ? runRestart : runKill)({ rate, engines, ports, note });
}

/** @throws UsageError */
export function readFailuresPlan(args: readonly string[]): FailuresPlan {
  const text = { type: "string" } as const;
  const { values } = parseArgs({
    args: [...args],
    options: {
      ...{ only: text, rate: text, engines: text, "overload-engines": text, duration: text, ttft: text, target: text },
      ...{ "max-pending-tokens": text, "admission-defaults": { type: "boolean" } as const },
    },
  });
  const only = partNames.find((name) => name === values.only);
  if (values.only !== undefined && !only) throw new UsageError(`--only must be one of ${partNames.join(", ")}`);
  const isDefault = values["admission-defaults"] === true;
  if (isDefault && (values.target ?? values["max-pending-tokens"]) !== undefined) {
    throw new UsageError("--admission-defaults goes with neither --target nor --max-pending-tokens");
  }
  const ttft = values.ttft ?? "3s";
  const ttftMs = readDurationMs("--ttft", ttft, { standard: ttft, max: "10m" });
  const pending = values["max-pending-tokens"];
  const admission = {
    targetMs: readDurationMs("--target", values.target, { standard: ttft, max: "1h" }),
    maxPendingTokens:
      pending === undefined ? undefined : readWhole("--max-pending-tokens", pending, { standard: 1, max: 1_000_000 }),
  };
  return {
    parts: only ? [only] : partNames,
    rate: readWhole("--rate", values.rate, { standard: 200, max: 1_000 }),
    engines: readWhole("--engines", values.engines, { standard: 4, max: 64 }),
    overloadEngines: readWhole("--overload-engines", values["overload-engines"], { standard: 8, max: 64 }),
    durationMs: readDurationMs("--duration", values.duration, { standard: "40s", max: "10m" }),
    ttftMs,
    ...(isDefault ? {} : { admission }),
  };
}

/** Joins the parts and lists the missed targets. */
export function failuresReport(results: ReadonlyMap<PartName, PartResult>): FailuresReport {
  const parts = [...results];
  const rows = parts.flatMap(([, part]) => part.rows.map((row) => ({ ...row, ...metOf(row) })));
  return {
    name: "failures",
    params: Object.fromEntries(
      parts.flatMap(([name, { params }]) => Object.entries(params).map(([key, value]) => [`${name}_${key}`, value])),
    ),
    metrics: Object.fromEntries(rows.map(({ part, figure, value }) => [`${part}_${figure}`, value])),
    ...{ baselines: {}, spread: {}, shares: [], rows },
    warnings: parts.flatMap(([name, { wrong }]) => wrong.map((line) => `${name}: ${line}`)),
    failures: rows
      .filter(({ met }) => met === false)
      .map((row) => `${row.part}: ${row.figure} is ${short(row.value)}, not ${targetOf(row)}`),
  };
}

function metOf(row: FigureRow): { readonly met?: boolean } {
  const met = isMet(row);
  return met === undefined ? {} : { met };
}

function targetOf({ target }: FigureRow): string | undefined {
  if (!target) return undefined;
  return "most" in target ? `<= ${target.most}` : `>= ${target.least}`;
}

/** The report for a terminal. */
export function failuresTable({ params, rows, warnings }: FailuresReport): string {
  const figures = formatTable(rows, [
    { header: "part", value: ({ part }) => part },
    { header: "figure", value: ({ figure }) => figure },
    { header: "value", value: ({ value }) => short(value) },
    { header: "target", value: (row) => targetOf(row) },
    { header: "", value: ({ met }) => (met === undefined ? undefined : met ? "pass" : "FAIL") },
  ]);
  const settings = Object.entries(params).map(([name, value]) => `${name}: ${value}`);
  return `${figures}\n${settings.join("; ")}\n${warnings.map((line) => `Went wrong: ${line}.\n`).join("")}`;
}

function short(value: number): string {
  if (Number.isNaN(value)) return "not measured";
  return Number.isInteger(value) ? String(value) : value.toFixed(Math.abs(value) >= 100 ? 0 : 3);
}
