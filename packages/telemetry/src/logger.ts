import { type Clock, type LogFields, type Logger, systemClock } from "@espalier/common";
import { pino } from "pino";
import { cleanFields, cleanText } from "./clean.ts";
import { openDescriptorSink, type Sink } from "./descriptor-sink.ts";
import { formatPretty } from "./pretty.ts";

export type LogLevel = "debug" | "info" | "warn" | "error";
export type LogFormat = "json" | "pretty";

/** Where lines go: a file descriptor, or something that takes whole lines, newline included. */
export type LogDestination = number | { write(line: string): void };

export interface LoggerOptions {
  /** Lines below this level are not written; `info` by default. */
  readonly level?: LogLevel;
  /** `json` for machines (the default), `pretty` for a terminal. */
  readonly format?: LogFormat;
  /** Whether `pretty` colours the level; no by default. */
  readonly coloured?: boolean;
  /** File descriptor 2, standard error, by default: standard output belongs to what a command prints. */
  readonly destination?: LogDestination;
  /** Most bytes that wait for a slow descriptor; lines beyond are dropped, counted and reported. 4 MiB by default. */
  readonly maxBufferedBytes?: number;
  readonly clock?: Clock;
}

/** A logger that can be told another level while it runs; its children follow. */
export interface LevelledLogger extends Logger {
  setLevel(level: LogLevel): void;
}

/**
 * A logger of one line per call: time (ISO, UTC), level, message, fields. Writing never blocks: a descriptor is written
 * in the background, and flushed when the process exits. Keys that name secrets or request content are redacted, and
 * sizes are bounded; see `cleanFields`.
 */
export function createLogger(options: LoggerOptions = {}): LevelledLogger {
  const { level = "info", format = "json", coloured = false, destination = 2, clock = systemClock } = options;
  const sink: Sink =
    typeof destination === "number"
      ? openDescriptorSink(destination, options.maxBufferedBytes)
      : { write: (line) => destination.write(line), onDropped: () => {} };
  const writer = pino(
    {
      level,
      base: null,
      timestamp: () => `,"time":"${new Date(clock.wallMs()).toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
      // Fields are plain already; pino's own serializer would look for errors among them.
      serializers: { err: (value: unknown) => value },
      ...(format === "pretty" ? { hooks: { streamWrite: (line: string) => formatPretty(line, coloured) } } : {}),
    },
    sink,
  );

  const withBindings = (bindings: Readonly<Record<string, unknown>>): Logger => {
    const at =
      (lineLevel: LogLevel) =>
      (message: string, fields?: LogFields): void => {
        if (!writer.isLevelEnabled(lineLevel)) return;
        writer[lineLevel](fields ? { ...bindings, ...cleanFields(fields) } : bindings, cleanText(message));
      };
    return {
      debug: at("debug"),
      info: at("info"),
      warn: at("warn"),
      error: at("error"),
      child: (fields) => withBindings({ ...bindings, ...cleanFields(fields) }),
    };
  };
  const logger = withBindings({});
  sink.onDropped((lines) => logger.warn("log lines were dropped: the destination is too slow", { lines }));
  const setLevel = (next: LogLevel): void => {
    writer.level = next;
  };
  return { ...logger, setLevel };
}
