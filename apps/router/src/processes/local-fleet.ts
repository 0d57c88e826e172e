import { fileURLToPath } from "node:url";
import { type Child, type ProgramOptions, type RouterListening, startChild } from "./start-child.ts";

/** Maximum simulated engines of one fleet: as many as one process runs. */
export const maxLocalEngines = 256;
/** Maximum routers of one fleet, each a process. */
export const maxLocalRouters = 16;

export interface LocalEnginesOptions {
  readonly count: number;
  readonly preset: string;
  readonly model: string;
  /** Engine seconds per real second. */
  readonly speed: number;
  /** First port; 0 for free ports. */
  readonly port: number;
  /** KV blocks per engine; the preset's when absent. */
  readonly blocks?: number;
  /** Whether they publish KV events, on free ports. */
  readonly kvEvents: boolean;
  /** Whether they lend each other KV blocks, at free ports. */
  readonly lendsBlocks?: boolean;
  /** Folder of the tokenizer that replaces their own four-byte tokens. */
  readonly tokenizer?: string;
  /** Time limit for the process to start; 20 s by default. */
  readonly startTimeoutMs?: number;
}

export interface EnginesListening {
  readonly engines: readonly { readonly id: string; readonly url: string; readonly p2pPort?: number }[];
}

export interface LocalRouterOptions {
  readonly engineUrls: readonly string[];
  /** Describes the engines in place of `engineUrls`. */
  readonly enginesFile?: string;
  readonly policy?: string;
  /** Folder of the tokenizer for every model. */
  readonly tokenizer?: string;
  /** 0 for a free port. */
  readonly port: number;
  readonly adminPort: number;
  /** Undefined for a router that shares nothing. */
  readonly mesh?: LocalMesh;
  /** Whether it is an endpoint picker too, at free ports. */
  readonly isPicker?: boolean;
  readonly arguments?: readonly string[];
  /** Time limit for the process to start; 20 s by default. */
  readonly startTimeoutMs?: number;
  readonly runBy?: ProgramOptions;
}

/** A router's place in the mesh on this machine. */
export interface LocalMesh {
  readonly routerId: string;
  /** Addresses of routers that are already running. */
  readonly seeds: readonly string[];
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
    arguments: [
      ...Object.entries(values).flatMap(([name, value]) => (value === undefined ? [] : [`--${name}`, String(value)])),
      ...(options.lendsBlocks ? ["--p2p", "--p2p-port", "0", "--self-describing-kv-events"] : []),
    ],
    ...(options.startTimeoutMs === undefined ? {} : { startTimeoutMs: options.startTimeoutMs }),
  });
}

/** `espalier serve` in a child process, in front of the given engines. */
export function startLocalRouter(options: LocalRouterOptions): Promise<Child<RouterListening>> {
  const flags = [
    ["--listen-port", options.port],
    ["--admin-port", options.adminPort],
    ...(options.enginesFile === undefined
      ? options.engineUrls.map((url) => ["--engine", url])
      : [["--engines-file", options.enginesFile]]),
    ...(options.policy === undefined ? [] : [["--policy", options.policy]]),
    ...(options.tokenizer === undefined ? [] : [["--tokenizer", options.tokenizer]]),
    ...(options.mesh === undefined ? [] : meshFlags(options.mesh)),
    ...(options.isPicker ? pickerFlags : []),
  ];
  return startChild({
    name: "the router",
    program: fileURLToPath(new URL("../../bin/espalier.mjs", import.meta.url)),
    arguments: ["serve", ...flags.flat().map(String), ...(options.arguments ?? [])],
    ...(options.startTimeoutMs === undefined ? {} : { startTimeoutMs: options.startTimeoutMs }),
    ...options.runBy,
  });
}

/** Envoy tries the next engine that is named if the first takes no connection. */
const pickerFlags = [
  ["--ext-proc-port", "0"],
  ["--ext-proc-health-port", "0"],
  ["--endpoint-picker-fallbacks", "2"],
] as const;

function meshFlags({ routerId, seeds }: LocalMesh): readonly (readonly string[])[] {
  return [["--mesh-router-id", routerId], ["--mesh-port", "0"], ...seeds.map((seed) => ["--mesh-seed", seed])];
}
