import { layOutTable, systemClock, systemScheduler } from "@espalier/core";
import { type FigureRow, isMet, type PartName, type PartResult, partNames } from "../failures/figure-row.ts";
import { runKill } from "../failures/kill.ts";
import { runOverload } from "../failures/overload.ts";
import { runRestart } from "../failures/restart.ts";
import { duration, flag, names, optional, type ParamValues, whole } from "../support/params.ts";
import { defineSuite, type Note, reportOf, shown } from "../support/suite.ts";
import { UsageError } from "../support/usage-error.ts";

export const failuresParams = {
  only: names("of restart, kill, overload", partNames, { shown: "all" }),
  rate: whole({ placeholder: "X", help: "requests in a second, in restart and kill", standard: 200, most: 1_000 }),
  engines: whole({ help: "in restart and kill", standard: 4, most: 64 }),
  "overload-engines": whole({ help: "in overload", standard: 8, most: 64 }),
  duration: duration({
    help: "of the overload; each step of the search takes half of it",
    ...{ standard: "40s", most: "10m" },
  }),
  ttft: duration({ help: "in overload, when a first token is in time", standard: "3s", most: "10m" }),
  target: optional(
    duration({
      help: "the routers' admission.classes[].target in overload; what --ttft says unless given",
      ...{ standard: "3s", most: "1h" },
    }),
  ),
  "max-pending-tokens": optional(
    whole({
      help: "and their admission.classes[].max-pending-tokens, else their default",
      standard: 1,
      most: 1_000_000,
    }),
  ),
  "admission-defaults": flag("neither of the two: routers as they are without a configuration"),
};

/** What clients notice when routers restart, engines die, and the load exceeds the capacity. */
export const failuresSuite = defineSuite({
  name: "failures",
  summary: "routers restarted and an engine killed under load, and twice the load that a fleet can take",
  about: `
Routers in a mesh and simulated engines with KV events, each a process, while something goes wrong. It fails when a target
is missed.

  restart   three routers under an open loop, half of it streams of some seconds, are restarted one after the other. Clients
            take the routers' addresses in turn and go to the next one when a connection is refused, nothing else is sent
            again. No request may fail, no stream be cut.
  kill      an engine is killed under the same load. No request without a first byte may fail; what was cut has to end with
            an error frame.
  overload  two routers: searches the rate at which most answers have their first token in time, then offers twice as much.
            Of that many, 9 of 10 must be in time, and the others must get Retry-After.`,
  params: failuresParams,
  async measure(values, note) {
    const plan = failuresPlan(values);
    const results = new Map<PartName, PartResult>();
    for (const part of plan.parts) results.set(part, await runPart(part, plan, (line) => note(`${part}: ${line}`)));
    return failuresReport(results);
  },
  table: failuresTable,
});

function runPart(part: PartName, plan: ReturnType<typeof failuresPlan>, note: Note): Promise<PartResult> {
  const { rate, engines, overloadEngines, ...rest } = plan;
  const ports = { clock: systemClock, scheduler: systemScheduler };
  if (part === "overload") return runOverload({ ...rest, engines: overloadEngines, ports, note });
  return (part === "restart" ? runRestart : runKill)({ rate, engines, ports, note });
}

/** @throws UsageError */
export function failuresPlan(values: ParamValues<typeof failuresParams>) {
  const { only: parts, rate, engines, duration: durationMs, ttft: ttftMs, target } = values;
  const maxPendingTokens = values["max-pending-tokens"];
  const isDefault = values["admission-defaults"];
  if (isDefault && (target ?? maxPendingTokens) !== undefined) {
    throw new UsageError("--admission-defaults goes with neither --target nor --max-pending-tokens");
  }
  return {
    ...{ parts, rate, engines, overloadEngines: values["overload-engines"], durationMs, ttftMs },
    ...(isDefault ? {} : { admission: { targetMs: target ?? ttftMs, maxPendingTokens } }),
  };
}

/** Joins the parts and lists the missed targets. */
export function failuresReport(results: ReadonlyMap<PartName, PartResult>) {
  const parts = [...results];
  const rows = parts.flatMap(([, part]) => part.rows.map((row) => ({ ...row, ...metOf(row) })));
  return reportOf("failures", {
    params: Object.fromEntries(
      parts.flatMap(([name, { params }]) => Object.entries(params).map(([key, value]) => [`${name}_${key}`, value])),
    ),
    metrics: Object.fromEntries(rows.map(({ part, figure, value }) => [`${part}_${figure}`, value])),
    rows,
    warnings: parts.flatMap(([name, { wrong }]) => wrong.map((line) => `${name}: ${line}`)),
    failures: rows
      .filter(({ met }) => met === false)
      .map((row) => `${row.part}: ${row.figure} is ${shown("", row.value)}, not ${targetOf(row)}`),
  });
}

function metOf(row: FigureRow): { readonly met?: boolean } {
  const met = isMet(row);
  return met === undefined ? {} : { met };
}

function targetOf({ target }: FigureRow): string | undefined {
  if (!target) return undefined;
  return "most" in target ? `<= ${target.most}` : `>= ${target.least}`;
}

/** Each figure with its target, and the settings. */
export function failuresTable({ params, rows }: ReturnType<typeof failuresReport>): string {
  const figures = layOutTable(rows, [
    { header: "part", value: ({ part }) => part },
    { header: "figure", value: ({ figure }) => figure },
    { header: "value", value: ({ value }) => shown("", value) },
    { header: "target", value: (row) => targetOf(row) },
    { header: "", value: ({ met }) => (met === undefined ? undefined : met ? "pass" : "FAIL") },
  ]);
  return `${figures}\n${Object.entries(params)
    .map(([name, value]) => `${name}: ${value}`)
    .join("; ")}\n`;
}
