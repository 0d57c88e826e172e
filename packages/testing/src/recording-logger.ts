import type { LogFields, Logger } from "@espalier/common";

export interface LogLine {
  readonly level: "debug" | "info" | "warn" | "error";
  readonly message: string;
  readonly fields: LogFields;
}

/** A logger that keeps its lines, and the lines of its children, for assertions. */
export function createRecordingLogger(): Logger & { readonly lines: readonly LogLine[] } {
  const lines: LogLine[] = [];
  const at = (base: LogFields): Logger => {
    const write =
      (level: LogLine["level"]) =>
      (message: string, fields: LogFields = {}): void => {
        lines.push({ level, message, fields: { ...base, ...fields } });
      };
    return {
      debug: write("debug"),
      info: write("info"),
      warn: write("warn"),
      error: write("error"),
      child: (fields) => at({ ...base, ...fields }),
    };
  };
  return { ...at({}), lines };
}
