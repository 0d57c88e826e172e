import { parseArgs } from "node:util";
import { type EngineParameters, enginePresets, presetNames } from "@espalier/engine-model";
import {
  cpuWriteNames,
  defaultPreset,
  dialectNames,
  type EngineSimOptions,
  engineRoles,
  type KvEventOptions,
  type P2pOptions,
  type TransferOptions,
  transferProtocols,
} from "./options.ts";
import { shippedModelName } from "./text/model-text.ts";

/** The parsed command line. */
interface Command {
  readonly showHelp: boolean;
  /** Whether to print one JSON object instead of lines. */
  readonly json: boolean;
  readonly options: EngineSimOptions;
}

/** The flags for prefill and decode on different engines. */
const transferFlags = {
  role: { type: "string" },
  "kv-transfer": { type: "string" },
  "kv-transfer-port": { type: "string" },
  "kv-transfer-bytes-per-token": { type: "string" },
  "kv-transfer-bytes-per-second": { type: "string" },
  "kv-transfer-setup-ms": { type: "string" },
  "kv-transfer-timeout-ms": { type: "string" },
  "kv-transfer-failure": { type: "string" },
  "kv-storage": { type: "string" },
  "kv-pool-events": { type: "string" },
  "kv-pool-events-port": { type: "string" },
} as const;

/** The flags for engines that pull from each other's CPU memory. */
const p2pFlags = {
  "p2p-port": { type: "string" },
  "p2p-bytes-per-token": { type: "string" },
  "p2p-bytes-per-second": { type: "string" },
  "p2p-pair-bytes-per-second": { type: "string" },
  "p2p-latency-ms": { type: "string" },
  "p2p-transfers": { type: "string" },
  "p2p-queue": { type: "string" },
  "p2p-timeout-ms": { type: "string" },
} as const;

const flags = {
  engines: { type: "string" },
  host: { type: "string" },
  port: { type: "string" },
  preset: { type: "string" },
  model: { type: "string", multiple: true },
  blocks: { type: "string" },
  "block-size": { type: "string" },
  "max-running": { type: "string" },
  "max-batched-tokens": { type: "string" },
  speed: { type: "string" },
  flavour: { type: "string" },
  seed: { type: "string" },
  "natural-length-mean": { type: "string" },
  "api-key": { type: "string" },
  tokenizer: { type: "string" },
  lora: { type: "string", multiple: true },
  "lora-slots": { type: "string" },
  "lora-load-ms": { type: "string" },
  "cpu-blocks": { type: "string" },
  "cpu-load-ms": { type: "string" },
  "cpu-writes": { type: "string" },
  "kv-events": { type: "string" },
  "kv-events-port": { type: "string" },
  "kv-events-replay": { type: "string" },
  "kv-events-buffer": { type: "string" },
  "kv-events-topic": { type: "string" },
  "self-describing-kv-events": { type: "boolean" },
  ...transferFlags,
  p2p: { type: "boolean" },
  ...p2pFlags,
  json: { type: "boolean" },
  help: { type: "boolean", short: "h" },
} as const;

/**
 * Reads the flags of the program.
 *
 * @throws Error with a one-line message that names the wrong flag
 */
