import { parseArgs } from "node:util";
import { layOutHelpItem } from "@espalier/core";
import { type EngineParameters, enginePresets, presetNames } from "@espalier/engine-model";
import { behaviours } from "./behaviours.ts";
import {
  defaults,
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
  /** Whether to exit when standard input ends. */
  readonly exitWithStdin: boolean;
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

/** Values of which there are several: by what stands for them in a flag, where that does not name them itself, as `on|off` does. */
const choices: Readonly<Record<string, readonly string[]>> = {
  PRESET: presetNames,
  DIALECT: dialectNames,
  PROTOCOL: transferProtocols,
  ROLE: engineRoles,
};

/** An option's default as text; undefined where others decide, or nothing does. */
function shownDefault(target: Target): string | undefined {
  let value: unknown = defaults;
  for (const key of target.split(".")) value = (value as Readonly<Record<string, unknown>> | undefined)?.[key];
  if (typeof value === "boolean") return value ? "on" : "off";
  if (typeof value === "number") return value < 1e9 ? String(value) : value.toExponential().replace("+", "");
  return value === "" ? "empty" : typeof value === "string" ? value : undefined;
}

/**
 * Every flag with what it takes, the option that it sets, and what that is, by the headings of `--help`. `N` is a number, `NAME...` may
 * be repeated. The program itself takes what sets no option.
 */
const groups: Readonly<Record<string, Readonly<Record<string, readonly [sets: Target | undefined, help: string]>>>> = {
  Where: {
    "--engines N": ["engines", "engines in this process, each on its own port"],
    "--host ADDRESS": ["host", "address to listen on"],
    "--port N": ["port", "port of the first engine, counting up; 0 for free ports"],
  },
  What: {
    "--preset PRESET": ["preset", "parameters of a real engine; see below"],
    "--model NAME...": ["models", `served model name; repeatable (${defaults.models[0]})`],
    "--flavour vllm|sglang": ["parameters.flavour", "engine whose cache and HTTP API are simulated (preset)"],
    "--blocks N": ["parameters.blockCount", "KV blocks (preset)"],
    "--block-size N": ["parameters.blockSize", "tokens per block (preset)"],
    "--cpu-blocks N": ["parameters.cpuBlocks", "CPU memory blocks (0 or preset)"],
    "--cpu-load-ms N": ["parameters.cpuLoadMsPerBlock", "engine time to load a CPU block into KV memory (0)"],
    "--cpu-writes prompt|all": [
      "parameters.cpuWrites",
      "blocks that vLLM offloads to CPU memory once computed: those of prompts, or all (prompt)",
    ],
    "--cpu-chunk-blocks N": ["parameters.cpuChunkBlocks", "blocks that vLLM offloads and loads together (1)"],
    "--hicache-write-policy write_through|write_through_selective|write_back": [
      "parameters.cpuWrites",
      "pages that SGLang copies to CPU memory: computed, used twice, or evicted (write_through)",
    ],
    "--window N": [
      "parameters.windowTokens",
      "tokens of the sliding window of a hybrid model, in a cache group of its own (0, none)",
    ],
    "--states N": ["parameters.stateGroups", "cache groups of states of a hybrid model, as of Mamba (0)"],
    "--retention replay|dense": [
      "parameters.retention",
      "where windows and states are kept: at ends of prompts and where two part, or everywhere (replay)",
    ],
    "--max-running N": ["parameters.maxRunning", "maximum running sequences (preset)"],
    "--max-batched-tokens N": ["parameters.maxBatchedTokens", "tokens per step (preset)"],
    "--natural-length-mean N": ["naturalLengthMean", "mean output tokens without a limit; 0 always reaches the limit"],
    "--api-key K": ["apiKey", "require Authorization: Bearer K"],
    "--tokenizer DIR": [
      "tokenizer",
      `folder of a model with tokenizer and chat template, or ${shippedModelName}; without it a token is four bytes`,
    ],
    "--media-tokens N": ["mediaTokens", "placeholder tokens per image, audio or video; 0 refuses them"],
    "--lora NAME...": ["adapters", "LoRA adapter served under this name; repeatable"],
    "--lora-slots N": ["parameters.adapterSlots", "maximum adapters loaded and in use at once (all)"],
    "--lora-load-ms N": ["parameters.adapterLoadMs", "engine time to load an adapter; all requests wait (0)"],
  },
  "KV events": {
    "--kv-events DIALECT": [
      "kvEvents.dialect",
      `publish events over ZMQ in this encoding: auto (that of the flavour), ${dialectNames.slice(1).join(", ")}`,
    ],
    "--kv-events-port N": [
      "kvEvents.port",
      "port of the first engine's events, its replay on the next one, the other engines two ports on; 0 for free ports",
    ],
    "--kv-events-replay on|off": ["kvEvents.replay", "answer replay requests"],
    "--kv-events-buffer N": ["kvEvents.bufferSteps", "messages kept for replay"],
    "--kv-events-topic TOPIC": ["kvEvents.topic", "first frame of every message"],
    "--self-describing-kv-events": [
      "selfDescribingKvEvents",
      "events of vLLM's CPU memory have tokens, like those of KV memory",
    ],
  },
  "Disaggregated prefill and decode": {
    "--kv-transfer PROTOCOL": ["transfer.protocol", `KV transfer protocol: ${transferProtocols.join(", ")}`],
    "--role ROLE": ["transfer.role", "role of these engines: prefill, decode or both"],
    "--kv-transfer-port N": [
      "transfer.port",
      "side channel and bootstrap server of the first engine, counting up; 0 for free ports",
    ],
    "--kv-transfer-bytes-per-token N": ["transfer.bytesPerToken", "KV bytes per token (preset)"],
    "--kv-transfer-bytes-per-second N": ["transfer.linkBytesPerSecond", "bandwidth between engines"],
    "--kv-transfer-setup-ms N": ["transfer.setupMs", "engine time before the first byte"],
    "--kv-transfer-timeout-ms N": ["transfer.timeoutMs", "real-time timeout of unfetched blocks and waiting engines"],
    [`--kv-transfer-failure ${loadFailurePolicies.join("|")}`]: [
      "transfer.onFailure",
      "vLLM's reaction to missing blocks",
    ],
    "--kv-storage URL": [
      "transfer.storageUrl",
      "side channel of the engine with the blocks of shared-storage (the first one here)",
    ],
    "--kv-pool-events DIALECT": [
      "transfer.poolEvents.dialect",
      "publish the blocks of shared-storage over ZMQ, like a separate pool",
    ],
    "--kv-pool-events-port N": [
      "transfer.poolEvents.port",
      "port of these events, their replay on the next one; 0 for free ports",
    ],
  },
  "Pull from other engines' CPU memory": {
    "--p2p": ["p2p", "requests may name a source (kv_transfer_params.remote_kv_source); needs CPU memory"],
    "--p2p-port N": ["p2p.port", "side channel of the first engine, counting up; 0 for free ports"],
    "--p2p-bytes-per-token N": ["p2p.bytesPerToken", "KV bytes per token (preset)"],
    "--p2p-bytes-per-second N": ["p2p.bytesPerSecond", "total send bandwidth of an engine (preset)"],
    "--p2p-pair-bytes-per-second N": ["p2p.pairBytesPerSecond", "send bandwidth to one engine (preset)"],
    "--p2p-latency-ms N": ["p2p.latencyMs", "engine time before the first byte (preset)"],
    "--p2p-transfers N": ["p2p.maxTransfers", "concurrent transfers of an engine; others wait"],
    "--p2p-queue N": ["p2p.maxQueued", "pulls queued at an engine; others are rejected"],
    "--p2p-timeout-ms N": ["p2p.timeoutMs", "real-time timeout of a pull"],
  },
  Whose: {
    "--behaviour NAME...": [
      "behaviours",
      "a behaviour of a real release, or a release for all of its behaviours; repeatable",
    ],
  },
  How: {
    "--speed X": ["speed", "engine time per real time"],
    "--seed N": ["seed", "seed of hashes and random faults"],
    "--json": [undefined, "print one JSON object with the URLs"],
    "--exit-with-stdin": [undefined, "exit when standard input ends, as it does with the program that holds it"],
    "-h, --help": [undefined, "print this"],
  },
};

const flags = Object.values(groups).flatMap((group) =>
  Object.entries(group).map(([term, [sets]]) => {
    const [, short, name = "", takes = ""] = /^(?:-(\w), )?--(\S+) ?(.*)$/.exec(term) ?? [];
    return { short, name, takes, sets };
  }),
);

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
  const known = flags.map(({ name, short, takes }) => {
    const type = takes === "" ? ("boolean" as const) : ("string" as const);
    return [name, { type, multiple: takes.endsWith("..."), ...(short && { short }) }] as const;
  });
  const { values } = parseArgs({ args: [...args], options: Object.fromEntries(known), strict: true });
  const options: Record<string, unknown> = { parameters: {} };
  for (const { name, takes, sets } of flags) {
    const written = values[name];
    if (written === undefined || sets === undefined) continue;
    for (const [beginning, other] of Object.entries(needed)) {
      if (!sets.startsWith(beginning) || name === other || Object.hasOwn(values, other)) continue;
      throw new RangeError(`--${name} needs --${other}`);
    }
    // Without a value it turns a section on.
    const switched = name === needed["p2p."] ? {} : written;
    setAt(options, sets.split("."), typeof written === "string" ? read(written, name, takes) : switched);
  }
  const isSet = (name: string): boolean => values[name] === true;
  return { showHelp: isSet("help"), json: isSet("json"), exitWithStdin: isSet("exit-with-stdin"), options };
}

