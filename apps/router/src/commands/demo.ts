import { setMaxListeners } from "node:events";
import { systemClock, systemScheduler } from "@espalier/common";
import { presetNames } from "@espalier/engine-model";
import { policyNames } from "@espalier/policies";
import { shippedModelFolder } from "@espalier/tokenizer";
import { type RequestResult, summarize } from "@espalier/workload";
import { type Command, Option } from "commander";
import { describeDemo } from "../demo/demo-greeting.ts";
import { runDemoLoad } from "../demo/demo-load.ts";
import { type DemoFlags, type DemoOptions, readDemoOptions } from "../demo/demo-options.ts";
import { type RouterListening, startLocalEngines } from "../local-fleet/local-fleet.ts";
import type { Child } from "../local-fleet/start-child.ts";
import { sharings, startRouters } from "../local-fleet/start-routers.ts";
import { untilReady } from "../local-fleet/until-ready.ts";
import { createProgressBar } from "../output/progress-bar.ts";
import { writeNote, writeResult } from "../output/write.ts";
import { renderResults } from "../replay/result-table.ts";
import { abortOnSignal, wasStopped } from "../signals.ts";
import { collect } from "./collect.ts";
import { addCommand } from "./command-list.ts";

const simulatedModel = "sim-model";
/** Results that the summary at the end is made of: the newest ones. */
const maxKeptResults = 100_000;

export function registerDemo(program: Command): void {
  addCommand(program, "demo")
    .description(
      "Starts simulated engines and routers in front of them, which share what the engines hold and how loaded they are, " +
        "and prints how to use them. Ctrl-C ends all.",
    )
    .optionsGroup("Engines:")
    .option("--engine <url>", "use this engine instead of simulated ones; may be repeated", collect)
    .option("--engines <n>", "simulated engines", "4")
    .addOption(new Option("--preset <name>", "what they are like").choices(presetNames).default("h100-32b-tp2"))
    .option("--model <name>", `the model they serve (default: "${simulatedModel}", or what --engine serves)`)
    .optionsGroup("Routers:")
    .option("--routers <n>", "routers beside each other", "3")
    .addOption(new Option("--sharing <way>", "what they share").choices(sharings).default("mesh"))
    .addOption(
      new Option("--policy <name>", "how an engine is chosen").choices(policyNames).default("predicted_latency"),
    )
    .option("--port <port>", "of the first router; 0 for a free one", "8080")
    .option("--admin-port <port>", "of its admin listener; 0 for a free one", "9090")
    .optionsGroup("Load:")
    .option("--load <rate>", "chat requests per second to send; 0 for none", "8")
    .option("--duration <time>", "stop after this long, for instance 30s; without it, on Ctrl-C")
    .action(async (flags: DemoFlags) => demo(readDemoOptions(flags)));
}

async function demo(options: DemoOptions): Promise<void> {
  const startedMs = systemClock.nowMs();
  const stop = abortOnSignal();
  const ending = new AbortController();
  const engineChildren: Child<unknown>[] = [];
  const routerChildren: Child<unknown>[] = [];
  try {
    const engineUrls = options.engineUrls ?? (await startEngines(options, engineChildren));
    const [first, ...others] = await startDemoRouters(options, engineUrls, routerChildren, stop);
    if (!first) throw new Error("no router was started");
    const model = options.model ?? (await servedModel(options, first, stop));
    if (stop.aborted) return;
    writeNote(`\nup in ${((systemClock.nowMs() - startedMs) / 1_000).toFixed(1)} s\n`);
    const engines = options.engineUrls ? "engines" : `${options.engines} simulated engines (${options.preset})`;
    const routers = [first, ...others] as const;
    writeResult(
      describeDemo({ routers, engineUrls, engines, policy: options.policy, sharing: options.sharing, model }),
    );
    const watched = watchRouters(routers, routerChildren, AbortSignal.any([stop, ending.signal]));
    const gone = Promise.race([...engineChildren.map((child) => child.exited), watched.allGone]);
    await run({ options, model, urls: watched.urls, stop, gone });
  } catch (error) {
    if (!(await wasStopped(stop))) throw error;
  } finally {
    ending.abort();
    await Promise.all([...engineChildren, ...routerChildren].reverse().map((child) => child.stop()));
  }
}

