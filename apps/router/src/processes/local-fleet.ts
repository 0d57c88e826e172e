import { type ChildProcess, fork } from "node:child_process";
import { get } from "node:http";
import { fileURLToPath } from "node:url";
import { systemClock, systemScheduler } from "@espalier/common";

/** Simulated engines of one fleet: as many as one process runs. */
export const maxLocalEngines = 256;
/** Routers of one fleet, each a process. */
export const maxLocalRouters = 16;

export interface LocalEnginesOptions {
  readonly count: number;
  readonly preset: string;
  readonly model: string;
  /** Engine seconds per real second. */
  readonly speed: number;
  /** First port; 0 takes free ones. */
  readonly port: number;
  /** KV blocks per engine; the preset's when absent. */
  readonly blocks?: number;
  /** Whether they publish KV events, on free ports. */
  readonly kvEvents: boolean;
  /** Folder of the tokenizer that they use in place of their own four-byte tokens. */
  readonly tokenizer?: string;
  /** For the process to start; 20 s by default. */
  readonly startTimeoutMs?: number;
}

export interface EnginesListening {
  readonly engines: readonly { readonly id: string; readonly url: string }[];
}

export interface LocalRouterOptions {
  readonly engineUrls: readonly string[];
  readonly policy?: string;
  /** Folder of the tokenizer for every model. */
  readonly tokenizer?: string;
  /** 0 takes a free one. */
  readonly port: number;
  readonly adminPort: number;
  /** Undefined for a router that shares nothing. */
  readonly mesh?: LocalMesh;
  readonly arguments?: readonly string[];
  /** For the process to start; 20 s by default. */
  readonly startTimeoutMs?: number;
  readonly runBy?: ProgramOptions;
}

/** A router's place among the others on this machine. */
export interface LocalMesh {
  readonly routerId: string;
  /** Addresses of routers that run already. */
  readonly seeds: readonly string[];
}

export interface RouterListening {
  readonly url: string;
  readonly adminUrl: string;
  /** Where other routers reach it; null when it shares nothing, or uses Redis. */
  readonly meshAddress: string | null;
}

/** Simulated engines in one child process. */
export function startLocalEngines(options: LocalEnginesOptions): Promise<Child<EnginesListening>> {
  const values: Record<string, string | number | undefined> = {
    engines: options.count,
    preset: options.preset,
    model: options.model,
    speed: options.speed,
    port: options.port,
    blocks: options.blocks,
    tokenizer: options.tokenizer,
    "kv-events": options.kvEvents ? "vllm-0.32" : undefined,
  };
  return startChild({
    name: "the simulated engines",
    program: fileURLToPath(import.meta.resolve("@espalier/engine-sim/bin")),
    arguments: Object.entries(values).flatMap(([name, value]) =>
      value === undefined ? [] : [`--${name}`, String(value)],
    ),
    ...(options.startTimeoutMs === undefined ? {} : { startTimeoutMs: options.startTimeoutMs }),
  });
}

/** `espalier serve` in a child process, in front of the given engines. */
export function startLocalRouter(options: LocalRouterOptions): Promise<Child<RouterListening>> {
  const flags = [
    ["--listen-port", options.port],
    ["--admin-port", options.adminPort],
    ...options.engineUrls.map((url) => ["--engine", url]),
    ...(options.policy === undefined ? [] : [["--policy", options.policy]]),
    ...(options.tokenizer === undefined ? [] : [["--tokenizer", options.tokenizer]]),
    ...(options.mesh === undefined ? [] : meshFlags(options.mesh)),
  ];
  return startChild({
    name: "the router",
    program: fileURLToPath(new URL("../../bin/espalier.mjs", import.meta.url)),
    arguments: ["serve", ...flags.flat().map(String), ...(options.arguments ?? [])],
    ...(options.startTimeoutMs === undefined ? {} : { startTimeoutMs: options.startTimeoutMs }),
    ...options.runBy,
  });
}

function meshFlags({ routerId, seeds }: LocalMesh): readonly (readonly string[])[] {
  return [["--mesh-router-id", routerId], ["--mesh-port", "0"], ...seeds.map((seed) => ["--mesh-seed", seed])];
}

/** What several routers share. */
export const sharings = ["mesh", "none"] as const;

export type Sharing = (typeof sharings)[number];

export interface StartRoutersOptions {
  readonly count: number;
  readonly sharing: Sharing;
  /** How the router of this index differs from the others. */
  readonly optionsOf: (index: number) => Omit<LocalRouterOptions, "mesh">;
  /** Engines that each must be able to use before it counts as started; undefined does not wait. */
  readonly untilEngines: number | undefined;
  /** Gives up starting. */
  readonly signal?: AbortSignal;
}

/** Starts routers one after the other, each linked with those before it. What was started is in `children`, whatever happens. */
export async function startRouters(
  { count, sharing, optionsOf, untilEngines, signal }: StartRoutersOptions,
  children: Child<unknown>[],
): Promise<readonly RouterListening[]> {
  const routers: RouterListening[] = [];
  for (let index = 0; index < count; index++) {
    const seeds = routers.flatMap(({ meshAddress }) => (meshAddress === null ? [] : [meshAddress]));
    const isShared = sharing === "mesh" && count > 1;
    const router = await startLocalRouter({
      ...optionsOf(index),
      ...(isShared ? { mesh: { routerId: `router-${index + 1}`, seeds } } : {}),
    });
    children.push(router);
    if (untilEngines !== undefined) await untilReady(router.listening, untilEngines, signal);
    routers.push(router.listening);
  }
  return routers;
}

/** What a router on this machine says of itself, as far as it matters to those who start it. */
export interface RouterStatus {
  readonly usableEngines: number;
  readonly models: readonly string[];
}

