import { setMaxListeners } from "node:events";
import { systemClock, systemScheduler } from "@espalier/common";
import { presetNames } from "@espalier/engine-model";
import { type RequestResult, summarize } from "@espalier/workload";
import { type Command, Option } from "commander";
import { runDemoLoad } from "../demo/demo-load.ts";
import { type RouterListening, startLocalEngines, startLocalRouter } from "../local-fleet/local-fleet.ts";
import type { Child } from "../local-fleet/start-child.ts";
import { untilReady } from "../local-fleet/with-local-fleet.ts";
import { createProgressBar } from "../output/progress-bar.ts";
import { readDurationMs, readNumber } from "../output/usage-error.ts";
import { writeNote, writeResult } from "../output/write.ts";
import { renderResults } from "../replay/result-table.ts";
import { abortOnSignal } from "../signals.ts";

interface DemoFlags {
  readonly engine?: readonly string[];
  readonly engines: string;
  readonly routers: string;
  readonly policy: string;
  readonly preset: string;
  readonly model: string;
  readonly port: string;
  readonly adminPort: string;
  readonly load: string;
  readonly duration?: string;
}

const collect = (value: string, earlier: readonly string[] = []): readonly string[] => [...earlier, value];
const enginePortOffset = 1_000;
const maxRouters = 16;

export function registerDemo(program: Command): void {
  program
    .command("demo")
    .summary("a router and simulated engines on this machine (`npm start`)")
    .description("Starts simulated engines and a router in front of them, and prints how to use them. Ctrl-C ends all.")
    .optionsGroup("Engines:")
    .option("--engine <url>", "use this engine instead of simulated ones; may be repeated", collect)
    .option("--engines <n>", "simulated engines", "4")
    .addOption(new Option("--preset <name>", "what they are like").choices(presetNames).default("h100-32b-tp2"))
    .option("--model <name>", "the model they serve", "sim-model")
    .optionsGroup("Routers:")
    .option("--routers <n>", "routers beside each other; they share nothing yet", "1")
    .option("--policy <name>", "how an engine is chosen", "least_connections")
    .option("--port <port>", "of the first router; 0 for a free one", "8080")
    .option("--admin-port <port>", "of its admin listener; 0 for a free one", "9090")
    .optionsGroup("Load:")
    .option("--load <rate>", "chat requests per second to send", "0")
    .option("--duration <time>", "stop after this long, for instance 30s; without it, on Ctrl-C")
    .action(async (flags: DemoFlags) => demo(flags));
}

async function demo(flags: DemoFlags): Promise<void> {
  const load = readNumber(flags.load, "--load", { min: 0, max: 10_000 });
  const durationMs = flags.duration === undefined ? undefined : readDurationMs(flags.duration, "--duration");
  const startedMs = systemClock.nowMs();
  const stop = abortOnSignal();
  const children: Child<unknown>[] = [];
  try {
    const engineUrls = flags.engine ?? (await startEngines(flags, children));
    const routers = await startRouters(flags, engineUrls, children);
    if (stop.aborted) return;
    writeNote(`\nup in ${((systemClock.nowMs() - startedMs) / 1_000).toFixed(1)} s\n`);
    writeResult(describe(flags, engineUrls, routers));
    const gone = Promise.race(children.map((child) => child.exited));
    await run({ flags, load, durationMs, urls: routers.map(({ url }) => url), stop, gone });
  } finally {
    await Promise.all(children.reverse().map((child) => child.stop()));
  }
}

async function startEngines(flags: DemoFlags, children: Child<unknown>[]): Promise<readonly string[]> {
  const count = readNumber(flags.engines, "--engines", { min: 1, max: 256, integer: true });
  const port = readPort(flags.port, "--port");
  const engines = await startLocalEngines({
    count,
    preset: flags.preset,
    model: flags.model,
    speed: 1,
    port: port === 0 ? 0 : port + enginePortOffset,
  });
  children.push(engines);
  return engines.listening.engines.map((engine) => engine.url);
}

async function startRouters(
  flags: DemoFlags,
  engineUrls: readonly string[],
  children: Child<unknown>[],
): Promise<readonly RouterListening[]> {
  const count = readNumber(flags.routers, "--routers", { min: 1, max: maxRouters, integer: true });
  const port = readPort(flags.port, "--port");
  const adminPort = readPort(flags.adminPort, "--admin-port");
  const routers: RouterListening[] = [];
  for (let index = 0; index < count; index++) {
    const router = await startLocalRouter({
      engineUrls,
      policy: flags.policy,
      port: port === 0 ? 0 : port + index,
      adminPort: adminPort === 0 ? 0 : adminPort + index,
    });
    children.push(router);
    routers.push(router.listening);
    if (flags.engine === undefined) await untilReady(router.listening.url);
  }
  return routers;
}

interface DemoRun {
  readonly flags: DemoFlags;
  readonly load: number;
  readonly durationMs: number | undefined;
  readonly urls: readonly string[];
  readonly stop: AbortSignal;
  readonly gone: Promise<number | null>;
}

/** Waits for the end, sending the load meanwhile. */
async function run({ flags, load, durationMs, urls, stop, gone }: DemoRun): Promise<void> {
  const finished = new AbortController();
  const over = AbortSignal.any([stop, finished.signal]);
  setMaxListeners(0, over);
  if (durationMs !== undefined) systemScheduler.after(durationMs, () => finished.abort());
  void gone.then(() => {
    if (over.aborted) return;
    writeNote("a process of the demo ended by itself; stopping the others");
    process.exitCode = 1;
    finished.abort();
  });
  if (load === 0) {
    await new Promise<void>((resolve) => over.addEventListener("abort", () => resolve(), { once: true }));
    return;
  }
  const results: RequestResult[] = [];
  const bar = createProgressBar("load", Math.round((load * (durationMs ?? 0)) / 1_000));
  await runDemoLoad({
    urls,
    model: flags.model,
    requestsPerSecond: load,
    signal: over,
    onResult(result) {
      results.push(result);
      bar.update(results.length, `${results.filter(({ error }) => error !== undefined).length} errors`);
    },
  });
  bar.end();
  writeResult(renderResults([summarize(results, { policy: flags.policy, speed: 1 })]));
}

function describe(flags: DemoFlags, engineUrls: readonly string[], routers: readonly RouterListening[]): string {
  const kind = flags.engine === undefined ? `${engineUrls.length} simulated engines (${flags.preset})` : "engines";
  const body = `{"model": "${flags.model}", "stream": true, "max_tokens": 40, "messages": [{"role": "user", "content": "What is an espalier?"}]}`;
  const first = routers[0]?.url ?? "";
  return [
    ...routers.map(({ url, adminUrl }) => `router    ${url}   metrics ${adminUrl}/metrics`),
    `engines   ${engineUrls.join(" ")}`,
    `          ${kind}, policy ${flags.policy}`,
    "",
    "Try:",
    `  curl -N ${first}/v1/chat/completions -H 'content-type: application/json' \\`,
    `    -d '${body}'`,
    `  npx espalier workers --admin ${routers[0]?.adminUrl ?? ""}`,
    "",
    "Ctrl-C ends everything.",
  ].join("\n");
}

function readPort(text: string, name: string): number {
  return readNumber(text, name, { min: 0, max: 65_535, integer: true });
}
