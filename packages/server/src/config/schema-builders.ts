import { durationPattern, formatDuration, formatSize, parseDuration, parseSize, sizePattern } from "@espalier/core";
import { type TProperties, type TSchema, type TUnsafe, Type } from "typebox";

/** A schema in the form in which code walks it. */
export type Shape =
  | {
      readonly form: "section";
      readonly properties: Readonly<Record<string, TSchema>>;
      readonly required: ReadonlySet<string>;
      readonly notes: SectionNotes;
    }
  | {
      readonly form: "list";
      readonly items: TSchema;
      readonly minItems: number;
      readonly maxItems: number;
      readonly notes: ListNotes;
    }
  | { readonly form: "map"; readonly values: TSchema; readonly maxProperties: number }
  | { readonly form: "leaf"; readonly notes: LeafNotes };

/** The keywords that the builders below write. */
interface Keywords {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, TSchema>>;
  readonly required?: readonly string[];
  readonly items?: TSchema;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly patternProperties?: Readonly<Record<string, TSchema>>;
  readonly maxProperties?: number;
  readonly default?: unknown;
  readonly description?: string;
  readonly espalier?: Notes;
}

interface Notes extends LeafNotes, SectionNotes, ListNotes {
  /** Makes another form of settings for code; see `compiled`. */
  readonly compile?: (settings: unknown, tree: unknown) => unknown;
}

export function shapeOf(schema: TSchema): Shape {
  const keywords = schema as Keywords;
  const notes = keywords.espalier;
  if (keywords.properties) {
    const { properties, required = [] } = keywords;
    return { form: "section", properties, required: new Set(required), notes: notes ?? {} };
  }
  if (keywords.items) {
    const { items, minItems = 0, maxItems = Number.POSITIVE_INFINITY } = keywords;
    return { form: "list", items, minItems, maxItems, notes: notes ?? {} };
  }
  const values = Object.values(keywords.patternProperties ?? {})[0];
  if (values) return { form: "map", values, maxProperties: keywords.maxProperties ?? Number.POSITIVE_INFINITY };
  if (notes) return { form: "leaf", notes };
  throw new TypeError(`unsupported schema type ${keywords.type} in the configuration`);
}

/** What a schema has beyond JSON Schema. */
export const notesOf = (schema: TSchema): Partial<Notes> => (schema as Keywords).espalier ?? {};

/** A copy of a checked tree, each part of which is what `made` gives for its copy, the innermost parts first. */
export function mapTree(
  schema: TSchema,
  tree: unknown,
  made: (schema: TSchema, copy: unknown, tree: unknown) => unknown,
): unknown {
  const shape = shapeOf(schema);
  if (shape.form === "leaf") return made(schema, tree, tree);
  if (shape.form === "list") {
    const items = (tree as readonly unknown[]).map((item) => mapTree(shape.items, item, made));
    return made(schema, items, tree);
  }
  const schemaOf = (key: string): TSchema => (shape.form === "section" ? shape.properties[key]! : shape.values);
  const entries = Object.entries(tree as object).map(([key, value]) => [key, mapTree(schemaOf(key), value, made)]);
  return made(schema, Object.fromEntries(entries), tree);
}

/** The default as written in the schema: `2s`, not 2000. */
export const defaultOf = (schema: TSchema): unknown => (schema as Keywords).default;

export const descriptionOf = (schema: TSchema): string => (schema as Keywords).description ?? "";

/** Another router's name for a key. */
export interface Alias {
  readonly name: string;
  /** The router that uses the name. */
  readonly of: string;
  /** Whether it is a command-line flag of that router; then it is accepted as a flag here too. */
  readonly isFlag: boolean;
}

