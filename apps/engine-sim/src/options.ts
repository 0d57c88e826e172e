import { isIPv4 } from "node:net";
import { type Clock, type Logger, type Scheduler, silentLogger, systemClock, systemScheduler } from "@espalier/core";
import {
  type CacheFlavour,
  defaultMaxQueued,
  defaultMaxTransfers,
  type EngineParameters,
  enginePresets,
  type PresetName,
  type PullLimits,
  presetNames,
} from "@espalier/engine-model";
import { type EventDialect, eventDialects } from "@espalier/engine-model/kv-events";
import { type BehaviourName, behavioursNamed } from "./behaviours.ts";
import { maxAdapters } from "./engine/adapters.ts";

/** Options of simulated engines. `defaults` has what they are that nobody sets. */
export interface EngineSimOptions {
  /** Number of engines, each on its own port. */
  readonly engines?: number;
  readonly host?: string;
  /** Port of the first engine, the others count up from it; 0 for any free ports. */
  readonly port?: number;
  /** Parameters of a real engine. */
  readonly preset?: PresetName;
  /** Names of the model. */
  readonly models?: readonly string[];
  /** Parameters that differ from the preset. `flavour` also chooses which HTTP interface is imitated. */
  readonly parameters?: Partial<EngineParameters>;
  /** Engine milliseconds per real millisecond. */
  readonly speed?: number;
  /** Seed of hashes and random faults. */
  readonly seed?: number;
  /** Mean tokens of an answer without a limit; 0 for answers that reach their limit. */
  readonly naturalLengthMean?: number;
  /** The expected `Authorization: Bearer`; none by default. */
  readonly apiKey?: string;
  /** KV events over ZMQ; none by default. */
  readonly kvEvents?: KvEventOptions;
  /** Disaggregated prefill and decode; none by default. */
  readonly transfer?: TransferOptions;
  /** Engines that pull blocks from each other's CPU memory, as vLLM's P2P tier; none by default. Not with `transfer`. */
  readonly p2p?: P2pOptions;
  /** Whether KV events of vLLM's CPU memory describe blocks by their tokens; false by default, as there. */
  readonly selfDescribingKvEvents?: boolean;
  /**
   * Folder of a model whose tokenizer and chat template are used, or `espalier-tiny` for the shipped one; by
   * default tokens are four bytes each.
   */
  readonly tokenizer?: string;
  /** Placeholders of an image, audio or video, for a tokenizer whose template has them; 0 for a model that takes none. */
  readonly mediaTokens?: number;
  /** Names of LoRA adapters of the first model; none by default. */
  readonly adapters?: readonly string[];
  /** Behaviours of real releases (`behaviours`), each by its name or all of a release; none by default. */
  readonly behaviours?: readonly string[];
  readonly clock?: Clock;
  readonly scheduler?: Scheduler;
  /** Logs failed sockets; silent by default. */
  readonly logger?: Logger;
}

/** Options of the KV events of simulated engines. */
export interface KvEventOptions {
  /** Encoding of the events; `auto` for that of the newest engine of the flavour. */
  readonly dialect: EventDialect | "auto";
  /** Port of the first engine's events, its replay on the next one, the other engines two ports on; 0 for any free ports. */
  readonly port?: number;
  /** Whether messages can be replayed. */
  readonly replay?: boolean;
  /** Messages kept for replay. */
  readonly bufferSteps?: number;
  /** First frame of every message. */
  readonly topic?: string;
}

/** Options of the transfer of KV blocks between engines. */
export interface TransferOptions {
  readonly protocol: TransferProtocol;
  /** SGLang and P2P-NCCL know no engines that do both. */
  readonly role?: EngineRole;
  /** Side channel of the first engine, the others count up from it; 0 for any free ports. */
  readonly port?: number;
  /** Bytes of KV per token; those of the preset by default. */
  readonly bytesPerToken?: number;
  /** Bandwidth of the link between engines. */
  readonly linkBytesPerSecond?: number;
  /** Engine time before the first byte of a transfer. */
  readonly setupMs?: number;
  /** Real time that blocks wait to be fetched, and engines wait for each other. */
  readonly timeoutMs?: number;
  /** For vLLM's protocols. */
  readonly onFailure?: LoadFailurePolicy;
  /** Side channel of an engine that keeps the blocks of `shared-storage`; by default the first one of this process. */
  readonly storageUrl?: string;
  /**
   * KV events of the blocks in `shared-storage`, published by the first engine like those of a pool outside the engines:
   * blocks with their tokens, of the medium EXTERNAL. None by default.
   */
  readonly poolEvents?: KvEventOptions;
}

