import { objectOf, parseJson, textOf } from "./json.ts";

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

/** @returns undefined for what is no object with a name and a version */
export function readObject(body: unknown): KubernetesObject | undefined {
  const metadata = objectOf(objectOf(body).metadata);
  const [name, version] = [textOf(metadata.name), textOf(metadata.resourceVersion)];
  return name === undefined || version === undefined ? undefined : { name, version, body };
}

/** @returns undefined for what is no event */
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
