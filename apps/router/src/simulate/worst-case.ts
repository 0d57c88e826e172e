import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import { layOutTable } from "@espalier/core";
import {
  comparedFigures,
  comparePolicies,
  type PolicyComparison,
  scenario,
  type WorstRatio,
} from "@espalier/simulator";
import { writeJson, writeNote, writeResult } from "../output.ts";
import { executeJobs } from "./execute-jobs.ts";
import { noteFailures } from "./run-plan.ts";
import type { WorstCaseCommand } from "./simulate-options.ts";
import {
  casesOf,
  planWorstCase,
  type TraceOf,
  type WorstCase,
  type WorstCaseSelection,
  worstCasePlan,
} from "./worst-case-plan.ts";

/**
 * Runs the cases of a selection and prints how far each policy is behind the best one in its worst case. If the signal
 * aborts it, it prints the results so far.
 *
 * @returns whether all runs were made
 */
export async function runWorstCase(command: WorstCaseCommand, signal: AbortSignal): Promise<boolean> {
  const { selection, jobs: size, isJson } = command;
  const planned = planFound(selection, command.trace);
  const { outcomes, failures } = await executeJobs(
    planned.map(({ job }) => job),
    { size, signal, title: "worst-case" },
  );
  noteFailures(failures);
  const failed = new Set(failures.map(({ job }) => job));
  const judgement = comparePolicies(
    planned.flatMap(({ name, job }, at) => {
      const { policy, routers, seed } = job;
      return failed.has(job) ? [] : [{ name, policy, routers, seed, row: outcomes[at]?.row }];
    }),
  );
  if (judgement.isPartial) {
    const made = outcomes.filter((outcome) => outcome !== undefined).length;
    writeNote(`partial: ${made} of ${planned.length} runs; incomplete cases and seeds are skipped`);
  }
  if (isJson) writeWorstCaseJson(command, judgement);
  else writeWorstCaseTable(judgement);
  return failures.length === 0 && !judgement.isPartial && planned.length > 0;
}

/**
 * Plans the cases of a selection, without those whose trace is not there.
 *
 * @param path a trace, or the folder with the traces
 */
export function planFound(selection: WorstCaseSelection, path: string): ReturnType<typeof planWorstCase> {
  const wanted = casesOf(selection, worstCasePlan);
  const traceOf = findTraces(wanted, path);
  const cases = wanted.filter(
    ({ scenario: name }) => scenario(name).trace === undefined || traceOf(name) !== undefined,
  );
  return planWorstCase(selection, cases, traceOf);
}

/** Finds the traces of cases. Reports each missing trace once, because its cases are left out. */
function findTraces(cases: readonly WorstCase[], path: string): TraceOf {
  const found = new Map<string, string>();
  for (const name of new Set(cases.map((one) => one.scenario))) {
    const { trace } = scenario(name);
    if (trace === undefined) continue;
    const isDirectory = statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
    const file = isDirectory ? join(path, trace) : path;
    if (existsSync(file)) found.set(name, file);
    else writeNote(`${name} skipped: ${file} not found; set --trace to ${trace}`);
  }
  return (name) => found.get(name);
}

function writeWorstCaseJson({ selection }: WorstCaseCommand, { rows, cases, isPartial }: PolicyComparison): void {
  const { policies, routers, seeds, isQuick, only } = selection;
  writeJson({
    name: "worst-case",
    params: { policies, routers, seeds, quick: isQuick, ...(only === undefined ? {} : { only }) },
    partial: isPartial,
    rows,
    cases: cases.map(({ figures, isFailed, ...one }) => ({ ...one, ...figures, ...(isFailed && { failed: true }) })),
  });
}

function writeWorstCaseTable({ rows, isPartial }: PolicyComparison): void {
  const keyOf = ({ policy, routers }: WorstRatio): string => `${policy} ${routers}`;
  const lines = [...new Set(rows.map(keyOf))].map((key) => rows.filter((row) => keyOf(row) === key));
  writeResult(
    layOutTable(lines, [
      { header: "policy", value: ([first]) => first?.policy },
      { header: "routers", value: ([first]) => first?.routers },
      { header: "worst", value: (line) => worstOf(line)?.worst_ratio.toFixed(2) },
      { header: "in", value: (line) => worstOf(line)?.worst_scenario },
      ...comparedFigures.map((figure) => ({
        header: figure,
        value: (line: readonly WorstRatio[]) => show(line.find((row) => row.figure === figure)),
      })),
      { header: "failed", value: ([first]) => first?.failed_cases },
    ]),
  );
  writeResult("each figure: worst ratio to the best policy (mean ratio); 1 is the best. --json has the cases");
  if (isPartial) writeResult("partial: not all runs were made");
}

const worstOf = (line: readonly WorstRatio[]): WorstRatio | undefined =>
  line.toSorted((one, other) => other.worst_ratio - one.worst_ratio)[0];

const show = (row: WorstRatio | undefined): string =>
  row === undefined ? "-" : `${row.worst_ratio.toFixed(2)} (${row.mean_ratio.toFixed(3)})`;
