import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { layOutTable } from "@espalier/core";
import { defaultPolicyParts } from "@espalier/policies";
import {
  type AblatedPart,
  type Ablation,
  type AblationEffect,
  type AblationRun,
  ablationFigures,
  compareWithWhole,
  isReached,
} from "@espalier/simulator";
import { writeJson, writeNote, writeResult } from "../output.ts";
import { type ExecutionOptions, executeJobs } from "./execute-jobs.ts";
import type { RunJob, RunOutcome } from "./run-job.ts";
import { noteFailures } from "./run-plan.ts";
import type { AblationCommand } from "./simulate-options.ts";
import { markdown } from "./tables.ts";
import { planFound } from "./worst-case.ts";

/** The policy whose parts are left out. */
const policy = "predicted_latency";

/** The page that `--report` writes, under the documents. */
const page = "benchmarks/ablation.md";

interface AblationOptions {
  /** Folder of the documents. */
  readonly docs: string;
  readonly signal: AbortSignal;
}

/**
 * Runs the default policy, and the same without each of its parts, in the cases of `worst-case`. Prints what each part
 * earns. If the signal aborts it, it prints the results so far.
 *
 * @returns whether all runs were made
 */
export async function runAblation(command: AblationCommand, { docs, signal }: AblationOptions): Promise<boolean> {
  const { cases, without, jobs: size, isJson, isReport } = command;
  const path = join(docs, page);
  if (isReport && !existsSync(dirname(path)))
    throw new Error(`${dirname(path)} is not there: run it in a clone of the repository`);
  const planned = planFound({ ...cases, policies: [policy, ...without] }, command.trace).map(({ name, job }) => {
    const part = job.policy === policy ? undefined : job.policy;
    return { name, job: { ...job, policy, without: part } };
  });
  const first = await execute(
    planned.filter(({ job }) => job.seed === 1),
    { size, signal, title: "ablation, first seed" },
  );
  const more = await execute(
    planned.filter((run) => run.job.seed > 1 && canDiffer(run, first.runs)),
    { size, signal, title: "ablation, further seeds" },
  );
  const runs = [...first.runs, ...more.runs];
  const ablation = compareWithWhole(runs);
  if (ablation.isPartial) {
    const made = runs.filter(({ row }) => row !== undefined).length;
    writeNote(`partial: ${made} of ${runs.length} runs; incomplete seeds are skipped`);
  }
  const isWhole = first.isWhole && more.isWhole && planned.length > 0;
  if (isJson) writeAblationJson(command, ablation);
  else writeAblationTable(ablation);
  if (isReport && isWhole) await writeFile(path, renderAblation(command, ablation));
  return isWhole;
}

interface PlannedRun {
  readonly name: string;
  readonly job: RunJob;
}

/** Runs a part of the plan. Runs that failed are absent, and those that were not made have no row. */
async function execute(planned: readonly PlannedRun[], options: ExecutionOptions<RunOutcome>) {
  const { outcomes, failures } = await executeJobs(
    planned.map(({ job }) => job),
    options,
  );
  noteFailures(failures);
  const failed = new Set<unknown>(failures.map(({ job }) => job));
  const runs = planned.flatMap(({ name, job }, at): AblationRun[] => {
    const { without, routers, seed } = job;
    return failed.has(job) ? [] : [{ name, without, routers, seed, row: outcomes[at]?.row }];
  });
  return { runs, isWhole: failures.length === 0 && runs.every(({ row }) => row !== undefined) };
}

/**
 * Whether a further seed can tell anything. A part that changes nothing at all with the first seed is not reached in the
 * case, and not run again.
 */
function canDiffer({ name, job: { without, routers } }: PlannedRun, first: readonly AblationRun[]): boolean {
  if (without === undefined) return true;
  const those = first.filter((run) => run.name === name && run.routers === routers);
  const [whole, left] = [undefined, without].map((part) => those.find((run) => run.without === part));
  return isReached(left?.row, whole?.row);
}

