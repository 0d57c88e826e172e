import { setMaxListeners } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createSeededRandom, systemClock, systemScheduler } from "@espalier/core";
import { presetNames } from "@espalier/engine-model";
import { policyNames } from "@espalier/policies";
import {
  type ChatMessage,
  type ChatSession,
  chatSessions,
  createLoadClient,
  poissonArrivals,
  type RequestResult,
  summarize,
} from "@espalier/simulator";
import { shippedModelFolder } from "@espalier/tokenizer";
import { type Command, Option } from "commander";
import { collect, oneOf, readCount, readDurationMs, readNumber, UsageError } from "../cli/read-flags.ts";
import {
  addEnvoyFlags,
  type DemoEnvoyFlags,
  demoEnvoyProgram,
  readEnvoyFlags,
  startDemoEnvoy,
} from "../envoy/demo-envoy.ts";
import type { EnvoyListening, EnvoyProcess } from "../envoy/start-envoy.ts";
import { createProgressBar, writeNote, writeResult } from "../output.ts";
import { maxLocalEngines, maxLocalRouters, startLocalEngines } from "../processes/local-fleet.ts";
import { type Child, type RouterListening, untilReady } from "../processes/start-child.ts";
import { type Sharing, sharings, startRouters } from "../processes/start-routers.ts";
import { describeFailures, renderResults, resultOf } from "../replay/replay-results.ts";
import { abortOnSignal, wait, wasStopped } from "../signals.ts";
import { addCommand } from "./command-list.ts";
import { pullPreset, tellOfPulls } from "./demo-pulls.ts";

const simulatedModel = "sim-model";
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

/** The engines of a demo, as its routers are told of them. */
interface DemoEngines {
  readonly engineUrls: readonly string[];
  /** Describes engines that lend each other blocks. */
  readonly enginesFile?: string;
}

async function startEngines(
  options: DemoOptions,
  folder: () => string,
  children: Child<unknown>[],
): Promise<DemoEngines> {
  const engines = await startLocalEngines({
    count: options.engines,
    preset: options.preset,
    model: options.model ?? simulatedModel,
    speed: 1,
    port: options.enginePort,
    kvEvents: true,
    ...(options.pulls ? { lendsBlocks: true } : {}),
    tokenizer: shippedModelFolder(),
  });
  children.push(engines);
  const { engines: listening } = engines.listening;
  const engineUrls = listening.map(({ url }) => url);
  if (!options.pulls) return { engineUrls };
  const enginesFile = join(folder(), "engines.json");
  const entries = listening.map(({ url, p2pPort }) => ({ url, "kv-pull": { port: p2pPort } }));
  writeFileSync(enginesFile, JSON.stringify({ engines: entries }));
  return { engineUrls, enginesFile };
}

function startDemoRouters(
  { routers: count, sharing, policy, port, adminPort, engineUrls: given, envoy }: DemoOptions,
  engines: DemoEngines,
  children: Child<unknown>[],
  signal: AbortSignal,
): Promise<readonly RouterListening[]> {
  return startRouters(
    {
      ...{ count, sharing, signal },
      untilEngines: given === undefined ? engines.engineUrls.length : undefined,
      optionsOf: (index) => ({
        ...engines,
        policy,
        // The user's own engines have a tokenizer that the router lacks, so it matches their prompts by bytes.
        ...(given === undefined ? { tokenizer: shippedModelFolder() } : {}),
        arguments: ["--demo"],
        ...(envoy ? { isPicker: true } : {}),
        port: port === 0 ? 0 : port + index,
        adminPort: adminPort === 0 ? 0 : adminPort + index,
      }),
    },
    children,
  );
}

/** The model name for requests: the user's own engines may not be up yet, and serve models of their own. */
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

/** The user may kill routers to watch the result, as long as one remains. */
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

/** The flags of `espalier demo` as they were written. */
export interface DemoFlags extends DemoEnvoyFlags {
  readonly engine?: readonly string[];
  readonly engines: string;
  readonly routers: string;
  readonly sharing: Sharing;
  readonly policy: string;
  readonly preset?: string;
  readonly kvPull?: boolean;
  readonly model?: string;
  readonly port: string;
  readonly adminPort: string;
  readonly load: string;
  readonly duration?: string;
}

/** The parsed options of `espalier demo`. */
export type DemoOptions = ReturnType<typeof readDemoOptions>;

const enginePortOffset = 1_000;
const portCount = 65_536;
/** Highest rate of `--load`. */
const maxRequestsPerSecond = 10_000;

/**
 * Checks every flag before anything starts.
 *
 * @throws UsageError naming the wrong flag
 */