export function parseCommandLine(args: readonly string[]): Command {
  const { values } = parseArgs({ args: [...args], options: flags, strict: true, allowPositionals: false });
  const preset = values.preset === undefined ? undefined : presetNames.find((name) => name === values.preset);
  if (values.preset !== undefined && !preset) throw new RangeError(`--preset is one of ${presetNames.join(", ")}`);
  const parameters = dropUndefined<Partial<EngineParameters>>({
    blockCount: numberFlag(values.blocks, "blocks"),
    blockSize: numberFlag(values["block-size"], "block-size"),
    maxRunning: numberFlag(values["max-running"], "max-running"),
    maxBatchedTokens: numberFlag(values["max-batched-tokens"], "max-batched-tokens"),
    flavour: flavourFlag(values.flavour),
    adapterSlots: numberFlag(values["lora-slots"], "lora-slots"),
    adapterLoadMs: numberFlag(values["lora-load-ms"], "lora-load-ms"),
    cpuBlocks: numberFlag(values["cpu-blocks"], "cpu-blocks"),
    cpuLoadMsPerBlock: numberFlag(values["cpu-load-ms"], "cpu-load-ms"),
    cpuWrites: cpuWritesFlag(values["cpu-writes"]),
  });
  const options = dropUndefined<EngineSimOptions>({
    engines: numberFlag(values.engines, "engines"),
    host: values.host,
    port: numberFlag(values.port, "port"),
    preset,
    models: values.model,
    parameters,
    speed: numberFlag(values.speed, "speed"),
    seed: numberFlag(values.seed, "seed"),
    naturalLengthMean: numberFlag(values["natural-length-mean"], "natural-length-mean"),
    apiKey: values["api-key"],
    tokenizer: values.tokenizer,
    adapters: values.lora,
    kvEvents: kvEventFlags(values),
    transfer: transferOptionsOf(values),
    p2p: p2pOptionsOf(values),
    selfDescribingKvEvents: values["self-describing-kv-events"],
  });
  return { showHelp: values.help ?? false, json: values.json ?? false, options };
}

function numberFlag(value: string | undefined, name: string): number | undefined {
  if (value === undefined) return undefined;
  const number = Number(value);
  if (value.trim() !== "" && Number.isFinite(number)) return number;
  throw new RangeError(`--${name} is a number, not "${value}"`);
}

function flavourFlag(value: string | undefined): "vllm" | "sglang" | undefined {
  if (value === undefined || value === "vllm" || value === "sglang") return value;
  throw new RangeError(`--flavour is vllm or sglang, not "${value}"`);
}

function cpuWritesFlag(value: string | undefined): EngineParameters["cpuWrites"] {
  if (value === undefined) return undefined;
  const writes = cpuWriteNames.find((known) => known === value);
  if (!writes) throw new RangeError(`--cpu-writes is one of ${cpuWriteNames.join(", ")}, not "${value}"`);
  return writes;
}

interface KvEventFlags {
  readonly "kv-events"?: string | undefined;
  readonly "kv-events-port"?: string | undefined;
  readonly "kv-events-replay"?: string | undefined;
  readonly "kv-events-buffer"?: string | undefined;
  readonly "kv-events-topic"?: string | undefined;
}

function kvEventFlags(values: KvEventFlags): KvEventOptions | undefined {
  const { "kv-events": name, "kv-events-replay": replay } = values;
  if (name === undefined) {
    const [stray] =
      Object.entries(values).find(([flag, value]) => flag.startsWith("kv-events-") && value !== undefined) ?? [];
    if (stray) throw new RangeError(`--${stray} needs --kv-events`);
    return undefined;
  }
  const dialect = dialectNames.find((known) => known === name);
  if (!dialect) throw new RangeError(`--kv-events is one of ${dialectNames.join(", ")}, not "${name}"`);
  if (replay !== undefined && replay !== "on" && replay !== "off") {
    throw new RangeError(`--kv-events-replay is on or off, not "${replay}"`);
  }
  return dropUndefined<KvEventOptions>({
    dialect,
    port: numberFlag(values["kv-events-port"], "kv-events-port"),
    replay: replay === undefined ? undefined : replay === "on",
    bufferSteps: numberFlag(values["kv-events-buffer"], "kv-events-buffer"),
    topic: values["kv-events-topic"],
  });
}

type TransferFlags = { readonly [Flag in keyof typeof transferFlags]?: string | undefined };

