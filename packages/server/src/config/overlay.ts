import { didYouMean, isJsonObject } from "@espalier/core";
import type { TSchema } from "typebox";
import type { Environment } from "./interpolate.ts";
import { formatPath, type Problem } from "./problems.ts";
import { expandShorthand } from "./read-tree.ts";
import { configSchema } from "./schema.ts";
import { shapeOf, writtenNames } from "./schema-builders.ts";
import { flagNames, replacedNames, type Setting, settings } from "./settings.ts";

/** Values of flags by their name, dashes included: `{ "--listen-port": "8080", "--engine": ["http://a", "http://b"] }`. */
export type FlagValues = Readonly<Record<string, string | readonly string[]>>;

/** Values from one source outside the file. */
interface Overlay {
  readonly values: readonly OverlayValue[];
  readonly problems: readonly Problem[];
}

interface OverlayValue {
  readonly keys: readonly string[];
  readonly value: string | readonly string[];
  /** The flag or variable that set it. */
  readonly from: string;
}

const settable = settings.flatMap((setting) => (setting.outside ? [{ setting, ...setting.outside }] : []));

/** Variables with our prefix that other programs read. */
export const foreignVariables: Readonly<Record<string, string>> = {
  ESPALIER_SHARED: "Folder of recorded traces, for tests.",
  ESPALIER_SKIP_BUILD: "1 skips the installation of dependencies in a clone.",
  ESPALIER_CONFIG: "Configuration file; `--config` takes precedence. An empty value disables the default files.",
  ESPALIER_ADMIN_URL: "Admin address for `espalier status`, `engines` and other commands.",
  ESPALIER_REPLAY_API_KEY: "API key for `espalier replay`.",
};

/**
 * Variables that Kubernetes sets for a Service named `espalier` or `espalier-...`: `_SERVICE_HOST`,
 * `_SERVICE_PORT[_NAME]`, `_PORT` with an address in it, `_PORT_80_TCP[_PROTO|_PORT|_ADDR]`.
 */
