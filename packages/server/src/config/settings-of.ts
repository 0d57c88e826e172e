import type { Static, TSchema } from "typebox";
import { type LeafKind, mapTree, notesOf, shapeOf } from "./schema-builders.ts";
import { Secret } from "./secret.ts";

/**
 * The settings of a schema in the form that code reads: `first-byte`, a duration, is `firstByteMs`, what may be absent is
 * `undefined`, and a secret is a `Secret`. What is `compiled` has a form of its own. `settingsOf` makes it.
 */
export type SettingsOf<Schema> = Schema extends Compiled<infer Form> ? Form : ByRule<Schema>;

type ByRule<Schema> = Schema extends { readonly properties: infer Properties }
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

/** Marks a schema whose settings have a form of their own in code. */
export interface Compiled<Form> {
  readonly "~compiled": Form;
}

/**
 * Gives a schema's settings a form of their own in code, where the rule's would not do. A comment at each use says why.
 *
 * @param compile makes it from checked settings, in the rule's form and in the file's
 */
export function compiled<Schema extends TSchema, Form>(
  schema: Schema,
  compile: (settings: ByRule<Schema>, tree: Static<Schema>) => Form,
): Schema & Compiled<Form> {
  return Object.assign(schema, { espalier: { ...notesOf(schema), compile } }) as unknown as Schema & Compiled<Form>;
}

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

/** A checked tree in the form of `SettingsOf`. */
export function settingsOf<Schema extends TSchema>(schema: Schema, tree: Static<Schema>): SettingsOf<Schema> {
  return mapTree(schema, tree, (of, value, written) => {
    const settings = byRule(of, value);
    const { compile } = notesOf(of);
    return compile ? compile(settings, written) : settings;
  }) as SettingsOf<Schema>;
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
  if (!property) throw new TypeError(`unknown setting ${key}`);
  return [nameOf(key, property), ...namesInCode(property, below)];
}

function byRule(schema: TSchema, value: unknown): unknown {
  const shape = shapeOf(schema);
  if (shape.form === "leaf") return shape.notes.isSecret ? new Secret(value as string) : value;
  if (shape.form !== "section") return value;
  const values = value as Readonly<Record<string, unknown>>;
  return Object.fromEntries(Object.entries(shape.properties).map(([key, of]) => [nameOf(key, of), values[key]]));
}

function nameOf(key: string, schema: TSchema): string {
  const name = key.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
  const shape = shapeOf(schema);
  const unit = shape.form === "leaf" ? unitOf(shape.notes.kind) : "";
  return name.includes(unit) ? name : `${name}${unit}`;
}

const unitOf = (kind: LeafKind): string => (kind === "duration" || kind === "size" ? units[kind] : "");
