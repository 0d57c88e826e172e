import { parseArgs } from "node:util";
import { systemClock, systemScheduler } from "@espalier/core";
import { formatTable } from "@espalier/simulator";
import { envoyVersion, installedEnvoy } from "espalier";
import { startBenchEngine } from "../data-path/bench-engine.ts";
import { ownName } from "../data-path/contenders.ts";
import { concurrency, largeBodyBytes, smallBodyBytes, steadyPerSecond } from "../data-path/loads.ts";
import { saturationWarnings } from "../data-path/measure-data-path.ts";
import { cacheAware } from "../peers/products.ts";
import { repeatWithin } from "../peers/repeat-within.ts";
import { arrangementNames, arrangements } from "../pickers/arrangements.ts";
import { buildGoProgram } from "../pickers/build-go-program.ts";
import { llmdSource } from "../pickers/llmd-picker.ts";
import { measurePickers, type PickerLoadSizes, type PickersRun } from "../pickers/measure-pickers.ts";
import { measurePickerFleet, type PickerFleetSizes, pickerFleetParams } from "../pickers/picker-fleet.ts";
import { type CorePlan, reserveCore } from "../support/cpu-pinning.ts";
import { type Figures, summarizeRuns } from "../support/median-spread.ts";
import { readPositive, readWhole } from "../support/read-options.ts";
import type { BenchReport, Suite } from "../support/suite.ts";
import { UsageError } from "../support/usage-error.ts";

const help = `Usage: npm run bench -- endpoint-picker [options]

What an endpoint picker costs. The same requests go to engines by way of

  proxy                  \`espalier serve\`, without Envoy
  envoy                  Envoy, which asks nobody and takes engines in turn
  picker                 Envoy, which asks \`espalier serve\`: bodies are streamed to it and back (FULL_DUPLEX_STREAMED), answers too
  picker-answers-hidden  the same, but of answers it sees only the heads
  picker-buffered        it sees bodies once Envoy has them whole (BUFFERED), and only the heads of answers
  picker-headers-only    it sees only heads, and chooses by load
  picker-alone           the picker without Envoy: this program asks it as Envoy does in \`picker\`
  llm-d, llm-d-answers-hidden, llm-d-alone  the same with llm-d's picker, built once by git and go (minutes) into --folder

each in fresh processes on one core (\`espalier serve\` with \`--admission-mode off\`), with load generator and engines on the others. CPU time is taken in a closed loop of ${concurrency}
connections and at ${steadyPerSecond} requests/s, latency at ${steadyPerSecond} requests/s beyond a direct connection. Needs Envoy (\`npm run envoy:install\`,
or --envoy-bin), Linux and a C compiler.

Then what three pickers of a mesh do together, before simulated engines (\`fleet\` in --only): the share of conversations whose second
turn meets another picker, 50 ms after the first, and goes to the same engine; and the requests that fail when a picker is killed.

  --only NAMES   some of these, separated by commas (all; with --quick those without llm-d)
  --runs N       runs with fresh processes, of which the medians count (3)
  --minutes N    no run begins that would probably end later (20)
  --duration S   seconds of each closed loop (3); at a fixed rate it is twice that
  --envoy-bin FILE  another Envoy than the installed one
  --folder DIR   where llm-d's picker is kept (.cache/pickers)
  --priority     all of it before other programs of this machine; needs root
  --quick        one short run
  --json         one JSON object on standard output
`;

interface PickersOptions {
  readonly names: readonly string[];
  readonly runs: number;
  readonly budgetMs: number;
  readonly sizes: PickerLoadSizes;
  /** Undefined leaves the fleet out. */
  readonly fleet: PickerFleetSizes | undefined;
  readonly folder: string;
  /** A program; the installed one when undefined. */
  readonly envoy: string | undefined;
  /** Whether measured programs take priority over others. */
  readonly isFirst: boolean;
}

/** Selects what several pickers do together. */
const fleetName = "fleet";
const usualFleet: PickerFleetSizes = { conversations: 200, warmUpConversations: 100, killLoadMs: 10_000 };
const quickFleet: PickerFleetSizes = { conversations: 10, warmUpConversations: 5, killLoadMs: 1_000 };

