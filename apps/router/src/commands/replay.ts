import { presetNames } from "@espalier/engine-model";
import { policyCatalogue, policyNames } from "@espalier/policies";
import {
  infiniteCacheBound,
  type ReplayRow,
  type RunLabels,
  summarize,
  type TraceFormat,
  traceFormats,
  traceSessions,
} from "@espalier/simulator";
import { type Command, Option } from "commander";
import { readObjectives, sloOption } from "../cli/objectives.ts";
import { collect, oneOf, readCount, readEndpointUrl, readName, readNumber, UsageError } from "../cli/read-flags.ts";
import { createProgressBar, writeJson, writeNote, writeResult } from "../output.ts";
import { maxLocalEngines, maxLocalRouters } from "../processes/local-fleet.ts";
import { type Sharing, sharings, withLocalFleet } from "../processes/start-routers.ts";
import { type PlannedRequest, type PromptForm, planReplay, promptForms } from "../replay/replay-plan.ts";
import { describeFailures, eventsNote, renderResults } from "../replay/replay-results.ts";
import { runReplay } from "../replay/run-replay.ts";
import { abortOnSignal, wasStopped } from "../signals.ts";
import { addCommand } from "./command-list.ts";

export function registerReplay(program: Command): void {
  addCommand(program, "replay")
    .description(
      "Sends the requests of a trace over HTTP and prints client metrics: time to first token, inter-token " +
        "latency, throughput, cached share of prompt tokens, errors. Without --url, starts simulated engines " +
        "and routers, fresh for each policy; --speed then scales their clock too, and results are in " +
        "simulated seconds. Exits with 1 if a run had no successful request.",
    )
    .optionsGroup("Trace:")
    .requiredOption("--trace <file>", `${traceFormats.join(", ")}; may be gzipped`)
    .addOption(oneOf(new Option("--format <name>", "trace format (default: detected)"), traceFormats))
    .option("--requests <n>", "only the first n requests")
    .option("--speed <x>", "trace seconds per real second", "1")
    .option(
      "--closed <users>",
      "closed loop with this many users, each with one request at a time; in a claude-code trace or a recording, " +
        "each user runs whole sessions with think times",
    )
    .option(
      "--starts <rate>",
      "claude-code traces and recordings: sessions started per trace second, at random times (default: at their own)",
    )
    .option("--seed <n>", "seed of arrival jitter and generated text", "1")
    .addOption(sloOption("objectives that an answer must meet to count as goodput"))
    .addOption(
      oneOf(
        new Option(
          "--prompts <form>",
          "send generated prompts as chat text or token ids (default: tokens; with --url, text)",
        ),
        promptForms,
      ),
    )
    .optionsGroup("Existing endpoints:")
    .option("--url <url>", "client address of a router or engine; repeatable, used in turn", collect)
    .addOption(new Option("--api-key <key>", "sent as Authorization: Bearer").env("ESPALIER_REPLAY_API_KEY"))
    .option("--model <name>", "model name", "sim-model")
    .optionsGroup("Simulated fleet:")
    .option(
      "--policy <names>",
      `policies to compare, separated by commas: ${policyNames.join(", ")}`,
      "round_robin,cache_aware,predicted_latency",
    )
    .option(
      "--kv-events <states>",
      "KV events of the engines: on, off, or on,off for a run of each (policies that use them)",
      "on,off",
    )
    .option("--engines <n>", "simulated engines", "8")
    .option("--routers <n>", "routers in front of them", "1")
    .option("--sharing <ways>", `state that routers share: ${sharings.join(", ")}, or both for a run of each`, "mesh")
    .addOption(
      oneOf(new Option("--preset <name>", "GPU and model of the engines"), presetNames).default("h100-32b-tp2"),
    )
    .option("--blocks <n>", "KV blocks per engine (default: the preset's)")
    .optionsGroup("Output:")
    .option("--json", "print JSON instead of a table")
    .action(async (flags: ReplayFlags) => replay(flags));
}