export function readDemoOptions(flags: DemoFlags) {
  const port = readPort(flags.port, "--port");
  const adminPort = readPort(flags.adminPort, "--admin-port");
  const engines = readCount(flags.engines, "--engines", maxLocalEngines);
  const routers = readCount(flags.routers, "--routers", maxLocalRouters);
  const pulls = flags.kvPull ?? false;
  if (pulls && flags.engine !== undefined) {
    throw new UsageError("--kv-pull is for simulated engines; `kv-pull` in the configuration is for your own");
  }
  const enginePort = port === 0 ? 0 : port + enginePortOffset;
  // The user's own engines have their own ports.
  if (flags.engine === undefined && enginePort + engines > portCount) {
    throw new UsageError("--port leaves no ports for the engines, 1000 above it");
  }
  if (port + routers > portCount) throw new UsageError("--port leaves no ports for the routers");
  if (adminPort + routers > portCount) throw new UsageError("--admin-port leaves no ports for the routers");
  return {
    /** Running engines that replace the simulated ones. */
    engineUrls: flags.engine,
    ...{ engines, routers, sharing: flags.sharing, policy: flags.policy },
    preset: flags.preset ?? (pulls ? pullPreset : "h100-32b-tp2"),
    /** Whether the engines fetch KV blocks from each other. */
    pulls,
    /** Undefined to use whatever the engines serve. */
    model: flags.model,
    /** First port of each kind; 0 for free ones. */
    ...{ port, adminPort, enginePort },
    /** Undefined without Envoy. */
    envoy: readEnvoyFlags(flags, flags.engine),
    requestsPerSecond: readNumber(flags.load, "--load", { min: 0, max: maxRequestsPerSecond }),
    /** Undefined to run without end. */
    durationMs: flags.duration === undefined ? undefined : readDurationMs(flags.duration, "--duration"),
  };
}

function readPort(text: string, name: string): number {
  return readNumber(text, name, { min: 0, max: 65_535, integer: true });
}

export interface DemoFleet {
  readonly routers: readonly [RouterListening, ...RouterListening[]];
  readonly engineUrls: readonly string[];
  /** Describes the engines in words. */
  readonly engines: string;
  readonly policy: string;
  readonly sharing: Sharing;
  readonly model: string;
  /** Chat requests that the demo sends; 0 for none. */
  readonly requestsPerSecond: number;
  /** The gateway before the routers, if there is one. */
  readonly envoy?: EnvoyListening | undefined;
}

const shared: Readonly<Record<Sharing, string>> = {
  mesh: "routers share cache and load state",
  none: "routers share nothing",
};

/** Several blocks of tokens long: a cache cannot hold anything of a prompt shorter than two blocks. */
export const demoQuestion =
  "What is an espalier, how is a tree trained against a wall, which kinds of fruit take to it best, and in which month " +
  "should the branches be tied, so that the sun reaches every one of them and the harvest is early? Answer as a gardener " +
  "would who has kept one for many years beside a small house.";

/** Where everything listens, and lines to paste into a shell. */
export function describeDemo(fleet: DemoFleet): string {
  const { routers, engineUrls, engines, policy, sharing, model, requestsPerSecond, envoy } = fleet;
  const [{ url, adminUrl }, next] = routers;
  const messages = JSON.stringify([{ role: "user", content: demoQuestion }]);
  const body = `{"model": ${JSON.stringify(model)}, "stream": true, "max_tokens": 40, "messages": ${messages}}`;
  return [
    ...(envoy
      ? [
          `envoy     ${envoy.url}   admin ${envoy.adminUrl}`,
          "          asks the routers for the engine of each request",
        ]
      : []),
    ...routers.map((router) => `router    ${router.url}   metrics ${router.adminUrl}/metrics`),
    ...(routers.length === 1 ? [] : [`          ${shared[sharing]}`]),
    `dashboard ${adminUrl}/dashboard/`,
    `engines   ${engineUrls.join(" ")}`,
    `          ${engines}, policy ${policy}`,
    requestsPerSecond === 0
      ? "load      none; --load 8 sends 8 chat requests per second"
      : `load      ${requestsPerSecond} chat requests per second; --load 0 sends none`,
    "",
    "Try:",
    `  npx espalier try --admin ${adminUrl}`,
    ...(next && sharing === "mesh" ? ["sends two turns to two routers: both should reach one engine"] : []),
    `  curl -N ${envoy?.url ?? url}/v1/chat/completions -H 'content-type: application/json' \\`,
    `    -d ${quoteForShell(body)}`,
    ...(next && sharing === "mesh"
      ? [
          envoy
            ? "through either router, the prompt goes to the engine that caches it"
            : `repeat at ${next.url}: every router finds the engine that caches the prompt`,
        ]
      : []),
    `  npx espalier top --admin ${adminUrl}`,
    `  npx espalier engines --admin ${adminUrl}`,
    `  npx espalier status --admin ${adminUrl}`,
    "",
    "Ctrl-C stops everything.",
  ].join("\n");
}