/** Options of the pull of blocks from other engines' CPU memory. */
export interface P2pOptions {
  /** Side channel of the first engine, the others count up from it; 0 for any free ports. */
  readonly port?: number;
  /** Bytes of KV per token; those of the preset by default. */
  readonly bytesPerToken?: number;
  /** What an engine sends in all, unless the preset says it. */
  readonly bytesPerSecond?: number;
  /** What it sends to one other engine, unless the preset says it. */
  readonly pairBytesPerSecond?: number;
  /** Engine time before the first byte, unless the preset says it. */
  readonly latencyMs?: number;
  /** Transfers of an engine at once. */
  readonly maxTransfers?: number;
  /** Pulls that wait at an engine. */
  readonly maxQueued?: number;
  /** Real time after which a pull is given up. */
  readonly timeoutMs?: number;
}

export type TransferProtocol = (typeof transferProtocols)[number];

/** Protocols that transfer KV blocks between engines. */
export const transferProtocols = [
  "nixl",
  "sglang-bootstrap",
  "mooncake",
  "shared-storage",
  "trtllm",
  "p2p-nccl",
] as const;

type EngineRole = (typeof engineRoles)[number];

/** Roles of engines in disaggregated serving. */
export const engineRoles = ["prefill", "decode", "both"] as const;

type LoadFailurePolicy = (typeof loadFailurePolicies)[number];

/** Reactions to blocks that do not arrive: vLLM's `kv_load_failure_policy`. */
export const loadFailurePolicies = ["fail", "recompute"] as const;

/** The values of `dialect`. */
export const dialectNames: readonly (EventDialect | "auto")[] = ["auto", ...eventDialects];

type Defaulted =
  | ("engines" | "host" | "port" | "speed" | "seed" | "naturalLengthMean" | "selfDescribingKvEvents" | "mediaTokens")
  | ("adapters" | "clock" | "scheduler" | "logger");

/** The same with every default filled in. */
export interface ResolvedOptions extends Required<Pick<EngineSimOptions, Defaulted>> {
  readonly models: readonly [string, ...string[]];
  readonly parameters: EngineParameters;
  readonly apiKey: string | undefined;
  readonly kvEvents: ResolvedKvEvents | undefined;
  readonly transfer: ResolvedTransfer | undefined;
  readonly p2p: ResolvedP2p | undefined;
  readonly tokenizer: string | undefined;
  readonly behaviours: ReadonlySet<BehaviourName>;
}

/** The same with every default filled in. */
export interface ResolvedKvEvents extends Required<KvEventOptions> {
  readonly dialect: EventDialect;
  /** Address that the sockets are bound to. */
  readonly host: string;
}

/** The same with every default filled in. */
export interface ResolvedTransfer
  extends Required<Pick<TransferOptions, "protocol" | "role" | "port" | "setupMs" | "timeoutMs" | "onFailure">> {
  /** Transfer time of a token, engine time. */
  readonly msPerToken: number;
  readonly storageUrl: string | undefined;
  readonly poolEvents: ResolvedKvEvents | undefined;
}

/** The same with every default filled in. */
export interface ResolvedP2p {
  readonly port: number;
  readonly limits: PullLimits;
  readonly timeoutMs: number;
}

/** As in vLLM. */
const kvEventDefaults = { port: 0, replay: true, bufferSteps: 10_000, topic: "" } as const;

/** 100 Gbit/s. */
const linkBytesPerSecond = 12.5e9;

/** What options are that nobody sets, where neither a preset nor another option decides. */
export const defaults = {
  engines: 1,
  host: "127.0.0.1",
  port: 0,
  preset: "a10g-7b",
  models: ["sim-model"],
  speed: 1,
  seed: 0,
  naturalLengthMean: 0,
  /** As LLaVA's for an image of 84 pixels. */
  mediaTokens: 36,
  kvEvents: kvEventDefaults,
  transfer: {
    role: "both",
    port: 0,
    linkBytesPerSecond,
    setupMs: 5,
    /** vLLM's timeout of blocks that are not fetched (`VLLM_NIXL_ABORT_REQUEST_TIMEOUT`). */
    timeoutMs: 480_000,
    onFailure: "fail",
    poolEvents: kvEventDefaults,
  },
  p2p: {
    /** vLLM's `VLLM_P2P_SIDE_CHANNEL_PORT`. */
    port: 5_710,
    bytesPerSecond: linkBytesPerSecond,
    pairBytesPerSecond: linkBytesPerSecond,
    latencyMs: 16,
    maxTransfers: defaultMaxTransfers,
    maxQueued: defaultMaxQueued,
    timeoutMs: 30_000,
  },
} as const;

