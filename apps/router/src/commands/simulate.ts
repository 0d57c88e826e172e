import { closeSync, openSync, writeFileSync, writeSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { layOutTable } from "@espalier/core";
import { enginePresets } from "@espalier/engine-model";
import {
  bailianLine,
  type MedianRow,
  maxTraceRequests,
  medianRows,
  recordTrace,
  renderFigure,
  type Scenario,
  type SimulateRow,
  scenario,
  scenarioNames,
  sharings,
  traceFormats,
  withGaps,
} from "@espalier/simulator";
import { type Command, Option } from "commander";
import { sloOption } from "../cli/objectives.ts";
import { oneOf, readName, UsageError } from "../cli/read-flags.ts";
import { writeJson, writeNote, writeResult } from "../output.ts";
import { abortOnSignal } from "../signals.ts";
import { runAblation } from "../simulate/ablation.ts";
import { executeJobs } from "../simulate/execute-jobs.ts";
import { figureOf } from "../simulate/figures.ts";
import { writeReport } from "../simulate/report.ts";
import { reportBudgetMs, reportPlan } from "../simulate/report-plan.ts";
import type { RunOutcome } from "../simulate/run-job.ts";
import { type FoundKnee, findVariant, noteFailures, prepareRuns } from "../simulate/run-plan.ts";
import {
  type AblationCommand,
  type ReportCommand,
  type RunCommand,
  readSimulateOptions,
  type SimulateFlags,
  type WorstCaseCommand,
  type WriteTraceCommand,
} from "../simulate/simulate-options.ts";
import { loadScenario, openScenario, simulatedPolicies } from "../simulate/simulated-scenario.ts";
import { boundsNotes, compareWithPublished, createRowStream, extraTables } from "../simulate/tables.ts";
import { compareWhatIfs, describeWhatIf, planWhatIf, type WhatIfOutcome } from "../simulate/what-if.ts";
import { runWorstCase } from "../simulate/worst-case.ts";
import { addCommand } from "./command-list.ts";

export function registerSimulate(program: Command): void {
  addCommand(program, "simulate")
    .description(
      "Simulates fleets in virtual time: the router's own policies, index and mesh over modelled engines, links and " +
        "clients. Runs use parallel processes; tables show medians over seeds. " +
        "Each comparison includes the policy random and one omniscient router. " +
        "load cov and cov in time are coefficients of variation across engines, of all requests and of the load over " +
        "time; ttft/oracle and cached/oracle are ratios to the omniscient router. " +
        "Exits with 1 if a run failed or had no successful request. worst-case instead of a scenario shows " +
        "how far each policy falls behind the best one, at worst, over all scenarios; ablation shows " +
        "the effect of each part of the default policy.",
    )
    .argument(
      "[scenario]",
      "scenario of --list, or a .json file; worst-case compares policies over all scenarios, ablation parts of the default policy",
    )
    .optionsGroup("Scenario:")
    .option("--list", "list the scenarios")
    .option("--variant <names>", "variants of the scenario, separated by commas, or all")
    .option("--trace <file>", "trace to replay; may be gzipped")
    .addOption(oneOf(new Option("--format <name>", "trace format (default: detected)"), traceFormats))
    .option("--fleet <file>", "fleet as JSON: engines, routers, preset, parameters, perEngine, topology, cells")
    .option("--requests <n>", "only the first n requests")
    .option("--duration <time>", "sending time, such as 60s (default: the scenario's)")
    .option("--load <shares>", "loads as shares of the knee, which is measured first, such as 0.5,0.85")
    .option("--users <counts>", "closed-loop users, such as 50,200,800")
    .option("--knee-of <policy>", "policy that defines the knee (default: the scenario's last)")
    .addOption(
      oneOf(
        new Option(
          "--admission <mode>",
          "whether routers queue requests while engines are busy (default: the scenario's)",
        ),
        ["on", "off"],
      ),
    )
    .addOption(sloOption("objectives that routers work towards and an answer must meet to count as goodput"))
    .optionsGroup("Compare:")
    .option("--policy <names>", `separated by commas, or all: ${simulatedPolicies.join(", ")}`)
    .option("--plugins <files>", "modules with custom policies for --policy, separated by commas")
    .option("--routers <counts>", "router counts, such as 1,2,4,8")
    .option("--engines <counts>", "engine counts")
    .option("--sharing <ways>", `state that routers share: ${sharings.join(", ")} (default: mesh)`)
    .option("--links <models>", "mesh model: real (journals and links of every router) or delays (default: real)")
    .option(
      "--what-if <changes>",
      "fleet changes to compare, separated by commas: engines+4, routers-1, policy=NAME, sharing=none",
    )
    .option(
      "--link-delay <times>",
      "one-way delays between routers, such as 50ms,150ms; also prints the ratio to sharing nothing (default: 0.5ms)",
    )
    .option("--seeds <n>", "runs with seeds 1 to n (default: 1)")
    .optionsGroup("Output:")
    .option("--json", "print JSON instead of tables")
    .option("--plot <file>", "write an SVG of TTFT, load and cached shares")
    .option("--write-trace <file>", "write the scenario's requests as a trace for replay, without a run")
    .option("--jobs <n>", "parallel runs (default: one per core)")
    .option(
      "--report",
      "run all scenarios in at most 30 minutes, or the named one to its end, and write each result into " +
        "docs/benchmarks. ablation writes docs/benchmarks/ablation.md",
    )
    .option("--quick", "a report, worst-case or ablation in at most 3 minutes")
    .option("--only <scenarios>", "worst-case and ablation: scenarios to include, separated by commas")
    .option("--without <parts>", "ablation: parts to leave out, separated by commas (default: each)")
    .action(async (name: string | undefined, flags: SimulateFlags) => simulate(name, flags));
}

async function simulate(name: string | undefined, flags: SimulateFlags): Promise<void> {
  const command = readSimulateOptions(name, flags);
  if (command.kind === "list") list(flags.json ?? false);
  else if (command.kind === "report") await report(command);
  else if (command.kind === "worst-case") await worstCase(command);
  else if (command.kind === "ablation") await ablate(command);
  else if (command.kind === "write-trace") await writeTrace(command);
  else await run(command, flags);
}

function list(isJson: boolean): void {
  const scenarios = scenarioNames.map(scenario);
  if (isJson) {
    writeJson(
      scenarios.map(({ name, summary, fleet, variants, policies, trace }) => ({
        ...{ name, summary, fleet, policies },
        variants: variants.map((variant) => variant.name),
        ...(trace === undefined ? {} : { trace }),
      })),
    );
    return;
  }
  writeResult(
    layOutTable(scenarios, [
      { header: "scenario", value: ({ name }) => name },
      { header: "what it is", value: describeScenario },
    ]),
  );
}

function describeScenario({ summary, fleet: { engines, routers }, variants }: Scenario): string {
  const fleet = `${engines} ${engines === 1 ? "engine" : "engines"}, ${routers} ${routers === 1 ? "router" : "routers"}`;
  const names = someOf(variants.map(({ name }) => name));
  return `${summary} (${fleet}${names === "" ? "" : `; variants: ${names}`})`;
}

/** Maximum variants listed per line. */
const maxListed = 12;

function someOf(names: readonly string[]): string {
  const more = names.length - maxListed;
  return [...names.slice(0, maxListed), ...(more > 0 ? [`and ${more} more (--json)`] : [])].join(", ");
}

async function report({ scenario: only, isQuick, jobs, traces }: ReportCommand): Promise<void> {
  const isWhole = await writeReport({
    plan: reportPlan.filter(({ scenario: name }) => only === undefined || name === only),
    isQuick,
    size: jobs,
    budgetMs: budgetOf(only, isQuick),
    pages: "docs/benchmarks",
    traces,
    signal: abortOnSignal(),
  });
  if (!isWhole) process.exitCode = 1;
}

function budgetOf(only: string | undefined, isQuick: boolean): number | undefined {
  if (isQuick) return reportBudgetMs.quick;
  return only === undefined ? reportBudgetMs.full : undefined;
}

async function worstCase(command: WorstCaseCommand): Promise<void> {
  const isWhole = await runWorstCase(command, abortOnSignal());
  if (!isWhole) process.exitCode = 1;
}

async function ablate(command: AblationCommand): Promise<void> {
  const isWhole = await runAblation(command, { docs: "docs", signal: abortOnSignal() });
  if (!isWhole) process.exitCode = 1;
}

async function run({ selection, jobs: size, plot, whatIfs }: RunCommand, flags: SimulateFlags): Promise<void> {
  const simulated = await loadScenario(selection.source);
  const named = [...simulatedPolicies, ...Object.keys(simulated.customPolicies ?? {})];
  for (const policy of selection.policies ?? []) readName(policy, "--policy", named);
  const { name, trace, syntheticTrace } = simulated.scenario;
  const isSynthetic = syntheticTrace !== undefined && simulated.trace === undefined;
  if (isSynthetic)
    writeNote(
      `${name}: WITHOUT THE REAL TRACE. These are invented sessions like it; --trace ${trace} runs the real ones.`,
    );
  const signal = abortOnSignal();
  const plan = whatIfs && planWhatIf(whatIfs, selection, simulated.scenario);
  const prepared = plan
    ? { ...plan, knees: [], failures: [] }
    : await prepareRuns(selection, simulated, { size, signal });
  const { jobs, knees, failures: lostKnees } = prepared;
  const isJson = flags.json ?? false;
  if (!isJson) for (const knee of knees) writeResult(describeKnee(knee));
  const stream = createRowStream(jobs, writeLine);
  const { outcomes, failures } = await executeJobs(jobs, {
    ...{ size, signal, title: simulated.scenario.name },
    ...(isJson ? {} : { onOutcome: (at: number, { row }: RunOutcome) => stream.add(at, row) }),
  });
  if (!isJson) stream.end();
  noteFailures([...lostKnees, ...failures]);
  const made = outcomes.filter((outcome) => outcome !== undefined);
  const rows = withGaps(made.map(({ row }) => row));
  const medians = medianRows(rows);
  const compared = plan ? compareWhatIfs(plan, medians) : [];
  if (isJson) writeRunJson({ flags, isSynthetic, scenario: simulated.scenario, made, rows, medians, knees, compared });
  else writeRest(simulated.scenario, made, medians, selection.seeds);
  if (!isJson) for (const outcome of compared) writeResult(describeWhatIf(outcome));
  if (plot !== undefined && made.length > 0)
    await writeFile(plot, renderFigure(figureOf(simulated.scenario.name, made, rows)));
  const isBad = made.length < jobs.length || lostKnees.length > 0 || rows.some((row) => row.errors === row.requests);
  if (isBad || signal.aborted) process.exitCode = 1;
}

interface RunReport {
  readonly flags: SimulateFlags;
  /** The scenario replays a trace, and invented sessions took its place. */
  readonly isSynthetic: boolean;
  readonly scenario: Scenario;
  readonly made: readonly RunOutcome[];
  readonly rows: readonly SimulateRow[];
  readonly medians: readonly MedianRow[];
  readonly knees: readonly FoundKnee[];
  readonly compared: readonly WhatIfOutcome[];
}

function writeRunJson({
  flags,
  isSynthetic,
  scenario: { name, ...rest },
  made,
  rows,
  medians,
  knees,
  compared,
}: RunReport): void {
  const comparisons = compareWithPublished({ name, ...rest }, medians);
  writeJson({
    name: "simulate",
    params: { scenario: name, ...flags },
    ...(isSynthetic ? { trace: "synthetic" } : {}),
    rows: rows.map((row, at) => ({ ...row, ...(made[at]?.phases ? { phases: made[at].phases } : {}) })),
    medians,
    ...(knees.length === 0 ? {} : { knees }),
    ...(compared.length === 0 ? {} : { what_if: compared }),
    ...(comparisons.length === 0 ? {} : { published: comparisons }),
  });
}

function writeRest(
  simulated: Scenario,
  made: readonly RunOutcome[],
  medians: readonly MedianRow[],
  seeds: number,
): void {
  for (const note of boundsNotes(medians)) writeResult(note);
  if (seeds > 1 && medians.length > 0) writeResult(`medians of ${seeds} seeds; --json has each`);
  for (const { title, headers, lines } of extraTables(simulated, made, medians)) {
    const columns = headers.map((header, at) => ({ header, value: (line: readonly string[]) => line[at] }));
    writeResult(`\n${title}\n${layOutTable(lines, columns)}`);
  }
}

function describeKnee({ variant, engines, policy, scale, requests_per_s: rate }: FoundKnee): string {
  const where = variant === undefined ? `${engines} engines` : `${variant}, ${engines} engines`;
  const asRate = rate === undefined ? "" : `, ${rate.toFixed(1)} requests/s`;
  return `the knee of ${where} by ${policy}: ${scale.toFixed(3)} of the published rate${asRate}`;
}

/** On a terminal, the progress bar may occupy this line. */
function writeLine(line: string): void {
  if (process.stderr.isTTY) process.stderr.write("\r\u001b[K");
  writeResult(line);
}

/** Writes an invented trace, gzipped for a file name that says so. */
function writeSyntheticTrace(lines: Iterable<string>, file: string): void {
  const written = [...lines];
  const text = written.map((line) => `${line}\n`).join("");
  writeFileSync(file, file.endsWith(".gz") ? gzipSync(text) : text);
  writeResult(`${written.length} sessions in ${file}; espalier replay --trace ${file} --format claude-code`);
}

/** Seed of the draws, the same as in the first run of every command. */
const seed = 1;

/**
 * Writes the requests of a scenario's clients, so that they can be sent over HTTP.
 *
 * @throws UsageError for a scenario without requests of its own, one whose requests depend on answers, and too many
 * requests
 */
export async function writeTrace({
  scenario: name,
  variant: variantName,
  file,
  requests,
  durationS,
}: WriteTraceCommand): Promise<void> {
  const scenario = await openScenario(name);
  const variant = variantName === undefined ? undefined : findVariant(scenario, variantName);
  if (scenario.syntheticTrace !== undefined) {
    if (variantName !== undefined || requests !== undefined || durationS !== undefined)
      throw new UsageError(`--write-trace: ${name} writes its invented sessions, all of them`);
    writeSyntheticTrace(scenario.syntheticTrace(), file);
    return;
  }
  if (scenario.trace !== undefined)
    throw new UsageError(`--write-trace: ${name} replays a trace, which is one already`);
  if (!scenario.isOpenLoop)
    throw new UsageError(`--write-trace: ${name} is a closed loop: when its requests come depends on the fleet`);
  const { engines = scenario.fleet.engines, preset = scenario.fleet.preset, scale = 1 } = variant ?? {};
  const { blockCount, blockSize } = enginePresets[preset].parameters;
  const workload = (variant?.createWorkload ?? scenario.createWorkload)({
    ...{ seed, engines, kvTokens: blockCount * blockSize, scale },
    ...(requests === undefined ? {} : { requests }),
    ...(durationS === undefined ? {} : { durationS }),
  });
  if (workload.expectedRequests > maxTraceRequests)
    throw new UsageError(`--write-trace: ${workload.expectedRequests} requests are more than ${maxTraceRequests}`);
  const out = openSync(file, "w");
  let rows = 0;
  try {
    recordTrace(workload, (row) => {
      writeSync(out, `${bailianLine(row)}\n`);
      rows++;
    });
  } finally {
    closeSync(out);
  }
  writeResult(`${rows} requests in ${file}; espalier replay --trace ${file} --engines ${engines} --preset ${preset}`);
}
