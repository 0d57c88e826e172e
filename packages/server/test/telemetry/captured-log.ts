import { createVirtualTime } from "@espalier/testing";
import { createLogger, type LevelledLogger, type LoggerOptions } from "../../src/telemetry/index.ts";

/** 2023-11-14T22:13:20.000Z, where virtual time starts. */
export const startTime = "2023-11-14T22:13:20.000Z";

interface CapturedLog {
  readonly logger: LevelledLogger;
  /** What was written, one element per write. */
  readonly written: readonly string[];
  /** The written lines, parsed. */
  lines(): Record<string, unknown>[];
}

/** A logger at virtual time 0 whose lines stay in memory. */
export function captureLog(options: Omit<LoggerOptions, "destination" | "clock"> = {}): CapturedLog {
  const written: string[] = [];
  const destination = { write: (line: string) => void written.push(line) };
  const logger = createLogger({ ...options, destination, clock: createVirtualTime().clock });
  return { logger, written, lines: () => written.map((line) => JSON.parse(line) as Record<string, unknown>) };
}