/** @throws RangeError that names the flag */
function read(written: string, flag: string, takes: string): unknown {
  if (takes === "N" || takes === "X") {
    if (written.trim() !== "" && Number.isFinite(Number(written))) return Number(written);
    throw new RangeError(`--${flag} is a number, not "${written}"`);
  }
  const names = takes.includes("|") ? takes.split("|") : choices[takes];
  if (names?.includes(written) === false) {
    const any = names.length === 2 ? names.join(" or ") : `one of ${names.join(", ")}`;
    throw new RangeError(`--${flag} is ${any}, not "${written}"`);
  }
  return takes === "on|off" ? written === "on" : written;
}

function setAt(section: Record<string, unknown>, [key = "", ...rest]: readonly string[], value: unknown): void {
  if (rest.length > 0) section[key] ??= {};
  if (rest.length > 0) setAt(section[key] as Record<string, unknown>, rest, value);
  else section[key] = value;
}

/** Columns of the longest term that shares its line with what it means. */
const termColumns = 26;

/** The text of `--help`. @param width in characters */
export function helpText(width = process.stdout.columns ?? 80): string {
  const item = (term: string, says: string): string => layOutHelpItem(term, termColumns, says, width);
  const sections = [
    ...Object.entries(groups).map(([title, group]) => {
      const items = Object.entries(group).map(([term, [sets, help]]) => {
        const usual = sets && shownDefault(sets);
        return item(term.replace("...", ""), usual === undefined ? help : `${help} (${usual})`);
      });
      return [title, ...items];
    }),
    ["Presets", ...presetNames.map((name) => item(name, enginePresets[name].description))],
    ["Behaviours of real releases", ...behaviours.map(({ name, summary }) => item(name, summary))],
  ];
  return `Usage: espalier-engine-sim [flags]

Simulated LLM engines behind HTTP servers like vLLM's or SGLang's.
Faults are injected and state is read under /sim/ of each engine.

${sections.map((lines) => lines.join("\n")).join("\n\n")}
`;
}
