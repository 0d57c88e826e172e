import { type Clock, type LogFields, type Logger, systemClock } from "@espalier/common";
import { destination, pino } from "pino";
import { cleanFields, cleanText } from "./clean.ts";

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
}

/** A logger whose level can change at run time; its children follow. */
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

/** Takes the logger's lines. */
interface Sink {
  write(line: string): void;
  /** Calls `report` with the number of dropped lines after the buffer is written. */
  onDropped(report: (lines: number) => void): void;
}

/**
 * Writes to a file descriptor in the background, in order, and flushes when the process exits. A failing descriptor
 * (full disk, closed terminal) does not end the process: its lines stay buffered, up to the limit, and are tried again
 * with the next line.
 */
function openDescriptorSink(descriptor: number, maxBufferedBytes = 4 * 1024 * 1024): Sink {
  const stream = destination({ dest: descriptor, sync: false, maxLength: maxBufferedBytes });
  stream.on("error", () => {});
  return {
    write: (line) => stream.write(line),
    onDropped(report) {
      let dropped = 0;
      stream.on("drop", () => dropped++);
      stream.on("drain", () => {
        if (dropped === 0) return;
        const lines = dropped;
        dropped = 0;
        report(lines);
      });
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

function escapeControls(text: string): string {
  return text.replace(controls, (found) => `\\u${found.codePointAt(0)?.toString(16).padStart(4, "0")}`);
}
