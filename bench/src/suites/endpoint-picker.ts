import { layOutTable, systemClock, systemScheduler } from "@espalier/core";
import { envoyVersion, installedEnvoy } from "espalier-router";
import { startBenchEngine } from "../data-path/bench-engine.ts";
import { ownName } from "../data-path/contenders.ts";
import { concurrency, largeBodyBytes, smallBodyBytes, steadyPerSecond } from "../data-path/loads.ts";
import { saturationWarnings } from "../data-path/measure-data-path.ts";
import { cacheAware } from "../peers/products.ts";
import { arrangementNames, arrangements } from "../pickers/arrangements.ts";
import { buildGoProgram } from "../pickers/build-go-program.ts";
import { llmdSource } from "../pickers/llmd-picker.ts";
import { measurePickers, type PickersRun } from "../pickers/measure-pickers.ts";
import { measurePickerFleet, type PickerFleetSizes, pickerFleetParams } from "../pickers/picker-fleet.ts";
import { type CorePlan, priorityParam, reserveCore } from "../support/cpu-pinning.ts";
import type { Figures } from "../support/median-spread.ts";
import { names, optional, type ParamValues, positive, quick, runs, text } from "../support/params.ts";
import { repeatRuns } from "../support/repeat-runs.ts";
import {
  type BenchReport,
  defineSuite,
  joinRuns,
  type Measured,
  type Note,
  reportOf,
  withExtremes,
} from "../support/suite.ts";

/** Selects what several pickers do together. */
const fleetName = "fleet";
const usualFleet: PickerFleetSizes = { conversations: 200, warmUpConversations: 100, killLoadMs: 10_000 };
const quickFleet: PickerFleetSizes = { conversations: 10, warmUpConversations: 5, killLoadMs: 1_000 };

export const pickersParams = {
  only: optional(
    names("some of these; all unless given, with --quick those without llm-d", [...arrangementNames, fleetName]),
  ),
  runs: runs(3, 20, "runs with fresh processes, of which the medians count"),
  minutes: positive({ placeholder: "N", help: "no run begins that would probably end later", standard: 20, most: 600 }),
  duration: positive({
    help: "seconds of each closed loop; at a fixed rate it is twice that",
    ...{ standard: 3, quick: 0.3, most: 600 },
  }),
  "envoy-bin": optional(text("FILE", "another Envoy than the installed one", "")),
  folder: text("DIR", "where llm-d's picker is kept", ".cache/pickers"),
  priority: priorityParam,
  quick: quick(),
};

/** CPU time and latency that an endpoint picker adds, by how Envoy asks it. */
export const endpointPickerSuite = defineSuite({
  name: "endpoint-picker",
  summary: "CPU and latency of endpoint pickers behind Envoy, beside our own proxy, Envoy alone, and llm-d's picker",
  about: `
The cost of an endpoint picker. The same requests go to engines through

  proxy                  \`espalier serve\`, without Envoy
  envoy                  Envoy, alone, which takes engines in turn
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
turn meets another picker, 50 ms after the first, and goes to the same engine; and the requests that fail when a picker is killed.`,
  params: pickersParams,
  async measure(values, note) {
    const options = pickersPlan(values);
    const envoy = values["envoy-bin"] ?? installedEnvoy();
    if (envoy === undefined) throw new Error("NOT RUN: Envoy is not installed (npm run envoy:install)");
    const { program: llmd, missing } = await llmdProgram(options.names, values.folder, note);
    const plan = reserveCore(values.priority);
    note(plan ? `pinned: measured programs on core ${plan.router.join(",")}` : "not pinned: no taskset, or one core");
    const ports = { clock: systemClock, scheduler: systemScheduler, plan, envoy, llmd };
    const measured = arrangements(ports).filter(({ name }) => options.names.includes(name));
    const { sizes, fleet } = options;
    const engine = await startBenchEngine();
    try {
      const within = { clock: systemClock, deadlineMs: systemClock.nowMs() + values.minutes * 60_000 };
      const done = await repeatRuns({ runs: values.runs, note, within }, async (seed, noteRun) => {
        const more = { clock: systemClock, note: noteRun };
        const run = await measurePickers({ arrangements: measured, engine, sizes, ...more }, seed);
        if (!fleet) return run;
        const together = await measurePickerFleet({ sizes: fleet, envoy, seed, ports, note: noteRun });
        return { ...run, figures: { ...run.figures, [ownName]: { ...run.figures[ownName], ...together } } };
      });
      const params = {
        ...{ runs: values.runs, arrangements: measured.map(({ name }) => name).join(",") },
        ...{ closed_ms: sizes.closedMs, steady_ms: sizes.steadyMs },
        ...{ warm_up_4k: sizes.warmUpRequests["4k"], warm_up_48k: sizes.warmUpRequests["48k"], concurrency },
        ...{ small_body_bytes: smallBodyBytes, large_body_bytes: largeBodyBytes, steady_per_second: steadyPerSecond },
        ...{ ...pickerFleetParams, policy: cacheAware, admission: "off", pinned: plan !== undefined },
        ...{ node: process.versions.node, envoy: values["envoy-bin"] ?? envoyVersion, llm_d: llmdSource.commit },
      };
      return pickersReport(done, params, plan, missing);
    } finally {
      await engine.stop();
    }
  },
  table: pickersTable,
});

