import type { Static, TSchema } from "typebox";
import { type LeafKind, shapeOf } from "./schema-builders.ts";
import { Secret } from "./secret.ts";

/**
 * The settings of a schema in the form that code reads: `first-byte`, a duration, is `firstByteMs`, what may be absent is
 * `undefined`, and a secret is a `Secret`. `settingsOf` makes it.
 */
export type SettingsOf<Schema> = Schema extends { readonly properties: infer Properties }
  ? { readonly [Key in keyof Properties & string as NameOf<Key, Properties[Key]>]: Possible<Properties[Key]> }
  : Schema extends { readonly items: infer Item }
    ? readonly SettingsOf<Item>[]
    : Schema extends { readonly patternProperties: Readonly<Record<string, infer Value>> }
      ? Readonly<Record<string, SettingsOf<Value>>>
      : Schema extends { espalier: { isSecret: true } }
        ? Secret
        : Schema extends { "~unsafe": infer Value }
          ? Value
          : never;

type Possible<Schema> = SettingsOf<Schema> | (Schema extends { "~optional": true } ? undefined : never);

const units = { duration: "Ms", size: "Bytes" } as const;

type Units = typeof units;
type NameOf<Key extends string, Schema> = WithUnit<CamelCase<Key>, UnitOf<Schema>>;
type UnitOf<Schema> = Schema extends { espalier: { kind: infer Kind extends keyof Units } } ? Units[Kind] : "";
/** `max-body-bytes-in-flight` names its unit itself. */
type WithUnit<Name extends string, Unit extends string> = Name extends `${string}${Unit}${string}`
  ? Name
  : `${Name}${Unit}`;
type CamelCase<Key extends string> = Key extends `${infer First}-${infer Rest}`
  ? `${First}${Capitalize<CamelCase<Rest>>}`
  : Key;

/** A checked tree in the form that `SettingsOf` says. */
export function settingsOf<Schema extends TSchema>(schema: Schema, tree: Static<Schema>): SettingsOf<Schema> {
  return inCode(schema, tree) as SettingsOf<Schema>;
}

/**
 * Where code reads a setting.
 *
 * @param keys the setting's path in the file, down to a section, a list, a map or a leaf of the schema
 * @throws TypeError for a path that the schema does not have
 */
export function namesInCode(schema: TSchema, [key, ...below]: readonly string[]): readonly string[] {
  if (key === undefined) return [];
  const shape = shapeOf(schema);
  const property = shape.form === "section" ? shape.properties[key] : undefined;
  if (!property) throw new TypeError(`there is no setting ${key} here`);
  return [nameOf(key, property), ...namesInCode(property, below)];
}

function inCode(schema: TSchema, tree: unknown): unknown {
  const shape = shapeOf(schema);
  if (tree === undefined) return undefined;
  if (shape.form === "leaf") return shape.notes.isSecret ? new Secret(tree as string) : tree;
  if (shape.form === "list") return (tree as readonly unknown[]).map((item) => inCode(shape.items, item));
  const values = tree as Readonly<Record<string, unknown>>;
  const entries =
    shape.form === "map"
      ? Object.entries(values).map(([name, value]) => [name, inCode(shape.values, value)])
      : Object.entries(shape.properties).map(([key, of]) => [nameOf(key, of), inCode(of, values[key])]);
  return Object.fromEntries(entries);
}

function nameOf(key: string, schema: TSchema): string {
  const name = key.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
  const shape = shapeOf(schema);
  const unit = shape.form === "leaf" ? unitOf(shape.notes.kind) : "";
  return name.includes(unit) ? name : `${name}${unit}`;
}

const unitOf = (kind: LeafKind): string => (kind === "duration" || kind === "size" ? units[kind] : "");
