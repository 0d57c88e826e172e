import { isJsonObject, type JsonObject } from "@espalier/core";
import { type Path, type Problem, problemsError } from "@espalier/server";
import { findEmbedded } from "../embedded.ts";
import { llmdPlugins, type PluginRule } from "./plugins.ts";

export interface LlmdPlugin {
  readonly name: string;
  readonly type: string;
  readonly parameters: JsonObject;
  /** Absent for a plugin that is used without being listed. */
  readonly path: Path | undefined;
  /** Undefined for a type that llm-d's own repository does not have. */
  readonly rule: PluginRule | undefined;
}

export interface LlmdProfile {
  readonly name: string;
  readonly path: Path;
  readonly plugins: readonly { readonly plugin: LlmdPlugin; readonly weight: number; readonly path: Path }[];
}

/** An `EndpointPickerConfig`, with references resolved and llm-d's own defaults for profiles and weights. */
export interface LlmdConfig {
  readonly plugins: readonly LlmdPlugin[];
  readonly profiles: readonly LlmdProfile[];
  readonly gates: ReadonlyMap<string, boolean>;
  readonly flowControl: JsonObject | undefined;
  readonly dataLayer: JsonObject | undefined;
  /** What the requests are parsed with; empty for llm-d's default. */
  readonly parsers: readonly LlmdPlugin[];
  /** Undefined for llm-d's default, a utilization detector with its defaults. */
  readonly detector: LlmdPlugin | undefined;
  readonly discovery: LlmdPlugin | undefined;
  /** Keys that an `EndpointPickerConfig` does not have. */
  readonly unknown: readonly Path[];
  find(name: string): LlmdPlugin | undefined;
  /** `FILE:LINE:COLUMN` */
  locate(path: Path): string | undefined;
}

const kind = "EndpointPickerConfig";
const apiVersions = ["llm-d.ai/v1", "llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1"];
/** The chart's value that holds the configuration as a section, without its kind. */
const chartKey = "pluginsConfig";
const defaultWeight = 1;
/** In the order of llm-d's schema. `saturationDetector` and `parser` are its older places. */
const keys = [
  ...["apiVersion", "kind", "metadata", "featureGates", "plugins", "schedulingProfiles", "dataLayer", "flowControl"],
  ...["requestHandler", "saturationDetector", "parser"],
];
/** Kinds that take part in a profile that is not written. */
const profileKinds: readonly string[] = ["scorer", "filter", "picker"];

/**
 * Reads llm-d's configuration.
 *
 * @throws EspalierError `config_invalid` with the place of every mistake
 */
export function readLlmdConfig(text: string, file: string): LlmdConfig {
  const { tree, locate } = findEmbedded(text, file, {
    what: kind,
    marker: kind,
    isOne: (section, name) => section.kind === kind || (name === chartKey && Array.isArray(section.plugins)),
    refuse: (section) => (section ? wrongKind(section) : `there is no ${kind} in it`),
  });
  const reader = new Reader();
  const plugins = reader.list(tree, "plugins").map(([entry, path]) => reader.plugin(entry, path));
  const names = new Map<string, LlmdPlugin>();
  for (const plugin of plugins) {
    if (names.has(plugin.name)) reader.refuse([...(plugin.path ?? [])], `the name ${plugin.name} appears twice`);
    names.set(plugin.name, plugin);
  }
  const find = (name: string): LlmdPlugin | undefined => names.get(name) ?? unlisted(name);
  const refer = (entry: unknown, path: Path): LlmdPlugin | undefined => {
    const name = reader.text(entry, "pluginRef", path);
    if (name === undefined) return undefined;
    const plugin = find(name);
    if (!plugin) reader.refuse([...path, "pluginRef"], `no plugin has the name ${JSON.stringify(name)}`);
    return plugin;
  };
  const written = reader.list(tree, "schedulingProfiles").map(([entry, path]): LlmdProfile => {
    const members = reader.list(entry, "plugins", path).flatMap(([member, memberPath]) => {
      const plugin = refer(member, memberPath);
      const weight = reader.number(member, "weight", memberPath) ?? defaultWeight;
      return plugin ? [{ plugin, weight, path: memberPath }] : [];
    });
    return { name: reader.text(entry, "name", path) ?? "", path, plugins: members };
  });
  const flowControl = reader.section(tree, "flowControl");
  const dataLayer = reader.section(tree, "dataLayer");
  const handler = reader.section(tree, "requestHandler");
  const parsers = reader.list(handler ?? {}, "parsers", ["requestHandler"]).map(([entry, path]) => refer(entry, path));
  const olderParser = reader.section(tree, "parser");
  if (parsers.length === 0 && olderParser) parsers.push(refer(olderParser, ["parser"]));
  const detectors = [
    [reader.section(flowControl ?? {}, "saturationDetector", ["flowControl"]), ["flowControl", "saturationDetector"]],
    [reader.section(tree, "saturationDetector"), ["saturationDetector"]],
  ] as const;
  const [detector] = detectors.flatMap(([entry, path]) => (entry?.pluginRef === undefined ? [] : [refer(entry, path)]));
  const discovered = reader.section(dataLayer ?? {}, "discovery", ["dataLayer"]);
  // `llm-d.ai/v1` has a section for what is discovered.
  const endpoints = reader.section(discovered ?? {}, "endpoints", ["dataLayer", "discovery"]);
  const discovery = endpoints
    ? refer(endpoints, ["dataLayer", "discovery", "endpoints"])
    : discovered && refer(discovered, ["dataLayer", "discovery"]);
  const gates = reader.gates(tree);
  if (reader.problems.length > 0) throw problemsError(reader.problems, locate);
  return {
    plugins,
    profiles: written.length > 0 ? written : [defaultProfile(plugins)],
    gates,
    flowControl,
    dataLayer,
    parsers: parsers.filter((plugin) => plugin !== undefined),
    detector: detector ?? names.get("utilization-detector"),
    discovery,
    unknown: Object.keys(tree)
      .filter((key) => !keys.includes(key))
      .map((key) => [key]),
    find,
    locate,
  };
}

