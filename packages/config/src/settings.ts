import type { TSchema } from "typebox";
import { aliasesOf } from "./aliases.ts";
import { configSchema } from "./schema/config-schema.ts";
import type { Alias } from "./schema/container.ts";
import { type FlagAlias, flagAliases } from "./schema/flag-aliases.ts";
import { defaultOf, descriptionOf, type Shape, shapeOf } from "./schema/shape.ts";

/** One value or list of the configuration, as documents, flags and environment variables name it. */
export interface Setting {
  /** Keys from the root; `[]` stands for an element of a list and `*` for a name that the writer chooses. */
  readonly keys: readonly string[];
  readonly schema: TSchema;
  readonly shape: Shape;
  readonly description: string;
  readonly default: unknown;
  readonly isRequired: boolean;
  /** What other routers call it; accepted in place of the last of its keys. */
  readonly aliases: readonly Alias[];
  /** How it is given outside the file; undefined for what stands inside a list or a map, and for lists of sections. */
  readonly outside: OutsideNames | undefined;
}

interface OutsideNames {
  /** Keys at which a value from outside goes into the tree. */
  readonly keys: readonly string[];
  /** `--listen-port` */
  readonly flag: string;
  /** Flags of other routers that mean the same: `--cache-threshold`. */
  readonly aliasFlags: readonly FlagAlias[];
  /** `ESPALIER_LISTEN_PORT` */
  readonly variable: string;
}

/** What stands in a list or a map, and the root. */
const innermost: Place = { isRequired: true, shorthand: undefined, aliases: [] };

/** Every setting, in the order of the schema. */
export const settings: readonly Setting[] = collect(configSchema, [], innermost);

/** Our flag first. */
export function flagNames({ flag, aliasFlags }: OutsideNames): readonly string[] {
  return [flag, ...aliasFlags.map((alias) => alias.flag)];
}

/** `engines[].url` */
export function settingPath({ keys }: Pick<Setting, "keys">): string {
  return keys.join(".").replaceAll(".[]", "[]");
}

interface Place {
  readonly isRequired: boolean;
  /** The key that a plain text in place of the section around stands for. */
  readonly shorthand: string | undefined;
  readonly aliases: readonly Alias[];
}

function collect(schema: TSchema, keys: readonly string[], place: Place): Setting[] {
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
    isRequired: place.isRequired,
    aliases: place.aliases,
    outside: outsideNames(keys, shape, place),
  };
  const inner = shape.form === "list" ? { key: "[]", schema: shape.items } : undefined;
  const below = shape.form === "map" ? { key: "*", schema: shape.values } : inner;
  if (!below || shapeOf(below.schema).form === "leaf") return [setting];
  return [setting, ...collect(below.schema, [...keys, below.key], innermost)];
}

function outsideNames(keys: readonly string[], shape: Shape, { shorthand, aliases }: Place): OutsideNames | undefined {
  if (keys.includes("[]") || keys.includes("*") || !isPlain(shape)) return undefined;
  const outer = keys.at(-1) === shorthand ? keys.slice(0, -1) : keys;
  const flag = (shape.form === "list" ? shape.notes.flag : undefined) ?? outer.join("-");
  return {
    keys: outer,
    flag: `--${flag}`,
    aliasFlags: [
      ...aliases.flatMap(({ name, isFlag }) => (isFlag ? [{ flag: `--${name}`, unit: "" as const }] : [])),
      ...(flagAliases[outer.join(".")] ?? []),
    ],
    variable: `ESPALIER_${outer.join("_").replaceAll("-", "_").toUpperCase()}`,
  };
}

/** Whether plain text can give it: a value, or a list of values or of sections with a shorthand. */
function isPlain(shape: Shape): boolean {
  if (shape.form !== "list") return shape.form === "leaf";
  const items = shapeOf(shape.items);
  return items.form === "leaf" || (items.form === "section" && items.notes.shorthand !== undefined);
}