const serviceLinkName =
  /^ESPALIER(_[A-Z0-9_]+)?_(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$/;
const serviceLinkAddress = /^(tcp|udp|sctp):\/\//;

/**
 * Values of `ESPALIER_...` variables. Lists are separated by commas; an empty variable counts as unset.
 *
 * @param named variables that the file refers to, which are known under any name
 */
export function readEnvironment(env: Environment, named: ReadonlySet<string>): Overlay {
  const problems: Problem[] = [];
  const known = new Set([...settable.map(({ variable }) => variable), ...Object.keys(foreignVariables), ...named]);
  for (const [name, text = ""] of Object.entries(env)) {
    if (!name.startsWith("ESPALIER_") || known.has(name) || isServiceLink(name, text)) continue;
    const replacement = replacedNames.get(name);
    const unknown = `is not a known environment variable${didYouMean(name, [...known])}`;
    problems.push({ path: [name], message: replacement === undefined ? unknown : `is replaced by ${replacement}` });
  }
  const values = settable.flatMap(({ setting, variable, keys }) => {
    const text = env[variable] ?? "";
    if (text === "" || isServiceLink(variable, text)) return [];
    return [{ keys, value: isList(setting) ? splitList(text) : text, from: variable }];
  });
  return { values, problems };
}

/** Values of command-line flags. A flag for a list may be given more than once. */
export function readFlags(flags: FlagValues): Overlay {
  const problems: Problem[] = [];
  const known = settable.flatMap(flagNames);
  for (const name of Object.keys(flags)) {
    if (known.includes(name)) continue;
    const replacement = replacedNames.get(name);
    const unknown = `is not a known flag${didYouMean(name, known)}`;
    problems.push({
      path: [],
      message: `${name} ${replacement === undefined ? unknown : `is replaced by ${replacement}`}`,
    });
  }
  const values: OverlayValue[] = [];
  for (const one of settable) {
    const { setting, flag: own, aliasFlags, keys } = one;
    const isGiven = (name: string): boolean => Object.hasOwn(flags, name) && flags[name] !== undefined;
    const [flag = own, ...others] = flagNames(one).filter(isGiven);
    for (const other of others) {
      problems.push({ path: [], message: `${other} is an alias of ${flag}, which is set too; remove one` });
    }
    const given = isGiven(flag) ? flags[flag] : undefined;
    if (given === undefined) continue;
    const unit = aliasFlags.find((alias) => alias.flag === flag)?.unit ?? "";
    const texts = (typeof given === "string" ? [given] : given).map((text) => (isBare(text) ? text + unit : text));
    const last = texts.at(-1);
    if (isList(setting)) values.push({ keys, value: texts, from: flag });
    else if (last !== undefined) values.push({ keys, value: last, from: flag });
  }
  return { values, problems };
}

/** The flag or variable that set the value at a path. */
export type Origins = Map<string, string>;

/** Applies values to a copy of a tree, and records their origins. */
export function applyOverlay(tree: unknown, { values }: Pick<Overlay, "values">, origins: Origins): unknown {
  let result = tree;
  for (const { keys, value, from } of values) {
    result = setIn(configSchema, result, keys, value);
    origins.set(formatPath(keys), from);
  }
  return result;
}

/** A value that should be a section but is not stays unchanged, so that its own mistake is reported. */
function setIn(schema: TSchema, tree: unknown, keys: readonly string[], value: unknown): unknown {
  const [key, ...rest] = keys;
  if (key === undefined) return value;
  const shape = shapeOf(schema);
  const section = expandShorthand(shape, tree ?? {});
  const property = shape.form === "section" ? shape.properties[key] : undefined;
  if (!property || !isJsonObject(section)) return tree;
  // The new value also replaces one under an alias of the key.
  const aliases = new Set(writtenNames(shape.form === "section" ? shape.notes : {}, key));
  const others = Object.fromEntries(Object.entries(section).filter(([name]) => name === key || !aliases.has(name)));
  return { ...others, [key]: setIn(property, Object.hasOwn(section, key) ? section[key] : undefined, rest, value) };
}

const isBare = (text: string): boolean => /^\d+(\.\d+)?$/.test(text);

const isList = ({ shape }: Setting): boolean => shape.form === "list";

const splitList = (text: string): string[] =>
  text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "");

function isServiceLink(name: string, text: string): boolean {
  return serviceLinkName.test(name) || (name.endsWith("_PORT") && serviceLinkAddress.test(text));
}

/** Variables of the OpenTelemetry specification, used if nothing else sets the value, and the path that each sets. */
export const standardVariables: Readonly<Record<string, readonly string[]>> = {
  OTEL_EXPORTER_OTLP_ENDPOINT: ["tracing", "endpoint"],
  OTEL_EXPORTER_OTLP_HEADERS: ["tracing", "headers"],
  OTEL_SERVICE_NAME: ["tracing", "service-name"],
};

interface StandardValue {
  readonly keys: readonly string[];
  readonly value: string;
  readonly from: string;
}

/** Values of standard variables for paths that a tree does not set. An empty variable counts as unset. */
export function readStandardVariables(env: Environment, tree: unknown): readonly StandardValue[] {
  return Object.entries(standardVariables).flatMap(([from, keys]) => {
    const value = env[from] ?? "";
    return value === "" || isSet(tree, keys) ? [] : [{ keys, value, from }];
  });
}

function isSet(tree: unknown, [key, ...rest]: readonly string[]): boolean {
  if (key === undefined) return tree !== undefined && tree !== null;
  if (tree === undefined || tree === null) return false;
  // A value that should be a section is reported as a mistake of its own.
  return !isJsonObject(tree) || (Object.hasOwn(tree, key) && isSet(tree[key], rest));
}