/** @returns why it is missing, when it cannot be built */
async function llmdProgram(
  wanted: readonly string[],
  folder: string,
  note: Note,
): Promise<{ readonly program: string | undefined; readonly missing: readonly string[] }> {
  if (!wanted.some((name) => name.startsWith("llm-d"))) return { program: undefined, missing: [] };
  try {
    return { program: await buildGoProgram(llmdSource, { folder, note }), missing: [] };
  } catch (thrown) {
    const reason = thrown instanceof Error ? thrown.message : String(thrown);
    note(`llm-d's picker unavailable, skipped: ${reason}`);
    return { program: undefined, missing: [`llm-d's picker was not measured: ${reason}`] };
  }
}

export function pickersPlan({ only, duration, quick: isQuick }: ParamValues<typeof pickersParams>) {
  const usual = isQuick ? arrangementNames.filter((name) => !name.startsWith("llm-d")) : arrangementNames;
  const wanted = only ?? [...usual, fleetName];
  const closedMs = duration * 1_000;
  // V8 compiles hot code only after some thousand requests.
  const warmUpRequests = isQuick ? { "4k": 100, "48k": 50 } : { "4k": 10_000, "48k": 5_000 };
  return {
    names: wanted,
    sizes: { closedMs, steadyMs: 2 * closedMs, warmUpRequests },
    /** Undefined leaves the fleet out. */
    fleet: wanted.includes(fleetName) ? (isQuick ? quickFleet : usualFleet) : undefined,
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
  params: Measured["params"],
  plan: CorePlan | undefined,
  notHad: readonly string[],
) {
  const joined = joinRuns(
    runs.map(({ figures: { [ownName]: own = {}, ...others } }) => ({ [ownName]: own, ...others })),
  );
  return reportOf("endpoint-picker", {
    params: { ...params, runs: runs.length },
    ...joined,
    shares: runs.map((run) => run.shares),
    warnings: [...notHad, ...saturationWarnings(runs, plan?.others.length)],
  });
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

/** A line for each arrangement, in several tables. */
export function pickersTable({ metrics, baselines, spread, params }: BenchReport): string {
  const figures: Readonly<Record<string, Figures | undefined>> = { ...baselines, [ownName]: metrics };
  const rows: readonly Row[] = String(params.arrangements)
    .split(",")
    .map((name) => {
      const [, product = name, way = ""] = /^(picker|llm-d)-(.*)$/.exec(name) ?? [];
      const owner = product === "picker" ? ownName : product;
      return { name, owner, suffix: way === "" ? "" : `_${way.replace("-", "_")}` };
    });
  const cell = (figure: string, { owner, suffix }: Row): string | undefined =>
    withExtremes(figure, figures[owner]?.[`${figure}${suffix}`], spread[owner]?.[`${figure}${suffix}`]);
  const tables = columns.map((names) =>
    layOutTable(rows, [
      { header: "through", value: (row) => row.name },
      ...names.map((figure) => ({ header: figure, value: (row: Row) => cell(figure, row) })),
    ]),
  );
  const together = Object.keys(metrics).filter((name) =>
    /^(same_engine|failed_after|streams_cut|requests_around)/.test(name),
  );
  const fleet = together.map((name) => `${name} ${cell(name, { name, owner: ownName, suffix: "" })}\n`).join("");
  return `${tables.join("\n")}${fleet === "" ? "" : `\n${fleet}`}`;
}
