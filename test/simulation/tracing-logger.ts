import type { LogFields, Logger } from "@espalier/core";

/** Writes every line of a logger and of its children, for people. */
export function createTracingLogger(write: (line: string) => void): Logger {
  const at = (base: LogFields): Logger => {
    const line = (message: string, fields: LogFields = {}): void =>
      write(`${message} ${JSON.stringify({ ...base, ...fields })}`);
    return { debug: line, info: line, warn: line, error: line, child: (fields) => at({ ...base, ...fields }) };
  };
  return at({});
}
