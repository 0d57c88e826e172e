/** Codes of ECMA-48 for the level's name. */
const colours: Readonly<Record<string, number>> = { debug: 90, info: 36, warn: 33, error: 31 };

/**
 * Turns one JSON line of the logger into one line for a terminal: time of day in UTC, level, message, fields.
 * Errors show as `CODE: message` with the place that threw them. Control characters are escaped, so that no field can
 * move the cursor or start another line.
 *
 * @example `12:00:00.123Z WARN  engine is down engine=a failures=3`
 */
export function formatPretty(jsonLine: string, isColoured: boolean): string {
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