async function startEngines(options: DemoOptions, children: Child<unknown>[]): Promise<readonly string[]> {
  const engines = await startLocalEngines({
    count: options.engines,
    preset: options.preset,
    model: options.model ?? simulatedModel,
    speed: 1,
    port: options.enginePort,
    kvEvents: true,
    tokenizer: shippedModelFolder(),
  });
  children.push(engines);
  return engines.listening.engines.map((engine) => engine.url);
}

function startDemoRouters(
  { routers: count, sharing, policy, port, adminPort, engineUrls: given }: DemoOptions,
  engineUrls: readonly string[],
  children: Child<unknown>[],
  signal: AbortSignal,
): Promise<readonly RouterListening[]> {
  return startRouters(
    {
      ...{ count, sharing, signal },
      untilEngines: given === undefined ? engineUrls.length : undefined,
      optionsOf: (index) => ({
        engineUrls,
        policy,
        // Engines of the user's own have a tokenizer that the router does not: their prompts are matched by bytes.
        ...(given === undefined ? { tokenizer: shippedModelFolder() } : {}),
        arguments: ["--demo"],
        port: port === 0 ? 0 : port + index,
        adminPort: adminPort === 0 ? 0 : adminPort + index,
      }),
    },
    children,
  );
}

/** The name to ask for: engines of the user's own need not be up yet, and serve what they serve. */
async function servedModel({ engineUrls }: DemoOptions, router: RouterListening, stop: AbortSignal): Promise<string> {
  if (engineUrls === undefined) return simulatedModel;
  try {
    const { models } = await untilReady(router, 1, stop);
    return models[0] ?? "your-model";
  } catch (error) {
    if (!stop.aborted) writeNote(`${error instanceof Error ? error.message : error}; going on without`);
    return "your-model";
  }
}

/** Routers may be killed: that is what there is to see, as long as one is left. */
function watchRouters(
  routers: readonly RouterListening[],
  children: readonly Child<unknown>[],
  stop: AbortSignal,
): { readonly urls: () => readonly string[]; readonly allGone: Promise<void> } {
  const urls = new Set(routers.map(({ url }) => url));
  const ends = children.map(async ({ exited }, at) => {
    await exited;
    const { url = "" } = routers[at] ?? {};
    urls.delete(url);
    if (urls.size > 0 && !(await wasStopped(stop))) writeNote(`the router at ${url} is gone; ${urls.size} go on`);
  });
  return { urls: () => [...urls], allGone: Promise.all(ends).then(() => {}) };
}

interface DemoRun {
  readonly options: DemoOptions;
  readonly model: string;
  readonly urls: () => readonly string[];
  readonly stop: AbortSignal;
  /** When there is nothing left to show. */
  readonly gone: Promise<unknown>;
}

/** Waits for the end, sending the load meanwhile. */
async function run({ options, model, urls, stop, gone }: DemoRun): Promise<void> {
  const { durationMs, requestsPerSecond, policy } = options;
  const finished = new AbortController();
  const over = AbortSignal.any([stop, finished.signal]);
  setMaxListeners(0, over);
  if (durationMs !== undefined) systemScheduler.after(durationMs, () => finished.abort());
  void gone.then(async () => {
    if (await wasStopped(over)) return;
    writeNote("a process of the demo ended by itself; stopping the others");
    process.exitCode = 1;
    finished.abort();
  });
  if (requestsPerSecond === 0) {
    await new Promise<void>((resolve) => over.addEventListener("abort", () => resolve(), { once: true }));
    return;
  }
  const results: RequestResult[] = [];
  let done = 0;
  let errors = 0;
  const bar = createProgressBar("load", Math.round((requestsPerSecond * (durationMs ?? 0)) / 1_000));
  await runDemoLoad({
    urls,
    model,
    requestsPerSecond,
    signal: over,
    onResult(result) {
      if (results.length === maxKeptResults) results.splice(0, maxKeptResults / 10);
      results.push(result);
      done++;
      if (result.error !== undefined) errors++;
      bar.update(done, `${errors} errors`);
    },
  });
  bar.end();
  writeResult(renderResults([summarize(results, { policy, speed: 1 })]));
}
