import {
  type Cancel,
  type Clock,
  type LogFields,
  type Logger,
  type Scheduler,
  systemClock,
  systemScheduler,
} from "@espalier/core";
import { pino } from "pino";
import { cleanFields, cleanText } from "./clean.ts";
import { DescriptorSink } from "./descriptor-sink.ts";

export type LogLevel = "debug" | "info" | "warn" | "error";
export type LogFormat = "json" | "pretty";

/** Destination of lines: a file descriptor, or a writer of whole lines, newline included. */
export type LogDestination = number | { write(line: string): void };

export interface LoggerOptions {
  /** Lines below this level are not written; `info` by default. */
  readonly level?: LogLevel;
  /** `json` for machines (the default), `pretty` for a terminal. */
  readonly format?: LogFormat;
  /** Whether `pretty` colours the level; no by default. */
  readonly coloured?: boolean;
  /** File descriptor 2, standard error, by default: standard output is for a command's results. */
  readonly destination?: LogDestination;
  /**
   * Maximum bytes that wait for a slow descriptor; further lines are dropped, counted and reported. 4 MiB by default.
   */
  readonly maxBufferedBytes?: number;
  readonly clock?: Clock;
  readonly scheduler?: Scheduler;
}

/** A logger whose level can change at run time; its children follow. */
export interface LevelledLogger extends Logger {
  setLevel(level: LogLevel): void;
  /** Calls the listener with the number of lines that were dropped, first with those that were already. */
  onDropped(listener: (lines: number) => void): Cancel;
}

/**
 * A logger of one line per call: time (ISO, UTC), level, message, fields. Writing never blocks and never fails: a
 * descriptor is written in the background, as `DescriptorSink` says. Keys that name secrets or request content are redacted, and
 * sizes are bounded; see `cleanFields`.
 */
export function createLogger(options: LoggerOptions = {}): LevelledLogger {
  const { level = "info", format = "json", coloured = false, destination = 2, clock = systemClock } = options;
  const { scheduler = systemScheduler } = options;
  const drops = createDropCount();
  const sink =
    typeof destination === "number"
      ? new DescriptorSink({
          ...{ descriptor: destination, maxBufferedBytes: options.maxBufferedBytes, scheduler },
          dropped: (lines) => drops.add(lines),
          recovered: (lines) => logger.warn("log lines dropped: output failed or was too slow", { lines }),
        })
      : { write: (line: string) => destination.write(line) };
  const writer = pino(
    {
      level,
      base: null,
      timestamp: () => `,"time":"${new Date(clock.wallMs()).toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
      // Fields are plain already; pino's own serializer would look for errors among them.
      serializers: { err: (value: unknown) => value },
      hooks: {
        streamWrite: (line) =>
          format === "pretty" ? formatPretty(line, coloured) : `${escapeControls(line.slice(0, -1))}\n`,
      },
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
  const setLevel = (next: LogLevel): void => {
    writer.level = next;
  };
  return { ...logger, setLevel, onDropped: drops.listen };
}

function createDropCount() {
  const listeners = new Set<(lines: number) => void>();
  let total = 0;
  return {
    add(lines: number): void {
      total += lines;
      for (const listener of listeners) listener(lines);
    },
    listen(listener: (lines: number) => void): Cancel {
      if (total > 0) listener(total);
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** Codes of ECMA-48 for the level's name. */
const colours: Readonly<Record<string, number>> = { debug: 90, info: 36, warn: 33, error: 31 };

/**
 * Turns one JSON line of the logger into one line for a terminal: time of day in UTC, level, message, fields.
 * Errors show as `CODE: message` with the place that threw them. Control characters are escaped, so that no field can
 * move the cursor or start another line.
 *
 * @example `12:00:00.123Z WARN  engine is down engine=a failures=3`
 */
function formatPretty(jsonLine: string, isColoured: boolean): string {
  const { time, level, msg, ...fields } = JSON.parse(jsonLine) as Record<string, unknown>;
  const name = String(level).toUpperCase().padEnd(5);
  const parts = [String(time).slice(11), isColoured ? `\u001b[${colours[String(level)]}m${name}\u001b[39m` : name];
  if (msg !== "") parts.push(escapeControls(String(msg)));
  for (const [key, value] of Object.entries(fields)) parts.push(`${escapeControls(key)}=${formatValue(value)}`);
  return `${parts.join(" ")}\n`;
}

function formatValue(value: unknown): string {
  if (typeof value === "string") {
    return escapeControls(/^[^\s"=]+$/.test(value) ? value : JSON.stringify(value));
  }
  return escapeControls(isError(value) ? JSON.stringify(summarise(value)) : JSON.stringify(value));
}

interface ErrorFields {
  readonly name: string;
  readonly code?: string | number;
  readonly message: string;
  readonly stack: string;
}

function isError(value: unknown): value is ErrorFields {
  return typeof value === "object" && value !== null && "stack" in value && "message" in value;
}

function summarise({ name, code, message, stack }: ErrorFields): string {
  const place = /\n\s+at (.*)/.exec(stack)?.[1];
  return `${code ?? name}: ${message}${place === undefined ? "" : ` at ${place}`}`;
}

/** Controls, format characters such as those that reverse the reading direction, line and paragraph separators. */
const controls = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Escapes them as JSON does, which leaves them alone from U+007F on. */
function escapeControls(text: string): string {
  return text.replace(controls, (found) =>
    found.replace(/[\s\S]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`),
  );
}
