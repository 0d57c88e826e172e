import { type Clock, type Scheduler, systemClock, systemScheduler } from "@espalier/common";
import { type EngineParameters, enginePresets, type PresetName, presetNames } from "@espalier/engine-model";

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
  readonly clock?: Clock;
  readonly scheduler?: Scheduler;
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
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** Engines of one process. */
export const maxEngines = 256;

export const defaultPreset: PresetName = "a10g-7b";
const defaultModel = "sim-model";

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
  check(
    [model, ...aliases].every((name) => name !== ""),
    "model must not be empty",
  );
  return {
    engines,
    host: options.host ?? "127.0.0.1",
    port,
    models: [model, ...aliases],
    parameters: { ...enginePresets[preset].parameters, ...options.parameters },
    speed,
    seed,
    naturalLengthMean,
    apiKey: options.apiKey,
    clock: options.clock ?? systemClock,
    scheduler: options.scheduler ?? systemScheduler,
  };
}

const isWhole = (value: number, min: number, max: number): boolean =>
  Number.isInteger(value) && value >= min && value <= max;

function check(holds: boolean, message: string): void {
  if (!holds) throw new RangeError(message);
}