/** Engines of one process. */
const maxEngines = 256;

/** @throws RangeError naming the invalid option */
export function resolveOptions(options: EngineSimOptions): ResolvedOptions {
  const { engines, host, port, preset, speed, seed, naturalLengthMean, mediaTokens } = { ...defaults, ...options };
  checkWhole("engines", engines, 1, maxEngines);
  checkPorts({ flag: "port", of: "the engines", port, count: engines });
  check(presetNames.includes(preset), `preset must be one of ${presetNames.join(", ")}`);
  check(Number.isFinite(speed) && speed > 0, "speed must be a number above 0");
  check(Number.isSafeInteger(seed), "seed must be a whole number");
  checkFromZero("natural-length-mean", naturalLengthMean);
  check(Number.isSafeInteger(mediaTokens) && mediaTokens >= 0, "media-tokens must be a whole number from 0");
  const [model = defaults.models[0], ...aliases] = options.models ?? [];
  const { adapters = [] } = options;
  const names = [model, ...aliases, ...adapters];
  check(!names.includes(""), "model and lora must not be empty");
  check(adapters.length <= maxAdapters, `at most ${maxAdapters} times lora`);
  check(
    new Set(names).size === names.length || adapters.length === 0,
    "lora must be another name than every model and lora",
  );
  const { p2p, selfDescribingKvEvents = false } = options;
  const parameters = { ...enginePresets[preset].parameters, ...options.parameters };
  check(!p2p || !options.transfer, "p2p does not go with kv-transfer");
  check(
    !p2p || (parameters.flavour === "vllm" && (parameters.cpuBlocks ?? 0) > 0),
    "p2p needs vLLM's flavour and cpu-blocks",
  );
  check(!p2p || (parameters.cpuChunkBlocks ?? 1) === 1, "p2p needs cpu-chunk-blocks of 1");
  const { flavour } = parameters;
  return {
    engines,
    host,
    port,
    models: [model, ...aliases],
    parameters,
    speed,
    seed,
    naturalLengthMean,
    mediaTokens,
    apiKey: options.apiKey,
    kvEvents: options.kvEvents && resolveKvEvents(options.kvEvents, { flavour, engines, host }),
    transfer: options.transfer && resolveTransfer(options.transfer, { engines, preset, flavour, host }),
    p2p: p2p && resolveP2p(p2p, { engines, preset }),
    selfDescribingKvEvents,
    tokenizer: options.tokenizer,
    adapters,
    behaviours: behavioursNamed(options.behaviours ?? []),
    clock: options.clock ?? systemClock,
    scheduler: options.scheduler ?? systemScheduler,
    logger: options.logger ?? silentLogger,
  };
}

/** Ports that one engine takes: events and replay. */
export const portsPerEngine = 2;
/** Largest number of messages kept for replay. */
const maxBufferSteps = 1_000_000;

interface WithPreset {
  readonly preset: PresetName;
}

interface EngineDefaults {
  readonly flavour: CacheFlavour;
  readonly engines: number;
  readonly host: string;
  /** Name of the flag, for errors; `kv-events` by default. */
  readonly flag?: string;
}

/** @throws RangeError naming the invalid option */
function resolveKvEvents(options: KvEventOptions, facts: EngineDefaults): ResolvedKvEvents {
  const { flavour, engines, host, flag = "kv-events" } = facts;
  const { dialect, port, replay, bufferSteps, topic } = { ...kvEventDefaults, ...options };
  check(dialectNames.includes(dialect), `${flag} must be one of ${dialectNames.join(", ")}`);
  checkPorts({ flag: `${flag}-port`, of: flag, port, count: portsPerEngine * engines });
  check(
    isWhole(bufferSteps, 1, maxBufferSteps),
    `${flag}-buffer must be a whole number from 1 to ${maxBufferSteps.toLocaleString("en")}`,
  );
  const address = host === "localhost" ? "127.0.0.1" : host;
  check(isIPv4(address), `${flag} need a host that is an IPv4 address`);
  const ownDialect = flavour === "sglang" ? "sglang-0.5.23" : "vllm-0.32";
  return { dialect: dialect === "auto" ? ownDialect : dialect, port, replay, bufferSteps, topic, host: address };
}

/** Longest timeout of a KV transfer. */
const maxTimeoutMs = 86_400_000;