/** CPU time and latency that an endpoint picker adds, by how Envoy asks it. */
export const endpointPickerSuite: Suite = {
  name: "endpoint-picker",
  summary: "CPU and latency of endpoint pickers behind Envoy, beside our own proxy, Envoy alone, and llm-d's picker",
  help,
  async run(args, note) {
    const options = readPickersOptions(args);
    const envoy = options.envoy ?? installedEnvoy();
    if (envoy === undefined) throw new Error("NOT RUN: Envoy is not installed (npm run envoy:install)");
    const { program: llmd, missing } = await llmdProgram(options, note);
    const plan = reserveCore(options.isFirst);
    note(plan ? `pinned: measured programs on core ${plan.router.join(",")}` : "not pinned: no taskset, or one core");
    const ports = { clock: systemClock, scheduler: systemScheduler, plan, envoy, llmd };
    const measured = arrangements(ports).filter(({ name }) => options.names.includes(name));
    const { sizes, fleet, runs: count, budgetMs } = options;
    const engine = await startBenchEngine();
    try {
      const deadlineMs = systemClock.nowMs() + budgetMs;
      const runs = await repeatWithin({ count, deadlineMs, clock: systemClock }, async (index) => {
        const noteRun = (line: string): void => note(`run ${index + 1} of ${count}: ${line}`);
        const more = { clock: systemClock, note: noteRun };
        const run = await measurePickers({ arrangements: measured, engine, sizes, ...more }, index + 1);
        if (!fleet) return run;
        const together = await measurePickerFleet({ sizes: fleet, envoy, seed: index + 1, ports, note: noteRun });
        return { ...run, figures: { ...run.figures, [ownName]: { ...run.figures[ownName], ...together } } };
      });
      const names = measured.map(({ name }) => name);
      const report = pickersReport(runs, paramsOf(options, names, plan), plan, missing);
      return { report, table: pickersTable };
    } finally {
      await engine.stop();
    }
  },
};

/** @returns why it is missing, when it cannot be built */
async function llmdProgram(
  { names, folder }: PickersOptions,
  note: (line: string) => void,
): Promise<{ readonly program: string | undefined; readonly missing: readonly string[] }> {
  if (!names.some((name) => name.startsWith("llm-d"))) return { program: undefined, missing: [] };
  try {
    return { program: await buildGoProgram(llmdSource, { folder, note }), missing: [] };
  } catch (thrown) {
    const reason = thrown instanceof Error ? thrown.message : String(thrown);
    note(`llm-d's picker cannot be had and is left out: ${reason}`);
    return { program: undefined, missing: [`llm-d's picker was not measured: ${reason}`] };
  }
}

/** @throws UsageError */
export function readPickersOptions(args: readonly string[]): PickersOptions {
  const text = { type: "string" } as const;
  const flag = { type: "boolean" } as const;
  const { values } = parseArgs({
    args: [...args],
    options: {
      ...{ only: text, runs: text, minutes: text, duration: text, folder: text, "envoy-bin": text },
      ...{ quick: flag, priority: flag },
    },
  });
  const isQuick = values.quick === true;
  const usual = isQuick ? arrangementNames.filter((name) => !name.startsWith("llm-d")) : arrangementNames;
  const names = values.only?.split(",") ?? [...usual, fleetName];
  const unknown = names.find((name) => name !== fleetName && !arrangementNames.includes(name));
  if (unknown !== undefined) throw new UsageError(`--only: there is no ${JSON.stringify(unknown)}`);
  const closedMs = readPositive("--duration", values.duration, { standard: isQuick ? 0.3 : 3, max: 600 }) * 1_000;
  return {
    names,
    runs: readWhole("--runs", values.runs, { standard: isQuick ? 1 : 3, max: 20 }),
    budgetMs: readPositive("--minutes", values.minutes, { standard: 20, max: 600 }) * 60_000,
    sizes: {
      closedMs,
      steadyMs: 2 * closedMs,
      // V8 compiles hot code only after some thousand requests.
      warmUpRequests: isQuick ? { "4k": 100, "48k": 50 } : { "4k": 10_000, "48k": 5_000 },
    },
    fleet: names.includes(fleetName) ? (isQuick ? quickFleet : usualFleet) : undefined,
    folder: values.folder ?? ".cache/pickers",
    envoy: values["envoy-bin"],
    isFirst: values.priority === true,
  };
}