/** One word of a POSIX shell. */
function quoteForShell(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

export interface DemoLoadOptions {
  /** The currently running routers; called for each request. */
  readonly urls: () => readonly string[];
  readonly model: string;
  readonly requestsPerSecond: number;
  readonly signal: AbortSignal;
  readonly onResult: (result: RequestResult) => void;
}

/** An open conversation; idle between an answer and the next message. */
interface Conversation {
  readonly session: ChatSession;
  readonly messages: ChatMessage[];
  turn: number;
}

const seed = 1;
const usersPerGeneration = 1_000;
/** Share of the arrivals that continue a conversation, when one is idle. */
const followUpShare = 0.75;
/** Idle conversations; with as many, every arrival continues one. */
const maxIdle = 200;
/** Maximum open requests. Further arrivals wait, so that a router that hangs does not fill the memory. */
const maxUnderWay = 1_000;
/**
 * Pause between two late arrivals, so that answers are read. Otherwise the load would take all the time of a busy
 * machine.
 */
const leastGapMs = 1;

/** Simulates chats: conversations of several turns with three assistants, at a steady rate, until the signal. */
export async function runDemoLoad(options: DemoLoadOptions): Promise<void> {
  const { urls, model, requestsPerSecond, signal, onResult } = options;
  const random = createSeededRandom(seed);
  const client = createLoadClient(systemClock);
  const idle: Conversation[] = [];
  const fresh = newConversations();
  const running = new Set<Promise<void>>();
  let sent = 0;

  const take = (): Conversation => {
    const goOn = idle.length > 0 && (idle.length >= maxIdle || random.float() < followUpShare);
    return goOn ? (idle.splice(random.integer(idle.length), 1)[0] as Conversation) : fresh.next().value;
  };
  const send = async (conversation: Conversation): Promise<void> => {
    const { session, messages, turn } = conversation;
    const open = urls();
    const url = open[sent % open.length];
    if (url === undefined) return;
    const index = sent++;
    const { outputTokens = 0, userTokens = 0 } = session.turns[turn] ?? {};
    messages.push({ role: "user", content: session.userText(turn) });
    const answer = await client.send(
      {
        url,
        path: "/v1/chat/completions",
        body: JSON.stringify({
          model,
          stream: true,
          stream_options: { include_usage: true },
          max_tokens: outputTokens,
          messages,
        }),
        headers: { "x-session-id": session.id },
        keepText: true,
      },
      signal,
    );
    if (signal.aborted) return;
    takeAnswer(conversation, answer);
    if (conversation.turn < session.turns.length) idle.push(conversation);
    onResult(resultOf(answer, { index, session: session.id, turn, inputTokens: userTokens }));
  };

  const startMs = systemClock.nowMs();
  for (const dueMs of poissonArrivals(requestsPerSecond, random)) {
    await wait(Math.max(leastGapMs, startMs + dueMs - systemClock.nowMs()), signal);
    if (running.size >= maxUnderWay) await Promise.race(running);
    if (signal.aborted) break;
    const request: Promise<void> = send(take()).finally(() => running.delete(request));
    running.add(request);
  }
  await Promise.all(running);
  client.close();
}

/** A user repeats a message that got no answer or half of one. */
function takeAnswer(
  conversation: Conversation,
  { text, error }: { readonly text: string; readonly error?: unknown },
): void {
  if (error === undefined) {
    conversation.messages.push({ role: "assistant", content: text });
    conversation.turn++;
  } else conversation.messages.pop();
}

/** Lengths in tokens of the assistants' instructions, which all conversations with one assistant share. */
const instructionTokens = [400, 900, 1_500] as const;

/** Conversations with each assistant, in rotation. */
function* newConversations(): Generator<Conversation, never> {
  const kinds = instructionTokens.map((tokens, at) => conversationsWith(tokens, seed + at));
  for (;;) for (const kind of kinds) yield kind.next().value;
}

function* conversationsWith(sharedPrefixTokens: number, firstSeed: number): Generator<Conversation, never> {
  for (let generation = firstSeed; ; generation += instructionTokens.length) {
    const sessions = chatSessions({
      users: usersPerGeneration,
      turns: 6,
      firstMessageTokens: 300,
      newTokensPerTurn: 100,
      outputTokens: 60,
      thinkTimeMeanMs: 0,
      sharedPrefixTokens,
      seed: generation,
    });
    for (const session of sessions) {
      const system: ChatMessage[] =
        session.systemText === undefined ? [] : [{ role: "system", content: session.systemText }];
      yield { session, messages: system, turn: 0 };
    }
  }
}
