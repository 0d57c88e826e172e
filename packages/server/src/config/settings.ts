import type { TSchema } from "typebox";
import { configSchema } from "./schema.ts";
import { type Alias, aliasesOf, defaultOf, descriptionOf, type Shape, shapeOf } from "./schema-builders.ts";

/** One value or list of the configuration, with its names in documentation, flags and environment variables. */
export interface Setting {
  /** Keys from the root; `[]` is any element of a list and `*` a name that the user chooses. */
  readonly keys: readonly string[];
  readonly schema: TSchema;
  readonly shape: Shape;
  readonly description: string;
  readonly default: unknown;
  readonly isRequired: boolean;
  /** Other routers' names for it, accepted instead of the last of its keys. */
  readonly aliases: readonly Alias[];
  /** How to set it outside the file; undefined inside lists and maps, and for lists of sections. */
  readonly outside: OutsideNames | undefined;
}

interface OutsideNames {
  /** The path in the tree for a value from outside. */
  readonly keys: readonly string[];
  /** `--listen-port` */
  readonly flag: string;
  /** Equivalent flags of other routers: `--cache-threshold`. */
  readonly aliasFlags: readonly FlagAlias[];
  /** `ESPALIER_LISTEN_PORT` */
  readonly variable: string;
}

/** A flag of another router, equivalent to one of ours. */
interface FlagAlias {
  readonly flag: string;
  /** The unit of a bare number there, which is appended to the value. */
  readonly unit: "" | "s";
}

const same = (name: string): FlagAlias => ({ flag: `--${name}`, unit: "" });
const seconds = (name: string): FlagAlias => ({ flag: `--${name}`, unit: "s" });

/**
 * Flags of SGLang's router and SMG (sglang-router 0.3, `router_args.py`) and of llm-d's endpoint picker, by the path of their setting. Those of policies are
 * aliases in the policies' schema, since files may use them too.
 */
const flagAliases: Readonly<Record<string, readonly FlagAlias[]>> = {
  engines: [same("worker-urls")],
  "listen.host": [same("host")],
  "listen.port": [same("port")],
  "listen.tls.cert-file": [same("tls-cert-path")],
  "listen.tls.key-file": [same("tls-key-path")],
  "admin.host": [same("prometheus-host")],
  "admin.port": [same("prometheus-port")],
  "endpoint-picker.host": [same("ext-proc-host")],
  "endpoint-picker.port": [same("ext-proc-port"), same("grpc-port")],
  "endpoint-picker.health-port": [same("ext-proc-health-port"), same("grpc-health-port")],
  "engine-tls.cert-file": [same("client-cert-path")],
  "engine-tls.key-file": [same("client-key-path")],
  "health.path": [same("health-check-endpoint")],
  "health.interval": [seconds("health-check-interval-secs")],
  "health.timeout": [seconds("health-check-timeout-secs")],
  "health.down-after": [same("health-failure-threshold")],
  "health.up-after": [same("health-success-threshold")],
  "breaker.consecutive-failures": [same("cb-failure-threshold")],
  "breaker.successes-to-close": [same("cb-success-threshold")],
  "breaker.open": [seconds("cb-timeout-duration-secs")],
  "breaker.window": [seconds("cb-window-duration-secs")],
  "limits.max-body-bytes": [same("max-payload-size")],
  "limits.max-concurrent-requests": [same("max-concurrent-requests")],
  "drain.grace": [seconds("shutdown-grace-period-secs")],
};

/** The position of the root, and of elements of lists and maps. */
const unnamed: Position = { isRequired: true, shorthand: undefined, aliases: [] };

/** Every setting, in the order of the schema. */
export const settings: readonly Setting[] = collect(configSchema, [], unnamed);

/** Flags and environment variables of settings that are no more, and the one that replaced each. */
export const replacedNames: ReadonlyMap<string, string> = new Map(replacedIn(configSchema, []));

function replacedIn(schema: TSchema, keys: readonly string[]): (readonly [string, string])[] {
  const shape = shapeOf(schema);
  if (shape.form !== "section") return [];
  const own = Object.entries(shape.notes.replaced ?? {}).flatMap(([key, path]) => {
    const [old, replacement] = [[...keys, key], path.split(".")];
    return [[flagOf(old), flagOf(replacement)] as const, [variableOf(old), variableOf(replacement)] as const];
  });
  return [...own, ...Object.entries(shape.properties).flatMap(([key, below]) => replacedIn(below, [...keys, key]))];
}

/** Our flag first. */
export function flagNames({ flag, aliasFlags }: OutsideNames): readonly string[] {
  return [flag, ...aliasFlags.map((alias) => alias.flag)];
}

/** `engines[].url` */
export function settingPath({ keys }: Pick<Setting, "keys">): string {
  return keys.join(".").replaceAll(".[]", "[]");
}

interface Position {
  readonly isRequired: boolean;
  /** The key that a plain string instead of the enclosing section sets. */
  readonly shorthand: string | undefined;
  readonly aliases: readonly Alias[];
}