/** What a section's schema has beyond JSON Schema, under the key `espalier`. */
export interface SectionNotes {
  /** The key that a plain text instead of the section sets: `policy: random` is `policy: {name: random}`. */
  readonly shorthand?: string;
  /** Further names of keys. An alias equal to its key only adds a flag. */
  readonly aliases?: Readonly<Record<string, readonly Alias[]>>;
  /** Keys that were here once, and the path of the setting that replaced each. */
  readonly replaced?: Readonly<Record<string, string>>;
}

interface ListNotes {
  /** Name of the command-line flag for one element, if it is not the list's own name. */
  readonly flag?: string;
}

/** A section with a fixed set of keys. Other keys are refused. */
export function section<Properties extends TProperties>(
  description: string,
  properties: Properties,
  espalier: SectionNotes = {},
) {
  return Type.Object(properties, { description, additionalProperties: false, espalier });
}

interface ListOptions {
  readonly description: string;
  readonly minItems?: number;
  readonly maxItems: number;
  /** As written. Without it, an empty list, unless there is a `minItems`. */
  readonly default?: readonly unknown[];
  readonly flag?: string;
}

export function list<Item extends TSchema>(items: Item, { flag, ...options }: ListOptions) {
  const espalier: ListNotes = flag === undefined ? {} : { flag };
  return Type.Array(items, { ...(options.minItems === undefined ? { default: [] } : {}), ...options, espalier });
}

/** Values under names that the user chooses. */
export function map<Value extends TSchema>(
  values: Value,
  options: { readonly description: string; readonly maxProperties: number },
) {
  return Type.Record(Type.String({ minLength: 1, maxLength: 256 }), values, options);
}

export type LeafKind = "text" | "boolean" | "integer" | "number" | "duration" | "size";

/** What a single value's schema has beyond JSON Schema, under the key `espalier`. */
export interface LeafNotes {
  readonly kind: LeafKind;
  /** Completes "X is not ...". */
  readonly expected: string;
  /** The value must not be shown. */
  readonly isSecret?: boolean;
  /** The value is a path of the local file system; a relative one is read from the folder of what it was written in. */
  readonly isPath?: boolean;
  /** Bounds of the value as it is read, where the schema itself is of the text that is written. */
  readonly range?: Range;
  /** Accepted instead of a value in that range. */
  readonly word?: string;
}

interface Range {
  readonly minimum: number;
  readonly maximum: number;
}

interface LeafOptions<Value> {
  readonly description: string;
  readonly default?: Value;
}

interface TextOptions extends LeafOptions<string> {
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly expected?: string;
  readonly isSecret?: boolean;
  readonly isPath?: boolean;
}

interface RangeOptions<Value> extends LeafOptions<Value> {
  readonly minimum: Value;
  readonly maximum: Value;
}

/** Text that code gets as a `Secret`. */
export interface SecretText extends TUnsafe<string> {
  espalier: LeafNotes & { readonly isSecret: true };
}

export function text(options: TextOptions & { readonly isSecret: true }): SecretText;
export function text(options: TextOptions): TUnsafe<string>;
export function text({ expected, isSecret, isPath, ...schema }: TextOptions) {
  const { minLength = 1, maxLength = 1_024 } = schema;
  const inWords = expected ?? `text of ${minLength} to ${maxLength} characters`;
  const notes = { ...(isSecret && { isSecret }), ...(isPath && { isPath }) };
  const espalier: LeafNotes = { kind: "text", expected: inWords, ...notes };
  return Type.Unsafe<string>({ type: "string", minLength, maxLength, ...schema, espalier });
}

/** A path of the local file system, read as an absolute one. */
export function filePath(description: string) {
  return text({ description, maxLength: 4_096, expected: "the path of a file", isPath: true });
}

export function choice<const Name extends string>(
  names: readonly Name[],
  options: { readonly description: string; readonly default: Name },
) {
  const espalier: LeafNotes = { kind: "text", expected: `one of ${names.join(", ")}` };
  return Type.Unsafe<Name>({ type: "string", enum: names, ...options, espalier });
}

