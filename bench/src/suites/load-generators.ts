import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { systemClock, systemScheduler } from "@espalier/core";
import { writeAgentTraces } from "../load-generators/agent-traces.ts";
import {
  type ComparedFleet,
  type ComparedSystem,
  type FleetSizes,
  ownPolicy,
  prepareSystem,
  severalRouters,
  startOwn,
  systemNames,
} from "../load-generators/compared-systems.ts";
import { type DocumentedCommand, documentedCommands, placed } from "../load-generators/documented-commands.ts";
import { readEngineTotals } from "../load-generators/engine-totals.ts";
import { loadGenerators, wrongIn } from "../load-generators/generators.ts";
import { generatorOf, installGenerator, runGenerator } from "../load-generators/run-generator.ts";
import { benchModel } from "../support/bench-model.ts";
import type { Figures } from "../support/median-spread.ts";
import { flag, names, optional, type ParamValues, quick, runs, text } from "../support/params.ts";
import { repeatRuns } from "../support/repeat-runs.ts";
import { defineSuite, joinRuns, type Measured, type Note, reportOf } from "../support/suite.ts";
import { UsageError } from "../support/usage-error.ts";

const root = fileURLToPath(new URL("../../../", import.meta.url));
/** The pages whose commands are run, as they stand there. */
export const guidePage = "docs/guides/benchmark.md";
export const comparisonPage = "docs/benchmarks/load-generators.md";
const traceFile = join(root, "examples/traces/agent-sessions.jsonl.gz");

const guideFleet: FleetSizes = { engines: 4, preset: "h100-32b-tp2", speed: 1 };
/** Slower engines, so that prompts and not this machine's cores decide. */
const comparedFleet: FleetSizes = { engines: 4, preset: "a10g-7b", speed: 1 };

const loadGeneratorsParams = {
  only: optional(names("some of the load generators, or with --compare of the systems", allNames())),
  compare: flag(`run the commands of ${comparisonPage} through this router and others`),
  runs: runs(3, 20, "runs of --compare, each with fresh engines and routers"),
  folder: text("DIR", "where load generators are installed, once", ".cache/load-generators"),
  "vllm-folder": text("DIR", "where vLLM is installed, once", ".cache/real-engine"),
  quick: quick(`one run of --compare, and without it no vLLM, which takes 6 GB`),
};

type Values = ParamValues<typeof loadGeneratorsParams>;

/** Load generators of other projects, with the commands that the documents show. */
export const loadGeneratorsSuite = defineSuite({
  name: "load-generators",
  summary:
    "vllm bench serve, guidellm, aiperf and inference-perf as the guide runs them; --compare: other routers by aiperf",
  about: `
Runs the commands of ${guidePage}, as they stand there, against ${guideFleet.engines} simulated engines behind ${severalRouters} routers at
one address, and reads each report. A run fails when a request fails, when the report lacks times or tokens, or when
the engines counted fewer requests or tokens than it.

With --compare it runs the commands of ${comparisonPage} through this router and others instead:
${systemNames.join(", ")}.
Engines and routers are fresh for each command.

Installs each load generator by pip in the release it was written for, with all that it needs (lock files in
bench/load-generators; Python 3.12 or 3.13), and for --compare the other routers, as \`peers\` and \`endpoint-picker\` do.`,
  params: loadGeneratorsParams,
  measure: (values, note) => (values.compare ? measureCompared(values, note) : measureGuide(values, note)),
});