function wrongKind({ kind: written, apiVersion }: JsonObject): string {
  if (written === undefined) return `kind: ${kind} is missing (apiVersion: ${String(apiVersion ?? "missing")})`;
  return `kind is ${String(written)}, not ${kind} of ${apiVersions.join(" or ")}, and none is in it`;
}

/** A plugin that llm-d makes by itself when it is referred to. */
const unlisted = (type: string): LlmdPlugin | undefined =>
  Object.hasOwn(llmdPlugins, type)
    ? { name: type, type, parameters: {}, path: undefined, rule: llmdPlugins[type] }
    : undefined;

/** llm-d puts every scorer, filter and picker into one profile when there is none. */
const defaultProfile = (plugins: readonly LlmdPlugin[]): LlmdProfile => ({
  name: "default",
  path: [],
  plugins: plugins
    .filter(({ rule }) => rule !== undefined && profileKinds.includes(rule.kind))
    .map((plugin) => ({ plugin, weight: defaultWeight, path: plugin.path ?? [] })),
});

/** Reads values of the expected types, and keeps every mistake with its path. An empty value counts as absent. */
class Reader {
  readonly problems: Problem[] = [];

  refuse(path: Path, message: string): void {
    this.problems.push({ path, message });
  }

  section(tree: JsonObject, key: string, path: Path = []): JsonObject | undefined {
    return this.#read(tree, key, path, isJsonObject, "a section");
  }

  list(tree: unknown, key: string, path: Path = []): readonly (readonly [entry: unknown, path: Path])[] {
    const isList = (value: unknown): value is readonly unknown[] => Array.isArray(value);
    const entries = isJsonObject(tree) ? this.#read(tree, key, path, isList, "a list") : undefined;
    return (entries ?? []).map((entry, at) => [entry, [...path, key, at]]);
  }

  /** A text that must be there. */
  text(tree: unknown, key: string, path: Path): string | undefined {
    if (!isJsonObject(tree)) {
      this.refuse(path, "must be a section");
      return undefined;
    }
    const isText = (value: unknown): value is string => typeof value === "string" && value !== "";
    const text = this.#read(tree, key, path, isText, "a text");
    if ((tree[key] ?? undefined) === undefined) this.refuse(path, `${key} is missing`);
    return text;
  }

  number(tree: unknown, key: string, path: Path): number | undefined {
    if (!isJsonObject(tree)) return undefined;
    const isNumber = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value);
    return this.#read(tree, key, path, isNumber, "a number");
  }

  plugin(entry: unknown, path: Path): LlmdPlugin {
    const type = this.text(entry, "type", path) ?? "";
    const { name = type } = isJsonObject(entry) ? entry : {};
    const parameters = (isJsonObject(entry) && this.section(entry, "parameters", path)) || {};
    if (typeof name !== "string") this.refuse([...path, "name"], "must be a text");
    const rule = Object.hasOwn(llmdPlugins, type) ? llmdPlugins[type] : undefined;
    return { name: String(name) || type, type, parameters, path, rule };
  }

  /** `NAME`, `NAME=true` or `NAME=false` each. */
  gates(tree: JsonObject): ReadonlyMap<string, boolean> {
    const gates = new Map<string, boolean>();
    for (const [entry, path] of this.list(tree, "featureGates")) {
      const [, name, value] = typeof entry === "string" ? (/^([^=]+)(?:=(true|false))?$/.exec(entry) ?? []) : [];
      if (name === undefined) this.refuse(path, "must be NAME, NAME=true or NAME=false");
      else gates.set(name, value !== "false");
    }
    return gates;
  }

  #read<T>(
    tree: JsonObject,
    key: string,
    path: Path,
    fits: (value: unknown) => value is T,
    expected: string,
  ): T | undefined {
    const value = tree[key] ?? undefined;
    if (value === undefined || fits(value)) return value;
    this.refuse([...path, key], `must be ${expected}`);
    return undefined;
  }
}
