import { isJsonObject, type JsonObject, parseJson } from "@espalier/core";

/** The value if it is an object, else an empty object, so that nested fields can be read safely. */
export function objectOf(value: unknown): JsonObject {
  return isJsonObject(value) ? value : {};
}

export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

export function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** The string values, by key. */
export function textsOf(value: unknown): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(objectOf(value)).filter((entry): entry is [string, string] => typeof entry[1] === "string"),
  );
}

export function portOf(value: unknown): number | undefined {
  const port = typeof value === "string" && /^\d{1,5}$/.test(value) ? Number(value) : value;
  return Number.isInteger(port) && (port as number) >= 1 && (port as number) <= 65_535 ? (port as number) : undefined;
}

/** An object of the API. */
export interface KubernetesObject {
  /** Its name in its namespace. */
  readonly name: string;
  readonly version: string;
  readonly body: unknown;
}

export type WatchEvent =
  | { readonly kind: "set" | "deleted"; readonly object: KubernetesObject }
  | { readonly kind: "bookmark"; readonly version: string }
  | { readonly kind: "error"; readonly status: number; readonly message: string };

/** @returns undefined if it has no name or no version */
export function readObject(body: unknown): KubernetesObject | undefined {
  const metadata = objectOf(objectOf(body).metadata);
  const [name, version] = [textOf(metadata.name), textOf(metadata.resourceVersion)];
  return name === undefined || version === undefined ? undefined : { name, version, body };
}

/** @returns undefined if the line is not an event */
export function parseWatchLine(line: string): WatchEvent | undefined {
  const { type, object: body } = objectOf(parseJson(line));
  if (type === "ERROR") {
    const { code, message } = objectOf(body);
    return { kind: "error", status: Number(code) || 0, message: textOf(message) ?? "an error without a message" };
  }
  if (type === "BOOKMARK") {
    const version = textOf(objectOf(objectOf(body).metadata).resourceVersion);
    return version === undefined ? undefined : { kind: "bookmark", version };
  }
  const object = readObject(body);
  if (!object) return undefined;
  if (type === "ADDED" || type === "MODIFIED") return { kind: "set", object };
  return type === "DELETED" ? { kind: "deleted", object } : undefined;
}
