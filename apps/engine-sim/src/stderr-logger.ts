import type { LogFields, Logger } from "@espalier/common";

/** Writes warnings and errors to the standard error output, a line each. */
export function createStderrLogger(common: LogFields = {}): Logger {
  const write = (message: string, fields: LogFields = {}): void => {
    const all = Object.entries({ ...common, ...fields }).map(([name, value]) => ` ${name}=${textOf(value)}`);
    process.stderr.write(`espalier-engine-sim: ${message}${all.join("")}\n`);
  };
  const ignore = (): void => {};
  return {
    debug: ignore,
    info: ignore,
    warn: write,
    error: write,
    child: (fields) => createStderrLogger({ ...common, ...fields }),
  };
}

const textOf = (value: unknown): string =>
  value instanceof Error ? value.message : typeof value === "string" ? value : JSON.stringify(value);
