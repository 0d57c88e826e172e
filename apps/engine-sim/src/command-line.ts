import { parseArgs } from "node:util";
import { type EngineParameters, enginePresets, presetNames } from "@espalier/engine-model";
import { behaviours } from "./behaviours.ts";
import {
  cpuWriteNames,
  defaultPreset,
  dialectNames,
  type EngineSimOptions,
  engineRoles,
  type KvEventOptions,
  loadFailurePolicies,
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

/** The option that a flag sets. */
type Target =
  | keyof EngineSimOptions
  | `parameters.${keyof EngineParameters}`
  | `kvEvents.${keyof KvEventOptions}`
  | `transfer.${keyof TransferOptions}`
  | `transfer.poolEvents.${keyof KvEventOptions}`
  | `p2p.${keyof P2pOptions}`;

/** @throws RangeError that names the flag */
type Read = (text: string, flag: string) => unknown;

const text: Read = (value) => value;

const number: Read = (value, flag) => {
  if (value.trim() !== "" && Number.isFinite(Number(value))) return Number(value);
  throw new RangeError(`--${flag} is a number, not "${value}"`);
};

const oneOf =
  (names: readonly string[]): Read =>
  (value, flag) => {
    if (names.includes(value)) return value;
    const choices = names.length === 2 ? names.join(" or ") : `one of ${names.join(", ")}`;
    throw new RangeError(`--${flag} is ${choices}, not "${value}"`);
  };

/** Flags with a value. */
const valued = {
  engines: ["engines", number],
  host: ["host", text],
  port: ["port", number],
  preset: ["preset", oneOf(presetNames)],
  blocks: ["parameters.blockCount", number],
  "block-size": ["parameters.blockSize", number],
  "max-running": ["parameters.maxRunning", number],
  "max-batched-tokens": ["parameters.maxBatchedTokens", number],
  speed: ["speed", number],
  flavour: ["parameters.flavour", oneOf(["vllm", "sglang"])],
  seed: ["seed", number],
  "natural-length-mean": ["naturalLengthMean", number],
  "api-key": ["apiKey", text],
  tokenizer: ["tokenizer", text],
  "lora-slots": ["parameters.adapterSlots", number],
  "lora-load-ms": ["parameters.adapterLoadMs", number],
  "cpu-blocks": ["parameters.cpuBlocks", number],
  "cpu-load-ms": ["parameters.cpuLoadMsPerBlock", number],
  "cpu-writes": ["parameters.cpuWrites", oneOf(cpuWriteNames)],
  "kv-events": ["kvEvents.dialect", oneOf(dialectNames)],
  "kv-events-port": ["kvEvents.port", number],
  "kv-events-replay": ["kvEvents.replay", (value, flag) => oneOf(["on", "off"])(value, flag) === "on"],
  "kv-events-buffer": ["kvEvents.bufferSteps", number],
  "kv-events-topic": ["kvEvents.topic", text],
  "kv-transfer": ["transfer.protocol", oneOf(transferProtocols)],
  role: ["transfer.role", oneOf(engineRoles)],
  "kv-transfer-port": ["transfer.port", number],
  "kv-transfer-bytes-per-token": ["transfer.bytesPerToken", number],
  "kv-transfer-bytes-per-second": ["transfer.linkBytesPerSecond", number],
  "kv-transfer-setup-ms": ["transfer.setupMs", number],
  "kv-transfer-timeout-ms": ["transfer.timeoutMs", number],
  "kv-transfer-failure": ["transfer.onFailure", oneOf(loadFailurePolicies)],
  "kv-storage": ["transfer.storageUrl", text],
  "kv-pool-events": ["transfer.poolEvents.dialect", oneOf(dialectNames)],
  "kv-pool-events-port": ["transfer.poolEvents.port", number],
  "p2p-port": ["p2p.port", number],
  "p2p-bytes-per-token": ["p2p.bytesPerToken", number],
  "p2p-bytes-per-second": ["p2p.bytesPerSecond", number],
  "p2p-pair-bytes-per-second": ["p2p.pairBytesPerSecond", number],
  "p2p-latency-ms": ["p2p.latencyMs", number],
  "p2p-transfers": ["p2p.maxTransfers", number],
  "p2p-queue": ["p2p.maxQueued", number],
  "p2p-timeout-ms": ["p2p.timeoutMs", number],
} as const satisfies Readonly<Record<string, readonly [sets: Target, read: Read]>>;

type Valued = keyof typeof valued;
const valuedFlags = Object.keys(valued) as readonly Valued[];

const flags = {
  ...(Object.fromEntries(valuedFlags.map((flag) => [flag, { type: "string" }])) as Record<Valued, { type: "string" }>),
  model: { type: "string", multiple: true },
  lora: { type: "string", multiple: true },
  behaviour: { type: "string", multiple: true },
  "self-describing-kv-events": { type: "boolean" },
  p2p: { type: "boolean" },
  json: { type: "boolean" },
  help: { type: "boolean", short: "h" },
} as const;

/** Flags that others need, by the beginnings of what these set. */
const needed = {
  "kvEvents.": "kv-events",
  "transfer.poolEvents.": "kv-pool-events",
  "transfer.": "kv-transfer",
  "p2p.": "p2p",
} as const;

/**
 * Reads the flags of the program.
 *
 * @throws Error with a one-line message that names the wrong flag
 */
export function parseCommandLine(args: readonly string[]): Command {
  const { values } = parseArgs({ args: [...args], options: flags, strict: true, allowPositionals: false });
  const {
    model,
    lora,
    behaviour,
    p2p,
    json = false,
    help = false,
    "self-describing-kv-events": areSelfDescribing,
  } = values;
  const options: Record<string, unknown> = { parameters: {}, ...(p2p && { p2p: {} }) };
  for (const flag of valuedFlags) {
    const [target, read] = valued[flag];
    const written = values[flag];
    if (written === undefined) continue;
    for (const [beginning, other] of Object.entries(needed)) {
      if (!target.startsWith(beginning) || flag === other || Object.hasOwn(values, other)) continue;
      throw new RangeError(`--${flag} needs --${other}`);
    }
    setAt(options, target.split("."), read(written, flag));
  }
  if (model) options.models = model;
  if (lora) options.adapters = lora;
  if (behaviour) options.behaviours = behaviour;
  if (areSelfDescribing) options.selfDescribingKvEvents = true;
  return { showHelp: help, json, options };
}

function setAt(section: Record<string, unknown>, [key = "", ...rest]: readonly string[], value: unknown): void {
  if (rest.length > 0) section[key] ??= {};
  if (rest.length > 0) setAt(section[key] as Record<string, unknown>, rest, value);
  else section[key] = value;
}

/** The text of `--help`. */
export function helpText(): string {
  const shown = behaviours.map(({ name, summary }) => `  ${name}\n      ${summary}`).join("\n");
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

Whose
  --behaviour NAME         a behaviour of a real release, or a release for all of its own; may be repeated

How
  --speed X                engine time per real time (1)
  --seed N                 seed of hashes and random faults (0)
  --json                   print one JSON object with the URLs
  -h, --help               print this

Presets
${presets}

Behaviours of real releases
${shown}
`;
}
