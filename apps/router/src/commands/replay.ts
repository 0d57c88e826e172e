import { presetNames } from "@espalier/engine-model";
import { infiniteCacheBound, type ReplayRow, summarize, type TraceFormat, traceFormats } from "@espalier/workload";
import { type Command, Option } from "commander";
import { withLocalFleet } from "../local-fleet/with-local-fleet.ts";
import { createProgressBar } from "../output/progress-bar.ts";
import { readNumber, UsageError } from "../output/usage-error.ts";
import { writeJson, writeResult } from "../output/write.ts";
import { type PlannedRequest, planReplay } from "../replay/replay-plan.ts";
import { renderResults } from "../replay/result-table.ts";
import { runReplay } from "../replay/run-replay.ts";
import { abortOnSignal } from "../signals.ts";

interface ReplayFlags {
  readonly trace: string;
  readonly format?: TraceFormat;
  readonly requests?: string;
  readonly speed: string;
  readonly closed?: string;
  readonly seed: string;
  readonly url?: readonly string[];
  readonly apiKey?: string;
  readonly model: string;
  readonly policy: string;
  readonly engines: string;
  readonly routers: string;
  readonly preset: string;
  readonly blocks?: string;
  readonly json?: boolean;
}

const collect = (value: string, earlier: readonly string[] = []): readonly string[] => [...earlier, value];

export function registerReplay(program: Command): void {
  program
    .command("replay")
    .summary("drive a trace at real endpoints, or at simulated engines, and measure")
    .description(
      "Sends the requests of a trace over HTTP and prints what a client saw: time to first token, inter-token latency,\n" +
        "throughput, share of prompt tokens found in a cache, errors. Without --url it starts its own engines and router,\n" +
        "fresh for each policy. --speed scales the arrivals, and its own engines' clock alike: results are in their seconds.",
    )
    .optionsGroup("Trace:")
    .requiredOption("--trace <file>", `${traceFormats.join(", ")}; may be gzipped`)
    .addOption(new Option("--format <name>", "told from the first line unless given").choices(traceFormats))
    .option("--requests <n>", "only the first n requests")
    .option("--speed <x>", "trace seconds per real second", "1")
    .option("--closed <users>", "closed loop: that many users, each sending its next request when the last has ended")
    .option("--seed <n>", "of arrival jitter and invented text", "1")
    .optionsGroup("Endpoints that run already:")
    .option("--url <url>", "of a router or an engine; may be repeated, requests go to them in turn", collect)
    .addOption(new Option("--api-key <key>", "sent as Authorization: Bearer").env("ESPALIER_REPLAY_API_KEY"))
    .option("--model <name>", "model to ask for", "sim-model")
    .optionsGroup("Its own fleet:")
    .option("--policy <names>", "policies to compare, separated by commas", "least_connections")
    .option("--engines <n>", "simulated engines", "4")
    .option("--routers <n>", "routers in front of them; they share nothing yet", "1")
    .addOption(new Option("--preset <name>", "what the engines are like").choices(presetNames).default("h100-32b-tp2"))
    .option("--blocks <n>", "KV blocks of an engine, in place of the preset's")
    .optionsGroup("Output:")
    .option("--json", "print JSON instead of a table")
    .action(async (flags: ReplayFlags) => replay(flags));
}

async function replay(flags: ReplayFlags): Promise<void> {
  const speed = readNumber(flags.speed, "--speed", { min: 0.001, max: 10_000 });
  const requests = await planReplay({
    path: flags.trace,
    ...(flags.format === undefined ? {} : { format: flags.format }),
    ...(flags.requests === undefined ? {} : { limit: whole(flags.requests, "--requests", 1_000_000) }),
    model: flags.model,
    seed: readNumber(flags.seed, "--seed", { min: 0, max: 2 ** 32 - 1, integer: true }),
  });
  const signal = abortOnSignal();
  const rows: ReplayRow[] = [];
  if (flags.url) {
    rows.push(await measure(flags, requests, speed, flags.url, {}, signal));
  } else {
    const policies = flags.policy.split(",").map((name) => name.trim());
    if (policies.includes("")) throw new UsageError("--policy must be names separated by commas");
    for (const policy of policies) {
      if (!signal.aborted) rows.push(await measureLocally(flags, requests, speed, policy, signal));
    }
  }
  const bound = infiniteCacheBound(requests.map(({ trace }) => trace));
  const bounds = bound === undefined ? {} : { bounds: { infinite_cache: bound } };
  if (flags.json) writeJson({ name: "replay", params: flags, rows, ...bounds });
  else {
    writeResult(renderResults(rows));
    if (bound !== undefined) writeResult(`an infinite shared cache would hold ${(bound * 100).toFixed(1)} %`);
  }
  if (signal.aborted) process.exitCode = 1;
}

async function measureLocally(
  flags: ReplayFlags,
  requests: readonly PlannedRequest[],
  speed: number,
  policy: string,
  signal: AbortSignal,
): Promise<ReplayRow> {
  const engines = whole(flags.engines, "--engines", 256);
  const routers = whole(flags.routers, "--routers", 16);
  const blocks = flags.blocks === undefined ? {} : { blocks: whole(flags.blocks, "--blocks", 10_000_000) };
  const fleet = { count: engines, preset: flags.preset, model: flags.model, speed, port: 0, ...blocks };
  return withLocalFleet({ engines: fleet, policy, routers }, (urls) =>
    measure(flags, requests, speed, urls, { policy, engines, routers, sharing: "none" }, signal),
  );
}

async function measure(
  flags: ReplayFlags,
  requests: readonly PlannedRequest[],
  speed: number,
  urls: readonly string[],
  labels: { readonly policy?: string; readonly engines?: number; readonly routers?: number; readonly sharing?: string },
  signal: AbortSignal,
): Promise<ReplayRow> {
  const bar = createProgressBar(labels.policy ?? "replay", requests.length);
  const results = await runReplay({
    requests,
    urls,
    speed,
    concurrency: flags.closed === undefined ? undefined : whole(flags.closed, "--closed", 100_000),
    ...(flags.apiKey === undefined ? {} : { apiKey: flags.apiKey }),
    signal,
    onResult: (done) => bar.update(done.length, `${done.filter((result) => result.error !== undefined).length} errors`),
  });
  bar.end();
  return summarize(results, { ...labels, seed: Number(flags.seed), speed });
}

function whole(text: string, name: string, max: number): number {
  return readNumber(text, name, { min: 1, max, integer: true });
}