function transferOptionsOf(values: TransferFlags): TransferOptions | undefined {
  const { "kv-transfer": name, "kv-transfer-failure": failure, role: roleName } = values;
  if (name === undefined) {
    const stray = Object.keys(transferFlags).find((flag) => values[flag as keyof TransferFlags] !== undefined);
    if (stray !== undefined) throw new RangeError(`--${stray} needs --kv-transfer`);
    return undefined;
  }
  const protocol = transferProtocols.find((known) => known === name);
  if (!protocol) throw new RangeError(`--kv-transfer is one of ${transferProtocols.join(", ")}, not "${name}"`);
  const role = engineRoles.find((known) => known === roleName);
  if (roleName !== undefined && !role) throw new RangeError(`--role is one of ${engineRoles.join(", ")}`);
  if (failure !== undefined && failure !== "fail" && failure !== "recompute") {
    throw new RangeError(`--kv-transfer-failure is fail or recompute, not "${failure}"`);
  }
  const { "kv-pool-events": poolDialect, "kv-pool-events-port": poolPort } = values;
  if (poolDialect === undefined && poolPort !== undefined) {
    throw new RangeError("--kv-pool-events-port needs --kv-pool-events");
  }
  const numbers = {
    port: numberFlag(values["kv-transfer-port"], "kv-transfer-port"),
    bytesPerToken: numberFlag(values["kv-transfer-bytes-per-token"], "kv-transfer-bytes-per-token"),
    linkBytesPerSecond: numberFlag(values["kv-transfer-bytes-per-second"], "kv-transfer-bytes-per-second"),
    setupMs: numberFlag(values["kv-transfer-setup-ms"], "kv-transfer-setup-ms"),
    timeoutMs: numberFlag(values["kv-transfer-timeout-ms"], "kv-transfer-timeout-ms"),
  };
  const poolEvents =
    poolDialect === undefined ? undefined : poolEventsOf(poolDialect, numberFlag(poolPort, "kv-pool-events-port"));
  const storageUrl = values["kv-storage"];
  const given = Object.entries({ role, onFailure: failure, storageUrl, poolEvents, ...numbers });
  return { protocol, ...Object.fromEntries(given.filter(([, value]) => value !== undefined)) };
}

function poolEventsOf(name: string, port: number | undefined): KvEventOptions {
  const dialect = dialectNames.find((known) => known === name);
  if (!dialect) throw new RangeError(`--kv-pool-events is one of ${dialectNames.join(", ")}, not "${name}"`);
  return { dialect, ...(port === undefined ? {} : { port }) };
}

type P2pFlags = { readonly [Flag in keyof typeof p2pFlags]?: string | undefined } & {
  readonly p2p?: boolean | undefined;
};

function p2pOptionsOf(values: P2pFlags): P2pOptions | undefined {
  if (values.p2p !== true) {
    const stray = Object.keys(p2pFlags).find((flag) => values[flag as keyof P2pFlags] !== undefined);
    if (stray !== undefined) throw new RangeError(`--${stray} needs --p2p`);
    return undefined;
  }
  return dropUndefined<P2pOptions>({
    port: numberFlag(values["p2p-port"], "p2p-port"),
    bytesPerToken: numberFlag(values["p2p-bytes-per-token"], "p2p-bytes-per-token"),
    bytesPerSecond: numberFlag(values["p2p-bytes-per-second"], "p2p-bytes-per-second"),
    pairBytesPerSecond: numberFlag(values["p2p-pair-bytes-per-second"], "p2p-pair-bytes-per-second"),
    latencyMs: numberFlag(values["p2p-latency-ms"], "p2p-latency-ms"),
    maxTransfers: numberFlag(values["p2p-transfers"], "p2p-transfers"),
    maxQueued: numberFlag(values["p2p-queue"], "p2p-queue"),
    timeoutMs: numberFlag(values["p2p-timeout-ms"], "p2p-timeout-ms"),
  });
}

type Loose<T> = { readonly [Key in keyof T]: T[Key] | undefined };

const dropUndefined = <T extends object>(values: Loose<T>): T =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as T;