function collect(schema: TSchema, keys: readonly string[], position: Position): Setting[] {
  const shape = shapeOf(schema);
  if (shape.form === "section") {
    const { properties, required, notes } = shape;
    return Object.entries(properties).flatMap(([key, property]) =>
      collect(property, [...keys, key], {
        isRequired: required.has(key),
        shorthand: notes.shorthand,
        aliases: aliasesOf(notes, key),
      }),
    );
  }
  const setting: Setting = {
    keys,
    schema,
    shape,
    description: descriptionOf(schema),
    default: defaultOf(schema),
    isRequired: position.isRequired,
    aliases: position.aliases,
    outside: outsideNames(keys, shape, position),
  };
  const inner = shape.form === "list" ? { key: "[]", schema: shape.items } : undefined;
  const below = shape.form === "map" ? { key: "*", schema: shape.values } : inner;
  if (!below || shapeOf(below.schema).form === "leaf") return [setting];
  return [setting, ...collect(below.schema, [...keys, below.key], unnamed)];
}

function outsideNames(
  keys: readonly string[],
  shape: Shape,
  { shorthand, aliases }: Position,
): OutsideNames | undefined {
  if (keys.includes("[]") || keys.includes("*") || !isPlain(shape)) return undefined;
  const outer = keys.at(-1) === shorthand ? keys.slice(0, -1) : keys;
  const named = shape.form === "list" ? shape.notes.flag : undefined;
  return {
    keys: outer,
    flag: flagOf(named === undefined ? outer : [named]),
    aliasFlags: [
      ...aliases.flatMap(({ name, isFlag }) => (isFlag ? [{ flag: `--${name}`, unit: "" as const }] : [])),
      ...(flagAliases[outer.join(".")] ?? []),
    ],
    variable: variableOf(outer),
  };
}

function flagOf(keys: readonly string[]): string {
  return `--${keys.join("-")}`;
}

function variableOf(keys: readonly string[]): string {
  return `ESPALIER_${keys.join("_").replaceAll("-", "_").toUpperCase()}`;
}

/** Whether plain strings can set it: a value, or a list of values or of sections with a shorthand. */
function isPlain(shape: Shape): boolean {
  if (shape.form !== "list") return shape.form === "leaf";
  const items = shapeOf(shape.items);
  return items.form === "leaf" || (items.form === "section" && items.notes.shorthand !== undefined);
}

/** The type of a setting, in words. */
export function typeText({ shape }: Setting): string {
  if (shape.form === "leaf") return shape.notes.expected;
  if (shape.form === "map") {
    const values = shapeOf(shape.values);
    const each = values.form === "leaf" ? values.notes.expected : "a list";
    return `names, each with ${each}; at most ${shape.maxProperties}`;
  }
  if (shape.form !== "list") return "a section";
  const items = shapeOf(shape.items);
  const alternative = items.form === "section" && items.notes.shorthand !== undefined ? "plain text or " : "";
  const each = items.form === "leaf" ? items.notes.expected : `${alternative}a section`;
  return `a list, each ${each}; ${shape.minItems > 0 ? `${shape.minItems} to` : "at most"} ${shape.maxItems}`;
}

/** The default as text; undefined if there is none. */
export function defaultText({ default: value, shape }: Setting): string | undefined {
  if (shape.form === "map") return "{}";
  if (value === undefined) return undefined;
  if (!Array.isArray(value)) return String(value);
  // Sections of a list are identified by their names.
  const elements = value.map((one: unknown) => (isNamed(one) ? one.name : String(one)));
  return `[${elements.join(", ")}]`;
}

const isNamed = (value: unknown): value is { readonly name: string } =>
  typeof value === "object" && value !== null && "name" in value && typeof value.name === "string";

/** One command-line flag. */
export interface FlagEntry {
  /** `--listen-port` */
  readonly flag: string;
  /** Equivalent flags of other routers, accepted instead. */
  readonly aliases: readonly string[];
  /** Path of the setting: `listen.port`. */
  readonly path: string;
  /** The type of the value, in words: `an integer from 0 to 65535`. */
  readonly type: string;
  readonly description: string;
  /** As text; undefined when there is none. */
  readonly default: string | undefined;
  /** Heading under which `--help` lists it. */
  readonly group: string;
  /** Whether it may be repeated, each time with one element of a list. */
  readonly isRepeatable: boolean;
}

const generalGroup = "General";

/** Every flag, in the order of the schema. All of them take a value. */
export const flagCatalogue: readonly FlagEntry[] = settings.flatMap((setting) =>
  setting.outside
    ? [
        {
          flag: setting.outside.flag,
          aliases: setting.outside.aliasFlags.map(({ flag }) => flag),
          path: settingPath(setting),
          type: typeText(setting),
          description: setting.description,
          default: defaultText(setting),
          group: groupOf(setting.keys),
          isRepeatable: setting.shape.form === "list",
        },
      ]
    : [],
);

function groupOf([top = ""]: readonly string[]): string {
  const root = shapeOf(configSchema);
  const schema = root.form === "section" ? root.properties[top] : undefined;
  return schema && shapeOf(schema).form === "section" ? titleOf(top, descriptionOf(schema)) : generalGroup;
}

function titleOf(key: string, description: string): string {
  return `${key.charAt(0).toUpperCase()}${key.slice(1).replaceAll("-", " ")}: ${description}`;
}