const readyTimeoutMs = 10_000;
const askEveryMs = 20;

/**
 * Waits until a router can use so many engines, so that the first requests do not find half a fleet.
 *
 * @param signal gives up
 * @throws Error saying how many it found when they are fewer after 10 s, or when it was given up
 */
export async function untilReady(
  { url, adminUrl }: RouterListening,
  engines: number,
  signal?: AbortSignal,
): Promise<RouterStatus> {
  const deadlineMs = systemClock.nowMs() + readyTimeoutMs;
  for (;;) {
    const status = await askStatus(adminUrl);
    if (status && status.usableEngines >= engines) return status;
    if (systemClock.nowMs() > deadlineMs || signal?.aborted) {
      throw new Error(`the router at ${url} can use ${status?.usableEngines ?? 0} of ${engines} engines`);
    }
    await new Promise<void>((resolve) => systemScheduler.after(askEveryMs, resolve));
  }
}

/** @returns undefined when there is no answer */
function askStatus(adminUrl: string): Promise<RouterStatus | undefined> {
  return new Promise((resolve) => {
    const request = get(`${adminUrl}/admin/status`, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (piece: string) => {
        text += piece;
      });
      response.on("end", () => resolve(response.statusCode === 200 ? (JSON.parse(text) as RouterStatus) : undefined));
      response.on("error", () => resolve(undefined));
    });
    request.on("error", () => resolve(undefined));
  });
}

export interface LocalFleetOptions {
  readonly engines: LocalEnginesOptions;
  readonly policy: string;
  /** Number of routers. */
  readonly routers: number;
  readonly sharing: Sharing;
  /** Gives up starting. */
  readonly signal?: AbortSignal;
}

/**
 * Starts simulated engines and routers in front of them as child processes, runs `use` with the routers' URLs, and
 * ends them, however `use` ends.
 */
export async function withLocalFleet<Result>(
  options: LocalFleetOptions,
  use: (routerUrls: readonly string[]) => Promise<Result>,
): Promise<Result> {
  const children: Child<unknown>[] = [];
  try {
    const engines = await startLocalEngines(options.engines);
    children.push(engines);
    const engineUrls = engines.listening.engines.map((engine) => engine.url);
    const routers = await startRouters(
      {
        count: options.routers,
        sharing: options.sharing,
        optionsOf: () => ({ engineUrls, policy: options.policy, port: 0, adminPort: 0 }),
        untilEngines: engineUrls.length,
        ...(options.signal ? { signal: options.signal } : {}),
      },
      children,
    );
    return await use(routers.map(({ url }) => url));
  } finally {
    await Promise.all(children.reverse().map((child) => child.stop()));
  }
}

/** A program of this project that runs as a child process and has said that it listens. */
export interface Child<Listening> {
  readonly listening: Listening;
  readonly process: ChildProcess;
  /** Resolves with the exit code (null after a signal) once the process is gone. */
  readonly exited: Promise<number | null>;
  /** Ends it at once, by closing its channel; if it does not notice, it is killed. */
  stop(): Promise<void>;
}

/** How a program is run, where it matters. */
export interface ProgramOptions {
  /** The program of another release of Node; this process's own when absent. */
  readonly nodeProgram?: string;
  /** For Node itself, such as `--trace-gc`. */
  readonly nodeFlags?: readonly string[];
  /** An open file for its standard output, which otherwise is dropped. */
  readonly output?: number;
}

export interface ChildOptions extends ProgramOptions {
  /** For messages: "router", "engines". */
  readonly name: string;
  readonly program: string;
  readonly arguments: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly startTimeoutMs?: number;
}

const killAfterMs = 1_500;
const keptErrorBytes = 8_192;

/**
 * Forks a program and waits until it sends `{type: "listening", ...}`. The child watches the channel and exits when
 * this process is gone, however that happens.
 *
 * @throws Error with the last lines of the child's standard error when it exits first or stays silent
 */
export async function startChild<Listening>(options: ChildOptions): Promise<Child<Listening>> {
  const child = fork(options.program, [...options.arguments], {
    stdio: ["ignore", options.output ?? "ignore", "pipe", "ipc"],
    ...(options.nodeProgram === undefined ? {} : { execPath: options.nodeProgram }),
    ...(options.nodeFlags === undefined ? {} : { execArgv: [...options.nodeFlags] }),
    env: { ...surroundings(), ...options.environment, ESPALIER_SKIP_BUILD: "1" },
  });
  let errorText = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    errorText = (errorText + text).slice(-keptErrorBytes);
  });
  const exited = new Promise<number | null>((resolve) => child.once("exit", (code) => resolve(code)));
  const failure = (what: string): Error => new Error(`${options.name} ${what}\n${errorText.trim()}`);

  const stop = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    if (child.connected) child.disconnect();
    const cancel = systemScheduler.after(killAfterMs, () => child.kill("SIGKILL"));
    await exited;
    cancel();
  };
  const listening = await new Promise<Listening>((resolve, reject) => {
    const timeoutMs = options.startTimeoutMs ?? 20_000;
    const cancel = systemScheduler.after(timeoutMs, () => reject(failure(`did not listen within ${timeoutMs} ms`)));
    child.on("message", (message: unknown) => {
      if (!isListening(message)) return;
      cancel();
      resolve(message as Listening);
    });
    void exited.then((code) => {
      cancel();
      reject(failure(`exited with code ${code}`));
    });
  }).catch(async (error: unknown) => {
    await stop();
    throw error;
  });
  return { listening, process: child, exited, stop };
}

/** The environment without what configures a router: a local fleet is what its command says, wherever it is started. */
function surroundings(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("ESPALIER_")));
}

function isListening(message: unknown): boolean {
  return typeof message === "object" && message !== null && "type" in message && message.type === "listening";
}