/** The text of `--help`. */
export function helpText(): string {
  const presets = presetNames.map((name) => `  ${name.padEnd(19)}${enginePresets[name].description}`).join("\n");
  return `Usage: espalier-engine-sim [flags]

Simulated LLM engines behind HTTP servers like vLLM's or SGLang's.
Faults are injected and state is read under /sim/ of each engine.

Where
  --engines N              engines in this process, each on its own port (1)
  --host ADDRESS           address to listen on (127.0.0.1)
  --port P                 port of the first engine, counting up; 0 for free ports (0)

What
  --preset NAME            parameters of a real engine (${defaultPreset}), see below
  --model NAME             served name of the model; may be repeated (sim-model)
  --flavour vllm|sglang    whose cache and HTTP interface (that of the preset)
  --blocks N               KV blocks
  --block-size N           tokens per block
  --cpu-blocks N           blocks of CPU memory (0, or those of the preset)
  --cpu-load-ms N          engine time to load one of them back to KV memory (0)
  --cpu-writes WHAT        what goes there: evicted blocks, or, once computed, prompt blocks or all
                           (evicted, or that of the preset; prompt with --p2p)
  --max-running N          most running sequences
  --max-batched-tokens N   tokens per step
  --natural-length-mean N  mean tokens of an answer without a limit; 0 to always reach the limit (0)
  --api-key K              requires Authorization: Bearer K
  --tokenizer DIR          folder of a model with tokenizer and chat template, or ${shippedModelName};
                           without it a token is four bytes
  --lora NAME              LoRA adapter of the model, served under its name; may be repeated
  --lora-slots N           adapters loaded, and in use by running requests, at once (all)
  --lora-load-ms N         engine time to load one, while all requests wait (0)

KV events
  --kv-events DIALECT      publishes them over ZMQ in this encoding: auto (that of the flavour),
                           ${dialectNames.slice(1).join(", ")}
  --kv-events-port P       port of the first engine's events, its replay on the next one, the other
                           engines two ports on; 0 for free ports (0)
  --kv-events-replay on|off  whether messages can be replayed (on)
  --kv-events-buffer N     messages kept for replay (10000)
  --kv-events-topic TOPIC  first frame of every message (empty)
  --self-describing-kv-events  events of vLLM's CPU memory have tokens, like those of KV memory

Disaggregated prefill and decode
  --kv-transfer PROTOCOL   protocol that transfers KV blocks: ${transferProtocols.slice(0, 3).join(", ")},
                           ${transferProtocols.slice(3).join(", ")}
  --role ROLE              role of these engines: prefill, decode or both (both)
  --kv-transfer-port P     side channel of the first engine, and its bootstrap server, counting up; 0 for free
                           ports (0)
  --kv-transfer-bytes-per-token N   bytes of KV per token (those of the preset)
  --kv-transfer-bytes-per-second N  bandwidth between engines (12.5e9)
  --kv-transfer-setup-ms N          engine time before the first byte (5)
  --kv-transfer-timeout-ms N        real time until unfetched blocks and waiting engines give up (480000)
  --kv-transfer-failure fail|recompute  reaction of vLLM to blocks that do not arrive (fail)
  --kv-storage URL         side channel of the engine with the blocks of shared-storage (the first one here)
  --kv-pool-events DIALECT publishes the blocks of shared-storage over ZMQ, like a separate pool
  --kv-pool-events-port P  port of these events, their replay on the next one; 0 for free ports (0)

Pull from other engines' CPU memory
  --p2p                    requests may name a source (kv_transfer_params.remote_kv_source); needs CPU memory
  --p2p-port P             side channel of the first engine, counting up; 0 for free ports (5710)
  --p2p-bytes-per-token N        bytes of KV per token (those of the preset)
  --p2p-bytes-per-second N       what an engine sends in all (that of the preset, or 12.5e9)
  --p2p-pair-bytes-per-second N  what it sends to one engine (that of the preset, or 12.5e9)
  --p2p-latency-ms N             engine time before the first byte (that of the preset, or 16)
  --p2p-transfers N              transfers of an engine at once; others wait (32)
  --p2p-queue N                  pulls that wait at an engine; others get nothing (1024)
  --p2p-timeout-ms N             real time until a pull is given up (30000)

How
  --speed X                engine time per real time (1)
  --seed N                 seed of hashes and random faults (0)
  --json                   print one JSON object with the URLs
  -h, --help               print this

Presets
${presets}
`;
}
