export type Json = Readonly<Record<string, unknown>>;

/** The object itself, or an empty one for what is none, so that fields of fields can be asked for. */
export function objectOf(value: unknown): Json {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
}

export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

export function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** The values that are texts, by their keys. */
export function textsOf(value: unknown): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(objectOf(value)).filter((entry): entry is [string, string] => typeof entry[1] === "string"),
  );
}

export function portOf(value: unknown): number | undefined {
  const port = typeof value === "string" && /^\d{1,5}$/.test(value) ? Number(value) : value;
  return Number.isInteger(port) && (port as number) >= 1 && (port as number) <= 65_535 ? (port as number) : undefined;
}

/** @returns undefined for what is no JSON */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
