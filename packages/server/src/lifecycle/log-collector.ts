import type { LogFields, Logger } from "@espalier/core";

/** A line of a log. */
export interface LoggedLine {
  readonly message: string;
  readonly fields: LogFields;
}

/** Further lines are dropped. */
export const maxLines = 4_096;

/** A logger that keeps warnings and errors. */
export function createLogCollector(lines: LoggedLine[], own: LogFields = {}): Logger {
  const keep = (message: string, fields: LogFields = {}): void => {
    if (lines.length < maxLines) lines.push({ message, fields: { ...own, ...fields } });
  };
  const ignore = (): void => {};
  return {
    ...{ debug: ignore, info: ignore, warn: keep, error: keep },
    child: (fields) => createLogCollector(lines, { ...own, ...fields }),
  };
}
