import { type Clock, type Logger, type Scheduler, silentLogger, systemClock, systemScheduler } from "@espalier/common";
import { type EngineParameters, enginePresets, type PresetName, presetNames } from "@espalier/engine-model";
import { maxAdapters } from "./engine/adapter-registry.ts";
import { type KvEventOptions, type ResolvedKvEvents, resolveKvEvents } from "./events/kv-event-options.ts";
import { type ResolvedTransfer, resolveTransfer, type TransferOptions } from "./transfer/transfer-options.ts";

/** What simulated engines are asked to be. */
export interface EngineSimOptions {
  /** How many, each on its own port; 1 by default. */
  readonly engines?: number;
  /** 127.0.0.1 by default. */
  readonly host?: string;
  /** Port of the first engine, the others count up from it; 0, the default, for any free ports. */
  readonly port?: number;
  /** Where the parameters come from; `a10g-7b` by default. */
  readonly preset?: PresetName;
  /** Names that the model goes by; `sim-model` by default. */
  readonly models?: readonly string[];
  /** Parameters that differ from the preset. `flavour` also chooses whose HTTP interface is imitated. */
  readonly parameters?: Partial<EngineParameters>;
  /** Engine milliseconds per real millisecond; 1 by default. */
  readonly speed?: number;
  /** What hashes and random faults start from; 0 by default. */
  readonly seed?: number;
  /** Mean number of tokens of an answer that nothing limits; 0, the default, for answers that reach their limit. */
  readonly naturalLengthMean?: number;
  /** What callers must send as `Authorization: Bearer`; by default nothing. */
  readonly apiKey?: string;
  /** KV events over ZMQ; none by default. */
  readonly kvEvents?: KvEventOptions;
  /** Prefill and decode on different engines; by default each request is computed by one. */
  readonly transfer?: TransferOptions;
  /**
   * Folder of a model whose tokenizer and chat template are used, or `espalier-tiny` for the small one that comes along; by
   * default tokens are four bytes each.
   */
  readonly tokenizer?: string;
  /** Names of LoRA adapters of the first model; none by default. */
  readonly adapters?: readonly string[];
  readonly clock?: Clock;
  readonly scheduler?: Scheduler;
  /** Hears of sockets that fail; silent by default. */
  readonly logger?: Logger;
}

/** The same with every default filled in. */
export interface ResolvedOptions {
  readonly engines: number;
  readonly host: string;
  readonly port: number;
  readonly models: readonly [string, ...string[]];
  readonly parameters: EngineParameters;
  readonly speed: number;
  readonly seed: number;
  readonly naturalLengthMean: number;
  readonly apiKey: string | undefined;
  readonly kvEvents: ResolvedKvEvents | undefined;
  readonly transfer: ResolvedTransfer | undefined;
  readonly tokenizer: string | undefined;
  readonly adapters: readonly string[];
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
}

/** Engines of one process. */
const maxEngines = 256;

export const defaultPreset: PresetName = "a10g-7b";
const defaultModel = "sim-model";
const defaultHost = "127.0.0.1";

/** @throws RangeError naming the option that makes no sense */
export function resolveOptions(options: EngineSimOptions): ResolvedOptions {
  const { engines = 1, port = 0, preset = defaultPreset, speed = 1, seed = 0, naturalLengthMean = 0 } = options;
  check(isWhole(engines, 1, maxEngines), `engines must be a whole number from 1 to ${maxEngines}`);
  check(isWhole(port, 0, 65_535), "port must be a whole number from 0 to 65535");
  check(port === 0 || port + engines <= 65_536, "the ports of the engines must not pass 65535");
  check(presetNames.includes(preset), `preset must be one of ${presetNames.join(", ")}`);
  check(Number.isFinite(speed) && speed > 0, "speed must be a number above 0");
  check(Number.isSafeInteger(seed), "seed must be a whole number");
  check(Number.isFinite(naturalLengthMean) && naturalLengthMean >= 0, "natural-length-mean must be a number from 0");
  const [model = defaultModel, ...aliases] = options.models ?? [];
  const { adapters = [], host = defaultHost } = options;
  const names = [model, ...aliases, ...adapters];
  check(!names.includes(""), "model and lora must not be empty");
  check(adapters.length <= maxAdapters, `at most ${maxAdapters} times lora`);
  check(
    new Set(names).size === names.length || adapters.length === 0,
    "lora must be another name than every model and lora",
  );
  const parameters = { ...enginePresets[preset].parameters, ...options.parameters };
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
    apiKey: options.apiKey,
    kvEvents: options.kvEvents && resolveKvEvents(options.kvEvents, { flavour, engines, host }),
    transfer: options.transfer && resolveTransfer(options.transfer, { engines, preset, flavour, host }),
    tokenizer: options.tokenizer,
    adapters,
    clock: options.clock ?? systemClock,
    scheduler: options.scheduler ?? systemScheduler,
    logger: options.logger ?? silentLogger,
  };
}

const isWhole = (value: number, min: number, max: number): boolean =>
  Number.isInteger(value) && value >= min && value <= max;

function check(holds: boolean, message: string): void {
  if (!holds) throw new RangeError(message);
}