async function replay(flags: ReplayFlags): Promise<void> {
  const options = readReplayOptions(flags);
  const { trace, format, limit, model, seed, prompts, urls } = options;
  const requests = await planReplay({
    path: trace,
    ...(format === undefined ? {} : { format }),
    ...(limit === undefined ? {} : { limit }),
    model,
    seed,
    prompts,
  });
  if (options.starts !== undefined && traceSessions(requests.map((request) => request.trace)) === undefined)
    throw new UsageError(
      `--starts: ${trace} does not say what its requests wait for, as claude-code traces and recordings do`,
    );
  const signal = abortOnSignal();
  const rows: ReplayRow[] = [];
  if (urls) rows.push(await measure(options, requests, { urls, speed: 1, labels: {} }, signal));
  else {
    for (const run of runsOf(options)) {
      const row = signal.aborted ? undefined : await measureLocally(options, requests, run, signal);
      if (row) rows.push(row);
    }
  }
  const bound = infiniteCacheBound(requests.map((request) => request.trace));
  if (flags.json) {
    const { apiKey: _, ...params } = flags;
    writeJson({ name: "replay", params, rows, ...(bound === undefined ? {} : { bounds: { infinite_cache: bound } }) });
  } else {
    writeResult(renderResults(rows));
    if (bound !== undefined) writeResult(`an infinite shared cache would hold ${(bound * 100).toFixed(1)} %`);
  }
  if (signal.aborted || rows.some((row) => row.requests === row.errors)) process.exitCode = 1;
}

/** One run with its own fleet. */
interface LocalRun {
  readonly policy: string;
  /** Undefined for a policy that ignores the engines' caches. */
  readonly kvEvents: boolean | undefined;
  readonly sharing: Sharing;
}

function runsOf({ policies, kvEvents, sharing: sharedModes, routers }: ReplayOptions): readonly LocalRun[] {
  // A lone router shares nothing.
  return (routers === 1 ? (["none"] as const) : sharedModes).flatMap((sharing) =>
    policies.flatMap((policy): readonly LocalRun[] =>
      policyCatalogue[policy as keyof typeof policyCatalogue].readsPrefixes
        ? kvEvents.map((on) => ({ policy, kvEvents: on, sharing }))
        : [{ policy, kvEvents: undefined, sharing }],
    ),
  );
}

/** @returns undefined when it was aborted before it began */
async function measureLocally(
  options: ReplayOptions,
  requests: readonly PlannedRequest[],
  { policy, kvEvents, sharing }: LocalRun,
  signal: AbortSignal,
): Promise<ReplayRow | undefined> {
  const { engines, routers, preset, model, speed, blocks } = options;
  const fleet = {
    count: engines,
    preset,
    model,
    speed,
    port: 0,
    kvEvents: kvEvents === true,
    ...(blocks === undefined ? {} : { blocks }),
  };
  const known = kvEvents === undefined ? {} : { kv_events: kvEvents };
  const labels = { policy, ...known, routers, engines, sharing };
  try {
    return await withLocalFleet({ engines: fleet, policy, routers, sharing, signal }, (urls) =>
      measure(options, requests, { urls, speed, labels }, signal),
    );
  } catch (error) {
    if (await wasStopped(signal)) return undefined;
    throw error;
  }
}

interface Measurement {
  readonly urls: readonly string[];
  /** Engine seconds per real second; running endpoints have their own time. */
  readonly speed: number;
  readonly labels: RunLabels;
}

async function measure(
  { speed, users, starts, apiKey, seed, objectives }: ReplayOptions,
  requests: readonly PlannedRequest[],
  { urls, speed: engineSpeed, labels }: Measurement,
  signal: AbortSignal,
): Promise<ReplayRow> {
  const bar = createProgressBar(`${labels.policy ?? "replay"}${eventsNote(labels)}`, requests.length);
  let done = 0;
  let errors = 0;
  const results = await runReplay({
    requests,
    urls,
    speed,
    concurrency: users,
    ...(starts === undefined ? {} : { starts: { perS: starts, seed } }),
    ...(apiKey === undefined ? {} : { apiKey }),
    signal,
    onResult({ error }) {
      done++;
      if (error !== undefined) errors++;
      bar.update(done, `${errors} errors`);
    },
  });
  bar.end();
  const failures = describeFailures(results);
  if (failures !== undefined) writeNote(failures);
  return summarize(results, { ...labels, seed, speed: engineSpeed, objectives });
}