export function flag(options: LeafOptions<boolean>) {
  const espalier: LeafNotes = { kind: "boolean", expected: "true or false" };
  return Type.Unsafe<boolean>({ type: "boolean", ...options, espalier });
}

export function integer(options: RangeOptions<number>) {
  const expected = `an integer from ${options.minimum} to ${options.maximum}`;
  return Type.Unsafe<number>({ type: "integer", ...options, espalier: { kind: "integer", expected } });
}

/** A number, or `auto`. */
export function count({ minimum, maximum, ...options }: RangeOptions<number>) {
  const expected = `auto or an integer from ${minimum} to ${maximum}`;
  return Type.Unsafe<number | "auto">({
    anyOf: [
      { type: "string", enum: ["auto"] },
      { type: "integer", minimum, maximum },
    ],
    ...options,
    espalier: { kind: "integer", expected },
  });
}

export function number(options: RangeOptions<number>) {
  const expected = `a number from ${options.minimum} to ${options.maximum}`;
  return Type.Unsafe<number>({ type: "number", ...options, espalier: { kind: "number", expected } });
}

/** A number whose kind gives it a unit, which its name in code has too. */
export interface Measured<Kind extends LeafKind, Word = never> extends TUnsafe<number | Word> {
  espalier: LeafNotes & { readonly kind: Kind };
}

/** A duration, read as milliseconds. Bounds and default are given as text, such as `2s`. Only 0 needs no unit. */
export function duration({ minimum, maximum, ...options }: RangeOptions<string>): Measured<"duration"> {
  const range: Range = { minimum: parseDuration(minimum) ?? 0, maximum: parseDuration(maximum) ?? 0 };
  const expected = `a duration from ${formatDuration(range.minimum)} to ${formatDuration(range.maximum)}`;
  const written = { type: "string", pattern: durationPattern };
  return Type.Unsafe<number>({
    ...(range.minimum === 0 ? { anyOf: [written, { const: 0 }] } : written),
    ...options,
    espalier: { kind: "duration", expected, range },
  }) as Measured<"duration">;
}

/** A duration, or `none`. */
export function durationOrNone({ minimum, maximum, ...options }: RangeOptions<string>): Measured<"duration", "none"> {
  const range: Range = { minimum: parseDuration(minimum) ?? 0, maximum: parseDuration(maximum) ?? 0 };
  const expected = `none or a duration from ${formatDuration(range.minimum)} to ${formatDuration(range.maximum)}`;
  return Type.Unsafe<number | "none">({
    anyOf: [{ const: "none" }, { type: "string", pattern: durationPattern }],
    ...options,
    espalier: { kind: "duration", expected, range, word: "none" },
  }) as Measured<"duration", "none">;
}

/** A size, read as bytes. Bounds and default are given as text, such as `32KiB`. */
export function size({ minimum, maximum, ...options }: RangeOptions<string>): Measured<"size"> {
  const bounds = { minimum: parseSize(minimum) ?? 0, maximum: parseSize(maximum) ?? 0 };
  const range = `${formatSize(bounds.minimum)} to ${formatSize(bounds.maximum)}`;
  return Type.Unsafe<number>({
    anyOf: [
      { type: "string", pattern: sizePattern },
      { type: "integer", ...bounds },
    ],
    ...options,
    espalier: { kind: "size", expected: `a size from ${range}` },
  }) as Measured<"size">;
}

/** The aliases of a key of a section. */
export function aliasesOf({ aliases }: SectionNotes, key: string): readonly Alias[] {
  return aliases !== undefined && Object.hasOwn(aliases, key) ? (aliases[key] ?? []) : [];
}

/** The names accepted for a key in a file, the key itself first. */
export function writtenNames(notes: SectionNotes, key: string): readonly string[] {
  const aliases = aliasesOf(notes, key);
  return aliases.length === 0 ? [key] : [...new Set([key, ...aliases.map(({ name }) => name)])];
}
