import { isJsonObject } from "@espalier/core";
import type { CompiledConfig } from "./compiled-config.ts";
import { configSchema } from "./schema.ts";
import { sha256Of } from "./secret.ts";
import { namesInCode } from "./settings-of.ts";

/** Paths that a reload applies; a path includes everything below it. Other settings need a restart. */
const reloadablePaths = [
  ...[
    "engines",
    "discovery",
    "policy",
    "slo",
    "pools",
    "models.aliases",
    "models.splits",
    "api-keys",
    "cors",
    "session-key",
    "inject-usage",
    "resume",
  ],
  ...[
    "limits.max-nesting",
    "limits.max-concurrent-requests",
    "limits.max-body-bytes-in-flight",
    "limits.max-connections",
    "limits.max-event-loop-delay",
    "limits.max-heap-share",
    "limits.max-mesh-buffer",
    "drain",
    "log.level",
  ],
  ...["mesh.secret", "mesh.accepted-secrets"],
] as const;

/** @param path keys joined by dots, as `settingPath` and `changedPaths` give it */
export function isReloadable(path: string): boolean {
  return reloadablePaths.some((one) => path === one || path.startsWith(`${one}.`) || path.startsWith(`${one}[`));
}

/**
 * Whether a running router applies a value of a new configuration on reload. Mesh authentication cannot be turned on or
 * off; a secret can only be replaced by another one.
 */
export function isAppliedOnReload(path: string, running: CompiledConfig, loaded: CompiledConfig): boolean {
  if (!isReloadable(path)) return false;
  const keepsKind = (running.mesh.secret === undefined) === (loaded.mesh.secret === undefined);
  return keepsKind || !path.startsWith("mesh.");
}

/** A digest of each value, by path: detects changes without keeping secrets. */
export type Fingerprints = ReadonlyMap<string, string>;

/** A list counts as one value. */
export function fingerprintsOf(tree: object): Fingerprints {
  const digests = new Map<string, string>();
  const walk = (value: unknown, path: string): void => {
    if (isJsonObject(value)) {
      for (const [key, below] of Object.entries(value)) walk(below, path === "" ? key : `${path}.${key}`);
    } else if (value !== undefined) {
      digests.set(path, sha256Of(JSON.stringify(value)).toString("base64"));
    }
  };
  walk(tree, "");
  return digests;
}

/** Sections by which routers decide, and the keys in them that may differ: where a host has its files, and what it reaches where. */
const sharedSections: Readonly<Record<string, readonly string[]>> = {
  policy: [],
  slo: [],
  "session-key": [],
  pools: [],
  admission: [],
  disaggregation: [],
  models: [],
  tokenizers: ["path"],
  prefix: [],
  "kv-events": ["listen"],
  "kv-pools": ["endpoint", "replay"],
};
/** Of the section `mesh`, which is about this router but for this. */
const sharedMeshKey = "events";
const digestDigits = 16;

/**
 * A digest of each section that all routers of a fleet should have alike: hexadecimal digits by the section's name. Secrets count
 * only in whether they are there.
 */
export function sharedSettings({ effective }: Pick<CompiledConfig, "effective">): ReadonlyMap<string, string> {
  const tree: Readonly<Record<string, unknown>> = effective;
  const sections = Object.entries(sharedSections).map(([name, own]) => [name, without(tree[name], own)] as const);
  const shared = [...sections, ["mesh", effective.mesh[sharedMeshKey]] as const];
  return new Map(shared.map(([name, value]) => [name, digestOf(value)]));
}

function without(value: unknown, keys: readonly string[]): unknown {
  if (Array.isArray(value)) return value.map((one: unknown) => without(one, keys));
  return isJsonObject(value) ? Object.fromEntries(Object.entries(value).filter(([key]) => !keys.includes(key))) : value;
}

/** The order of keys does not count. */
function digestOf(value: unknown): string {
  const text = JSON.stringify(value, (_, each: unknown) =>
    isJsonObject(each)
      ? Object.fromEntries(Object.entries(each).sort(([one], [other]) => (one < other ? -1 : 1)))
      : each,
  );
  return sha256Of(text).toString("hex").slice(0, digestDigits);
}

/** Paths whose values differ, in order. */
export function changedPaths(before: CompiledConfig, after: CompiledConfig): readonly string[] {
  const [old, next] = [before.fingerprints, after.fingerprints];
  const paths = new Set([...old.keys(), ...next.keys()]);
  return [...paths].filter((path) => old.get(path) !== next.get(path)).sort();
}

/** The running configuration with the reloadable settings of the loaded one. */
export function applyReload(running: CompiledConfig, loaded: CompiledConfig): CompiledConfig {
  const takes = (path: string): boolean => isAppliedOnReload(path, running, loaded);
  const { warnings, isFileBlank } = loaded;
  return {
    ...reloadablePaths.filter(takes).reduce((config, path) => {
      return withValueOf(config, loaded, namesInCode(configSchema, path.split("."))) as CompiledConfig;
    }, running),
    ...{ warnings, isFileBlank },
    effective: joinTrees(running.effective, loaded.effective, "", takes) as CompiledConfig["effective"],
    fingerprints: joinFingerprints(running.fingerprints, loaded.fingerprints, takes),
  };
}

/** A copy of an object with the value that another one has at a path. */
function withValueOf(to: object, from: object, [name = "", ...below]: readonly string[]): object {
  const values = to as Readonly<Record<string, unknown>>;
  const value = (from as Readonly<Record<string, unknown>>)[name];
  if (below.length === 0) return { ...values, [name]: value };
  return { ...values, [name]: withValueOf(values[name] as object, value as object, below) };
}

type Takes = (path: string) => boolean;

function joinTrees(running: unknown, loaded: unknown, path: string, takes: Takes): unknown {
  if (takes(path)) return loaded;
  if (!isJsonObject(running) || !isJsonObject(loaded)) return running;
  const joined = new Map<string, unknown>();
  for (const key of new Set([...Object.keys(running), ...Object.keys(loaded)])) {
    const value = joinTrees(running[key], loaded[key], path === "" ? key : `${path}.${key}`, takes);
    if (value !== undefined) joined.set(key, value);
  }
  return Object.fromEntries(joined);
}

function joinFingerprints(running: Fingerprints, loaded: Fingerprints, takes: Takes): Fingerprints {
  return new Map([...[...running].filter(([path]) => !takes(path)), ...[...loaded].filter(([path]) => takes(path))]);
}