function writeAblationJson({ cases, without }: AblationCommand, { parts, effects, isPartial }: Ablation): void {
  const { routers, seeds, isQuick, only } = cases;
  writeJson({
    name: "ablation",
    params: { policy, without, routers, seeds, quick: isQuick, ...(only === undefined ? {} : { only }) },
    partial: isPartial,
    parts,
    effects,
  });
}

const headers: Readonly<Record<(typeof ablationFigures)[number], string>> = {
  ttft_mean_s: "ttft",
  e2e_mean_s: "e2e",
  total_tokens_per_s: "tokens/s",
  goodput_share: "goodput",
};

interface Column {
  readonly header: string;
  value(part: AblatedPart): string | number;
}

const columns: readonly Column[] = [
  { header: "without", value: ({ part }) => part },
  { header: "routers", value: ({ routers }) => routers },
  ...ablationFigures.map((figure) => ({
    header: headers[figure],
    value: ({ ratios }: AblatedPart) => show(ratios[figure]),
  })),
  { header: "earns most", value: ({ earns_most }) => showEffect(earns_most) },
  { header: "costs most", value: ({ costs_most }) => showEffect(costs_most) },
  { header: "earns > seeds", value: ({ earns }) => earns },
  { header: "costs > seeds", value: ({ costs }) => costs },
  { header: "reached", value: ({ reached, cases }) => `${reached} of ${cases}` },
  { header: "failed", value: ({ failed_cases }) => failed_cases },
];

const show = (ratio: { readonly worst: number; readonly mean: number } | undefined): string =>
  ratio === undefined ? "-" : `${ratio.worst.toFixed(2)} (${ratio.mean.toFixed(3)})`;

function showEffect(effect: AblationEffect | undefined): string {
  if (effect === undefined) return "-";
  const { ratio, spread, figure, case: name } = effect;
  const chance = spread === undefined ? "" : ` ±${(spread / 2).toFixed(2)}`;
  return `${ratio.toFixed(2)}${chance} ${headers[figure]}, ${name}`;
}

function writeAblationTable({ parts, isPartial }: Ablation): void {
  writeResult(layOutTable(parts, columns));
  for (const line of legend) writeResult(line);
  if (isPartial) writeResult("partial: not all runs were made");
}

const legend: readonly string[] = [
  "Each figure: how many times worse it is without the part, in the worst case (in the mean of the cases). 1 is the whole policy.",
  "± half the spread of the seeds. Earns and costs > seeds: effects above the whole spread and above 1 %, of four for each case.",
  "Reached: cases in which anything changes without the part. Those that it does not reach with seed 1 are not run again.",
];

function renderAblation({ cases, without }: AblationCommand, { parts }: Ablation): string {
  const { routers, seeds, isQuick, only } = cases;
  const all = defaultPolicyParts.length;
  const partsExcluded = without.length === all ? `its ${all}` : `${without.length} of its ${all}`;
  const flags = [
    ...(isQuick ? ["--quick"] : []),
    ...(only === undefined ? [] : [`--only ${only.join(",")}`]),
    ...(without.length === all ? [] : [`--without ${without.join(",")}`]),
    `--routers ${routers.join(",")} --seeds ${seeds}`,
  ];
  return [
    "# What each part of the default policy earns",
    "",
    "```sh",
    `npx espalier simulate ablation ${flags.join(" ")} --report`,
    "```",
    "",
    `Made by that command: \`${policy}\` without one of ${partsExcluded} parts at a time, in the cases of \`worst-case\`.`,
    ...legend,
    "No case has regions or LoRA adapters: parts for those are not reached.",
    "",
    ...markdown(
      columns.map(({ header }) => header),
      parts.map((part) => columns.map(({ value }) => String(value(part)))),
    ),
    "",
  ].join("\n");
}
