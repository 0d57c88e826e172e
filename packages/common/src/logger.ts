/** Named values that accompany a log line. Never a prompt, a completion, a key or a body. */
export type LogFields = Readonly<Record<string, unknown>>;

/** Structured logging as the code may use it. */
export interface Logger {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
  /** A logger that adds `fields` to every line. */
  child(fields: LogFields): Logger;
}

const ignore = (): void => {};

/** Discards everything. */
export const silentLogger: Logger = {
  debug: ignore,
  info: ignore,
  warn: ignore,
  error: ignore,
  child: () => silentLogger,
};