async function measureGuide(values: Values, note: Note) {
  const all = loadGenerators.map(({ program }) => program);
  const usual = all.filter((name) => !values.quick || name !== "vllm");
  const wanted = chosen(values.only, all) ?? usual;
  const commands = commandsOf(guidePage).filter((command) => wanted.includes(generatorOf(command).program));
  const failures: string[] = [];
  const figures: Record<string, Figures> = {};
  for (const command of commands) {
    const { program, release } = generatorOf(command);
    const name = figures[program] === undefined ? program : `${program}, ${command.heading.toLowerCase()}`;
    try {
      const bin = await installGenerator(generatorOf(command), foldersOf(values), note);
      note(`${program} ${release}: ${command.command.split("\n")[0]}`);
      const start = () => startOwn(guideFleet, severalRouters, ownPolicy, ports);
      figures[name] = await measureOnce(command, start, bin);
      failures.push(...wrongIn(figures[name]).map((wrong) => `${name}: ${wrong}`));
    } catch (thrown) {
      failures.push(`${name}: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
    }
  }
  const releases = loadGenerators.map(({ package: name, release }) => [name, release] as const);
  const params = { ...guideFleet, routers: severalRouters, policy: ownPolicy, ...Object.fromEntries(releases) };
  return { ...report([figures], params), failures };
}

async function measureCompared(values: Values, note: Note) {
  const commands = commandsOf(comparisonPage);
  const systems: ComparedSystem[] = [];
  const failures: string[] = [];
  const folders = { peers: ".cache/peers", pickers: ".cache/pickers" };
  for (const name of chosen(values.only, systemNames) ?? systemNames) {
    try {
      systems.push(await prepareSystem(name, comparedFleet, folders, note));
    } catch (thrown) {
      failures.push(`${name} unavailable: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
    }
  }
  const bins = new Map<string, string>();
  for (const command of commands) {
    const generator = generatorOf(command);
    bins.set(generator.program, await installGenerator(generator, foldersOf(values), note));
  }
  const done = await repeatRuns({ runs: values.runs, note }, async (seed, noteRun) => {
    const figures: Record<string, Record<string, number>> = {};
    // Each starts first in a run of its own: a machine that slows down slows all.
    const first = (seed - 1) % Math.max(systems.length, 1);
    for (const { name, start } of [...systems.slice(first), ...systems.slice(0, first)]) {
      for (const command of commands) {
        const label = command.heading.toLowerCase().replaceAll(" ", "_");
        const bin = bins.get(generatorOf(command).program) ?? "";
        const measured = await measureOnce(command, () => start(ports), bin).catch((thrown: Error) => {
          failures.push(`${name}, ${command.heading}: ${thrown.message}`);
          return {};
        });
        noteRun(`${name}, ${command.heading}: ${JSON.stringify(measured)}`);
        for (const [figure, value] of Object.entries(measured)) {
          figures[name] = { ...figures[name], [`${label}_${figure}`]: value };
        }
      }
    }
    return Object.fromEntries(systems.flatMap(({ name }) => (figures[name] ? [[name, figures[name]]] : [])));
  });
  return { ...report(done, { ...comparedFleet, runs: done.length, policy: ownPolicy }), failures };
}

const ports = { clock: systemClock, scheduler: systemScheduler };

/** @throws Error when the fleet does not start, when the load generator fails, or when the engines counted less than it */
async function measureOnce(
  command: DocumentedCommand,
  start: () => Promise<ComparedFleet>,
  bin: string,
): Promise<Figures> {
  const fleet = await start();
  try {
    const place = { url: fleet.url, model: benchModel, traces: "traces" };
    const figures = await runGenerator(placed(command, place), generatorOf(command), bin, (folder) => {
      if (command.command.includes("TRACES")) writeAgentTraces(traceFile, join(folder, place.traces));
    });
    const engines = await readEngineTotals(fleet.engineUrls);
    if (engines.requests < figures.requests! || engines.outputTokens < figures.output_tokens!)
      throw new Error(`the engines counted ${engines.requests} requests and ${engines.outputTokens} tokens of answers`);
    return {
      ...figures,
      engines_cached_share: engines.cachedShare,
      largest_engine_share: engines.largestEngineShare,
    };
  } finally {
    await fleet.stop();
  }
}

function report(runs: readonly Readonly<Record<string, Figures>>[], params: Measured["params"]) {
  return reportOf("load-generators", { params: { ...params, node: process.versions.node }, ...joinRuns(runs) });
}

function commandsOf(page: string): readonly DocumentedCommand[] {
  return documentedCommands(readFileSync(join(root, page), "utf8"));
}

/** @throws UsageError for a name that is not among those of this kind of run */
function chosen(only: readonly string[] | undefined, known: readonly string[]): readonly string[] | undefined {
  const unknown = only?.find((name) => !known.includes(name));
  if (unknown === undefined) return only;
  throw new UsageError(`--only: ${unknown} is of the other kind of run; here there are ${known.join(", ")}`);
}

function foldersOf(values: Values) {
  return { folder: resolve(values.folder), vllmFolder: values["vllm-folder"] };
}

function allNames(): readonly string[] {
  return [...loadGenerators.map(({ program }) => program), ...systemNames];
}
