import { setMaxListeners } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock, systemScheduler } from "@espalier/core";
import { presetNames } from "@espalier/engine-model";
import { policyNames } from "@espalier/policies";
import { type RequestResult, summarize } from "@espalier/simulator";
import { type Command, Option } from "commander";
import { collect, oneOf } from "../cli/read-flags.ts";
import { servedModel, simulatedModel, startDemoRouters, startEngines, watchRouters } from "../demo/demo-fleet.ts";
import { runDemoLoad } from "../demo/demo-load.ts";
import { type DemoFlags, type DemoOptions, readDemoOptions } from "../demo/demo-options.ts";
import { pullPreset, tellOfPulls } from "../demo/demo-pulls.ts";
import { describeDemo } from "../demo/describe-demo.ts";
import { addEnvoyFlags, demoEnvoyProgram, startDemoEnvoy } from "../envoy/demo-envoy.ts";
import type { EnvoyProcess } from "../envoy/start-envoy.ts";
import { createProgressBar, writeNote, writeResult } from "../output.ts";
import type { Child } from "../processes/start-child.ts";
import { sharings } from "../processes/start-routers.ts";
import { describeFailures, renderResults } from "../replay/replay-results.ts";
import { abortOnSignal, wasStopped } from "../signals.ts";
import { addCommand } from "./command-list.ts";

/** Number of latest results in the summary at the end. */
const maxKeptResults = 100_000;

export function registerDemo(program: Command): void {
  const command = addCommand(program, "demo")
    .description(
      "Starts simulated engines and a mesh of routers that share cache and load state, " +
        "and prints example commands. Ctrl-C stops everything.",
    )
    .optionsGroup("Engines:")
    .option("--engine <url>", "use this engine instead of simulated ones; repeatable", collect)
    .option("--engines <n>", "simulated engines", "4")
    .addOption(
      oneOf(
        new Option("--preset <name>", "GPU and model of the simulated engines (default: h100-32b-tp2)"),
        presetNames,
      ),
    )
    .option(
      "--kv-pull",
      `engines fetch KV blocks from each other, shown by a conversation (default preset: ${pullPreset})`,
    )
    .option("--model <name>", `model name (default: "${simulatedModel}", or what --engine serves)`)
    .optionsGroup("Routers:")
    .option("--routers <n>", "number of routers", "3")
    .addOption(oneOf(new Option("--sharing <way>", "state that routers share"), sharings).default("mesh"))
    .addOption(oneOf(new Option("--policy <name>", "routing policy"), policyNames).default("predicted_latency"))
    .option("--port <port>", "port of the first router; 0 picks a free one", "8080")
    .option("--admin-port <port>", "port of its admin listener; 0 picks a free one", "9090");
  addEnvoyFlags(command)
    .optionsGroup("Load:")
    .option("--load <rate>", "chat requests per second to send; 0 sends none", "8")
    .option("--duration <time>", "stop after this time, such as 30s (default: on Ctrl-C)")
    .action(async (flags: DemoFlags) => demo(readDemoOptions(flags)));
}

async function demo(options: DemoOptions): Promise<void> {
  const startedMs = systemClock.nowMs();
  const stop = abortOnSignal();
  const ending = new AbortController();
  const engineChildren: Child<unknown>[] = [];
  const routerChildren: Child<unknown>[] = [];
  let envoy: EnvoyProcess | undefined;
  let folder: string | undefined;
  try {
    const program = options.envoy && (await demoEnvoyProgram(options.envoy, stop));
    const demoEngines = options.engineUrls
      ? { engineUrls: options.engineUrls }
      : await startEngines(options, () => (folder ??= mkdtempSync(join(tmpdir(), "espalier-demo-"))), engineChildren);
    const { engineUrls } = demoEngines;
    const [first, ...others] = await startDemoRouters(options, demoEngines, routerChildren, stop);
    if (!first) throw new Error("no router was started");
    const model = options.model ?? (await servedModel(options, first, stop));
    if (options.envoy && program !== undefined) {
      const routers = [first, ...others];
      envoy = await startDemoEnvoy({ program, port: options.envoy.port, routers, engineUrls, signal: stop });
    }
    if (stop.aborted) return;
    writeNote(`\nup in ${((systemClock.nowMs() - startedMs) / 1_000).toFixed(1)} s\n`);
    const engines = options.engineUrls ? "engines" : `${options.engines} simulated engines (${options.preset})`;
    const routers = [first, ...others] as const;
    writeResult(
      describeDemo({
        ...{ routers, engineUrls, engines, policy: options.policy, sharing: options.sharing, model },
        requestsPerSecond: options.requestsPerSecond,
        envoy: envoy?.listening,
      }),
    );
    if (options.pulls) {
      const story = await tellOfPulls({ urls: routers.map(({ url }) => url), model, signal: stop });
      if (story !== undefined) writeResult(story);
    }
    const watched = watchRouters(routers, routerChildren, AbortSignal.any([stop, ending.signal]));
    const needed = [...engineChildren, ...(envoy ? [envoy] : [])];
    const gone = Promise.race([...needed.map((child) => child.exited), watched.allGone]);
    const { url: gateway } = envoy?.listening ?? {};
    await run({ options, model, urls: gateway === undefined ? watched.urls : () => [gateway], stop, gone });
  } catch (error) {
    if (!(await wasStopped(stop))) throw error;
  } finally {
    ending.abort();
    const children = [...engineChildren, ...routerChildren, ...(envoy ? [envoy] : [])];
    await Promise.all(children.reverse().map((child) => child.stop()));
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  }
}

interface DemoRun {
  readonly options: DemoOptions;
  readonly model: string;
  readonly urls: () => readonly string[];
  readonly stop: AbortSignal;
  /** When no router is left. */
  readonly gone: Promise<unknown>;
}

/** Waits for the end while sending the load. */
async function run({ options, model, urls, stop, gone }: DemoRun): Promise<void> {
  const { durationMs, requestsPerSecond, policy } = options;
  const finished = new AbortController();
  const over = AbortSignal.any([stop, finished.signal]);
  setMaxListeners(0, over);
  if (durationMs !== undefined) systemScheduler.after(durationMs, () => finished.abort());
  void gone.then(async () => {
    if (await wasStopped(over)) return;
    writeNote("a demo process exited; stopping the others");
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
  const failures = describeFailures(results);
  if (failures !== undefined) writeNote(failures);
}