function paramsOf(
  { sizes, runs, envoy }: PickersOptions,
  names: readonly string[],
  plan: CorePlan | undefined,
): BenchReport["params"] {
  return {
    runs,
    arrangements: names.join(","),
    closed_ms: sizes.closedMs,
    steady_ms: sizes.steadyMs,
    warm_up_4k: sizes.warmUpRequests["4k"],
    warm_up_48k: sizes.warmUpRequests["48k"],
    concurrency,
    small_body_bytes: smallBodyBytes,
    large_body_bytes: largeBodyBytes,
    steady_per_second: steadyPerSecond,
    ...pickerFleetParams,
    policy: cacheAware,
    admission: "off",
    pinned: plan !== undefined,
    node: process.versions.node,
    envoy: envoy ?? envoyVersion,
    llm_d: llmdSource.commit,
  };
}

/**
 * Joins runs into medians.
 *
 * @param plan undefined when nothing was pinned
 * @param notHad sentences on what could not be measured
 */
export function pickersReport(
  runs: readonly PickersRun[],
  params: BenchReport["params"],
  plan: CorePlan | undefined,
  notHad: readonly string[],
): BenchReport {
  const owners = Object.keys(runs[0]?.figures ?? {});
  const summaries = owners.map((owner) => [owner, summarizeRuns(runs.map((run) => run.figures[owner] ?? {}))] as const);
  const medians = Object.fromEntries(summaries.map(([owner, summary]) => [owner, summary.medians]));
  const { [ownName]: metrics = {}, ...baselines } = medians;
  return {
    name: "endpoint-picker",
    params: { ...params, runs: runs.length },
    metrics,
    baselines,
    spread: Object.fromEntries(summaries.map(([owner, { spread }]) => [owner, spread])),
    shares: runs.map((run) => run.shares),
    warnings: [...notHad, ...saturationWarnings(runs, plan?.others.length)],
  };
}

/** Figures of one arrangement: the owner's, whose names end in this. */
interface Row {
  readonly name: string;
  readonly owner: string;
  readonly suffix: string;
}

const columns = [
  ["envoy_cpu_us_4k", "picker_cpu_us_4k", "cpu_us_4k", "rps_4k"],
  ["envoy_cpu_us_48k", "picker_cpu_us_48k", "cpu_us_48k", "rps_48k"],
  ["cpu_us_4k_300rps", "added_4k_p50_ms", "added_4k_p99_ms"],
  ["cpu_us_48k_300rps", "added_48k_p50_ms", "added_48k_p99_ms"],
];

/** The report for a terminal: medians, followed by the extremes of the runs. */
export function pickersTable({ metrics, baselines, spread, warnings, params }: BenchReport): string {
  const figures: Readonly<Record<string, Figures | undefined>> = { ...baselines, [ownName]: metrics };
  const rows: readonly Row[] = String(params.arrangements)
    .split(",")
    .map((name) => {
      const [, product = name, way = ""] = /^(picker|llm-d)-(.*)$/.exec(name) ?? [];
      const owner = product === "picker" ? ownName : product;
      return { name, owner, suffix: way === "" ? "" : `_${way.replace("-", "_")}` };
    });
  const cell = (figure: string, { owner, suffix }: Row): string => {
    const median = figures[owner]?.[`${figure}${suffix}`];
    const extremes = spread[owner]?.[`${figure}${suffix}`];
    if (median === undefined || !extremes) return "-";
    return `${short(median)} (${short(extremes.min)} .. ${short(extremes.max)})`;
  };
  const tables = columns.map((names) =>
    formatTable(rows, [
      { header: "by way of", value: (row) => row.name },
      ...names.map((figure) => ({ header: figure, value: (row: Row) => cell(figure, row) })),
    ]),
  );
  const together = Object.keys(metrics).filter((name) =>
    /^(same_engine|failed_after|streams_cut|requests_around)/.test(name),
  );
  const fleet = together.map((name) => `${name} ${cell(name, { name, owner: ownName, suffix: "" })}\n`).join("");
  const pinned = params.pinned ? "" : "Not pinned to cores: figures are of the whole machine.\n";
  return `${tables.join("\n")}${fleet === "" ? "" : `\n${fleet}`}${pinned}${warnings.map((warning) => `Warning: ${warning}.\n`).join("")}`;
}

function short(value: number): string {
  if (Math.abs(value) >= 1_000) return value.toFixed(0);
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}
