import type { LogFields } from "@espalier/core";

/** Size limits of one log line; see `cleanFields`. */
const logBounds = {
  /** Longest string, in UTF-16 code units. */
  stringLength: 2_048,
  /** Longest stack trace, in UTF-16 code units. */
  stackLength: 8_192,
  /** Elements of an array and keys of an object. */
  entries: 50,
  /** Depth of nested objects, counting the fields themselves as the first. */
  depth: 3,
} as const;

const redacted = "[redacted]";

/** The last word of a key indicates its content: `adminKey` is a key, `tokenCount` and `bodyBytes` are numbers. */
const secretWords = new Set([
  "authorization",
  "key",
  "secret",
  "token",
  "password",
  "cookie",
  "prompt",
  "messages",
  "body",
  "content",
]);

/** Names that the line itself uses; a field with such a name gets a trailing underscore. */
const reservedNames = new Set(["level", "time", "msg"]);

/**
 * Copies fields into plain data that is safe to write. Values under keys that name secrets or the content of requests
 * are replaced. Errors keep only their code and stack. Size and depth are bounded. An object's `toJSON` method is used.
 * It never throws.
 */
export function cleanFields(fields: LogFields): Record<string, unknown> {
  const clean: Record<string, unknown> = Object.create(null);
  for (const [key, value] of Object.entries(cleanObject(fields, 1))) {
    clean[reservedNames.has(key) ? `${key}_` : key] = value;
  }
  return clean;
}

/** A message cut to the longest string of a line. */
export function cleanText(text: string, maxLength: number = logBounds.stringLength): string {
  return text.length <= maxLength ? text : `${text.slice(0, maxLength)}… (${text.length - maxLength} more)`;
}

function cleanValue(value: unknown, depth: number): unknown {
  switch (typeof value) {
    case "string":
      return cleanText(value);
    case "number":
      return Number.isFinite(value) ? value : String(value);
    case "boolean":
    case "undefined":
      return value;
    case "object":
      return value === null ? null : cleanContainer(value, depth);
    default:
      return cleanText(String(value));
  }
}

function cleanContainer(value: object, depth: number): unknown {
  try {
    if (value instanceof Error) return cleanError(value, depth);
    if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`;
    if (depth > logBounds.depth) return "[deeper]";
    if ("toJSON" in value && typeof value.toJSON === "function") return cleanValue(value.toJSON(), depth + 1);
    if (Array.isArray(value)) return cleanArray(value, depth);
    if (value instanceof Map || value instanceof Set) return `[${value.size} entries]`;
    return cleanObject(value, depth);
  } catch {
    return "[unreadable]";
  }
}

function cleanArray(values: readonly unknown[], depth: number): unknown[] {
  const clean = values.slice(0, logBounds.entries).map((value) => cleanValue(value, depth + 1));
  if (values.length > logBounds.entries) clean.push(`… (${values.length - logBounds.entries} more)`);
  return clean;
}

function cleanObject(value: object, depth: number): Record<string, unknown> {
  const clean: Record<string, unknown> = Object.create(null);
  const keys = Object.keys(value);
  for (const key of keys.slice(0, logBounds.entries)) clean[key] = cleanEntry(value, key, depth);
  if (keys.length > logBounds.entries) clean["…"] = `${keys.length - logBounds.entries} more`;
  return clean;
}

function cleanEntry(owner: object, key: string, depth: number): unknown {
  if (isSecret(key)) return redacted;
  try {
    return cleanValue((owner as Readonly<Record<string, unknown>>)[key], depth + 1);
  } catch {
    return "[unreadable]";
  }
}

function isSecret(key: string): boolean {
  const lastWord = /([A-Z]?[a-z0-9]+|[A-Z0-9]+)[^A-Za-z0-9]*$/.exec(key)?.[1] ?? key;
  return secretWords.has(lastWord.toLowerCase());
}

function cleanError(error: Error, depth: number): Record<string, unknown> {
  const code = (error as { readonly code?: unknown }).code;
  const goesDeeper = depth <= logBounds.depth;
  return {
    name: cleanText(error.name),
    ...(typeof code === "string" || typeof code === "number" ? { code } : {}),
    message: cleanText(error.message),
    stack: cleanText(error.stack ?? "", logBounds.stackLength),
    ...(goesDeeper && error.cause !== undefined ? { cause: cleanValue(error.cause, depth + 1) } : {}),
    ...(goesDeeper && error instanceof AggregateError ? { errors: cleanArray(error.errors, depth) } : {}),
  };
}
