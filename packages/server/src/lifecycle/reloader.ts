import {
  asEspalierError,
  type Clock,
  EspalierError,
  gaugeOf,
  type Logger,
  type Meter,
  type Startable,
} from "@espalier/core";
import { closed, type Described, Type } from "@espalier/core/schema";
import type { CompiledConfig } from "../config/index.ts";
import type { Reconfiguration } from "./live-config.ts";

/** Where reloads read the configuration. */
export interface ConfigSource {
  /** The file to watch; undefined for none. */
  readonly file: string | undefined;
  /** @throws EspalierError `config_invalid` or `config_unreadable` */
  read(): CompiledConfig;
}

/** The outcome of a reload. After a failed one the old configuration stays in force. */
export const reloadOutcome = closed(
  {
    applied: Type.Array(Type.String(), { description: "Settings applied by the reload." }),
    needsRestart: Type.Array(Type.String(), { description: "Settings that need a restart." }),
    trigger: Type.Enum(["file", "signal", "admin"]),
    atMs: Type.Number({ description: "Milliseconds since the Unix epoch." }),
    error: Type.Optional(
      closed(
        { code: Type.String(), message: Type.String() },
        { description: "Error of a failed reload; the previous configuration stays in use." },
      ),
    ),
  },
  { title: "ReloadOutcome" },
);

export type ReloadOutcome = Described<typeof reloadOutcome>;
/** What caused a reload. */
type ReloadTrigger = ReloadOutcome["trigger"];

export interface Reloader extends Startable {
  /** Never throws: errors are in the outcome. */
  reload(trigger: ReloadTrigger): ReloadOutcome;
  /** The last reload that changed something or failed; undefined before the first. */
  readonly last: ReloadOutcome | undefined;
}

export interface ReloaderOptions {
  /** Undefined when an embedding program made the configuration. */
  readonly source: ConfigSource | undefined;
  readonly apply: (config: CompiledConfig) => Reconfiguration;
  /** Whether the configuration in force came from a blank file. */
  readonly isBlank: () => boolean;
  /** Calls back when the file may have changed. Returns a function that stops watching. */
  readonly watch: (file: string, onChange: () => Promise<void>) => () => Promise<void>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly meter: Meter;
}

const blankMessage =
  "The configuration file became empty; the previous configuration stays in use. For no engines, write `engines: []`.";

export function createReloader(options: ReloaderOptions): Reloader {
  const { source, clock, logger } = options;
  const meters = createReloadMeters(options.meter);
  let last: ReloadOutcome | undefined;
  let unwatch = async (): Promise<void> => {};

  const attempt = (trigger: ReloadTrigger): ReloadOutcome => {
    const atMs = clock.wallMs();
    try {
      if (!source) throw new EspalierError("config_unreadable", "This router has no configuration file to reload.");
      const loaded = source.read();
      // A file is blank while it is being copied or when its volume is full. That does not mean that no engines are
      // wanted.
      if (loaded.isFileBlank && !options.isBlank()) throw new EspalierError("config_invalid", blankMessage);
      return { trigger, atMs, ...options.apply(loaded), error: undefined };
    } catch (thrown) {
      const { code, message } = asEspalierError(thrown);
      return { trigger, atMs, applied: [], needsRestart: [], error: { code, message } };
    }
  };
  /** The file is checked every few seconds, so an unchanged outcome is not reported again. */
  const isAsBefore = ({ trigger, applied, needsRestart, error }: ReloadOutcome): boolean =>
    trigger === "file" &&
    applied.length === 0 &&
    needsRestart.join() === (last?.needsRestart ?? []).join() &&
    error?.message === last?.error?.message;

  const reload = (trigger: ReloadTrigger): ReloadOutcome => {
    const outcome = attempt(trigger);
    if (isAsBefore(outcome)) return outcome;
    last = outcome;
    meters.ended(outcome);
    const { applied, needsRestart, error } = outcome;
    if (error) logger.error("configuration not reloaded; previous one stays in use", { trigger, error });
    else logger.info("configuration reloaded", { trigger, applied });
    if (needsRestart.length > 0) logger.warn("configuration changes need a restart", { needsRestart });
    return outcome;
  };
  return {
    reload,
    get last() {
      return last;
    },
    async start() {
      meters.started(clock.wallMs());
      if (source?.file === undefined) return;
      unwatch = options.watch(source.file, async () => {
        reload("file");
      });
    },
    stop: () => unwatch(),
  };
}

function createReloadMeters(meter: Meter) {
  const reloads = meter.counter(
    "espalier_config_reloads_total",
    "Configuration reloads that applied a change or failed.",
    ["outcome"],
  );
  const series = { applied: reloads.series("applied"), failed: reloads.series("failed") };
  const isGood = gaugeOf(
    meter,
    "espalier_config_last_reload_successful",
    "1 if the last configuration reload succeeded, else 0.",
  );
  const atSeconds = gaugeOf(
    meter,
    "espalier_config_applied_timestamp_seconds",
    "Time of the last applied configuration, in Unix time.",
  );
  return {
    started(wallMs: number): void {
      isGood(1);
      atSeconds(wallMs / 1_000);
    },
    ended({ error, atMs }: ReloadOutcome): void {
      isGood(error ? 0 : 1);
      series[error ? "failed" : "applied"].add(1);
      if (!error) atSeconds(atMs / 1_000);
    },
  };
}