/** @throws RangeError naming the invalid option */
function resolveTransfer(options: TransferOptions, facts: EngineDefaults & WithPreset): ResolvedTransfer {
  const { engines, preset, flavour, host } = facts;
  const { bytesPerToken = enginePresets[preset].kvBytesPerToken, storageUrl, poolEvents } = options;
  const filled = { ...defaults.transfer, ...options };
  const { protocol, role, port, linkBytesPerSecond, setupMs, timeoutMs, onFailure } = filled;
  check(transferProtocols.includes(protocol), `kv-transfer must be one of ${transferProtocols.join(", ")}`);
  check(engineRoles.includes(role), `role must be one of ${engineRoles.join(", ")}`);
  check(protocol !== "p2p-nccl" || role !== "both", "p2p-nccl needs the role prefill or decode");
  checkPorts({ flag: "kv-transfer-port", of: "kv-transfer", port, count: engines });
  checkPositive("kv-transfer-bytes-per-token", bytesPerToken);
  checkPositive("kv-transfer-bytes-per-second", linkBytesPerSecond);
  checkFromZero("kv-transfer-setup-ms", setupMs);
  checkWhole("kv-transfer-timeout-ms", timeoutMs, 1, maxTimeoutMs);
  check(loadFailurePolicies.includes(onFailure), "kv-transfer-failure must be fail or recompute");
  check(storageUrl === undefined || protocol === "shared-storage", "kv-storage needs kv-transfer shared-storage");
  check(storageUrl === undefined || URL.canParse(storageUrl), "kv-storage must be a URL");
  check(poolEvents === undefined || protocol === "shared-storage", "kv-pool-events needs kv-transfer shared-storage");
  check(poolEvents === undefined || storageUrl === undefined, "kv-pool-events go with the blocks, not with kv-storage");
  const resolvedEvents =
    poolEvents && resolveKvEvents(poolEvents, { flavour, engines: 1, host, flag: "kv-pool-events" });
  const msPerToken = (bytesPerToken / linkBytesPerSecond) * 1_000;
  return {
    ...{ protocol, role, port, setupMs, msPerToken, timeoutMs, onFailure, storageUrl },
    poolEvents: resolvedEvents,
  };
}

/** @throws RangeError naming the invalid option */
function resolveP2p(
  options: P2pOptions,
  { engines, preset }: Pick<EngineDefaults, "engines"> & WithPreset,
): ResolvedP2p {
  const { kvBytesPerToken: bytesPerToken, pull } = enginePresets[preset];
  const { port, timeoutMs, ...limits } = { bytesPerToken, ...defaults.p2p, ...pull, ...options };
  checkPorts({ flag: "p2p-port", of: "p2p", port, count: engines });
  checkPositive("p2p-bytes-per-token", limits.bytesPerToken);
  checkPositive("p2p-bytes-per-second", limits.bytesPerSecond);
  checkPositive("p2p-pair-bytes-per-second", limits.pairBytesPerSecond);
  checkFromZero("p2p-latency-ms", limits.latencyMs);
  checkWhole("p2p-transfers", limits.maxTransfers, 1, maxPulls);
  checkWhole("p2p-queue", limits.maxQueued, 0, maxPulls);
  checkWhole("p2p-timeout-ms", timeoutMs, 1, maxTimeoutMs);
  return { port, limits, timeoutMs };
}

/** Pulls that an engine can be told to send, or to hold back, at once. */
const maxPulls = 65_536;

const isWhole = (value: number, min: number, max: number): boolean =>
  Number.isInteger(value) && value >= min && value <= max;

interface Ports {
  /** The flag of the first port, and whose they are. */
  readonly flag: string;
  readonly of: string;
  /** The first; 0 for any. */
  readonly port: number;
  readonly count: number;
}

function checkPorts({ flag, of, port, count }: Ports): void {
  checkWhole(flag, port, 0, 65_535);
  check(port === 0 || port + count <= 65_536, `the ports of ${of} must not pass 65535`);
}

const checkWhole = (flag: string, value: number, min: number, max: number): void =>
  check(isWhole(value, min, max), `${flag} must be a whole number from ${min} to ${max}`);

const checkPositive = (flag: string, value: number): void =>
  check(Number.isFinite(value) && value > 0, `${flag} must be a number above 0`);

const checkFromZero = (flag: string, value: number): void =>
  check(Number.isFinite(value) && value >= 0, `${flag} must be a number from 0`);

function check(holds: boolean, message: string): void {
  if (!holds) throw new RangeError(message);
}