/** The flags of `espalier replay` as they were written. */
export interface ReplayFlags {
  readonly trace: string;
  readonly format?: TraceFormat;
  readonly requests?: string;
  readonly speed: string;
  readonly closed?: string;
  readonly starts?: string;
  readonly seed: string;
  readonly url?: readonly string[];
  readonly apiKey?: string;
  readonly model: string;
  readonly prompts?: PromptForm;
  readonly policy: string;
  readonly kvEvents: string;
  readonly engines: string;
  readonly routers: string;
  readonly sharing: string;
  readonly preset: string;
  readonly blocks?: string;
  readonly slo?: string;
  readonly json?: boolean;
}

/** The parsed options of `espalier replay`. */
export type ReplayOptions = ReturnType<typeof readReplayOptions>;

/** Largest `--requests`. */
const maxRequests = 1_000_000;
/** Largest `--closed`. */
const maxUsers = 100_000;
/** Largest `--blocks`: KV blocks of a simulated engine. */
const maxBlocks = 10_000_000;

/**
 * Checks every flag before anything is read or started, so that a mistake in the last policy does not waste the runs
 * before it.
 *
 * @throws UsageError naming the wrong flag
 */
export function readReplayOptions(flags: ReplayFlags) {
  const { trace, format, apiKey, model, preset } = flags;
  if (flags.starts !== undefined && flags.closed !== undefined)
    throw new UsageError("--starts: does not go with --closed, in which a session begins when one has ended");
  return {
    ...{ trace, format, apiKey, model, preset },
    /** Number of requests to read; undefined for all. */
    limit: optional(flags.requests, "--requests", maxRequests),
    /** Trace seconds per real second. */
    speed: readNumber(flags.speed, "--speed", { min: 0.001, max: 10_000 }),
    /** Users of a closed loop; undefined for an open one. */
    users: optional(flags.closed, "--closed", maxUsers),
    /** Sessions that begin per trace second; undefined for their times in the trace. */
    starts: flags.starts === undefined ? undefined : readNumber(flags.starts, "--starts", { min: 0.001, max: 10_000 }),
    seed: readNumber(flags.seed, "--seed", { min: 0, max: 2 ** 32 - 1, integer: true }),
    /** Running endpoints; undefined to start a fleet. */
    urls: flags.url?.map((url) => readEndpointUrl(url, "--url")),
    prompts: flags.prompts ?? (flags.url ? "text" : "tokens"),
    policies: readNames(flags.policy, "--policy", policyNames),
    /** Whether engines publish their caches: one run for each value, with policies that use it. */
    kvEvents: readSwitches(flags.kvEvents, "--kv-events"),
    engines: readCount(flags.engines, "--engines", maxLocalEngines),
    routers: readCount(flags.routers, "--routers", maxLocalRouters),
    /** What several routers share: one run for each value. */
    sharing: readNames(flags.sharing, "--sharing", sharings),
    objectives: flags.slo === undefined ? undefined : readObjectives(flags.slo),
    /** KV blocks per engine; undefined for the preset's. */
    blocks: optional(flags.blocks, "--blocks", maxBlocks),
  };
}

function readNames<Name extends string>(text: string, flag: string, names: readonly Name[]): readonly Name[] {
  return text.split(",").map((word) => readName(word.trim(), flag, names));
}

function readSwitches(text: string, flag: string): readonly boolean[] {
  const words = text.split(",").map((word) => word.trim());
  const stranger = words.find((word) => word !== "on" && word !== "off");
  if (stranger === undefined) return words.map((word) => word === "on");
  throw new UsageError(`${flag}: ${JSON.stringify(stranger)} is neither on nor off`);
}

function optional(text: string | undefined, name: string, max: number): number | undefined {
  return text === undefined ? undefined : readCount(text, name, max);
}
