/** Readers of what other programs wrote, perhaps of another version: what is not as expected counts as absent. */

export type JsonObject = Readonly<Record<string, unknown>>;

export function asObject(value: unknown): JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as JsonObject) : {};
}

export function asList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

export function asText(value: unknown, otherwise = ""): string {
  return typeof value === "string" ? value : otherwise;
}

export function asTextOrNull(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

export function asNumber(value: unknown, otherwise = 0): number {
  return typeof value === "number" && Number.isFinite(value) ? value : otherwise;
}

export function asNumberOrNull(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}
