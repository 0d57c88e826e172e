import { type TProperties, type TSchema, Type } from "typebox";

/** Another name of a key: what another router calls the same. */
export interface Alias {
  readonly name: string;
  /** Who calls it that. */
  readonly of: string;
  /** Whether it is a command-line flag there; it is then one here as well. */
  readonly isFlag: boolean;
}

/** What the schema of a section says beyond JSON Schema, under the key `espalier`. */
export interface SectionNotes {
  /** The key that a plain text in place of the section stands for: `policy: random` is `policy: {name: random}`. */
  readonly shorthand?: string;
  /** Further names of keys. One that is the key itself is a flag of that name. */
  readonly aliases?: Readonly<Record<string, readonly Alias[]>>;
}

export interface ListNotes {
  /** Name of the command-line flag that gives one element, where it is not the list's own. */
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
  /** As written; an empty list by default, unless an element is needed. */
  readonly default?: readonly unknown[];
  readonly flag?: string;
}

export function list<Item extends TSchema>(items: Item, { flag, ...options }: ListOptions) {
  const espalier: ListNotes = flag === undefined ? {} : { flag };
  return Type.Array(items, { ...(options.minItems === undefined ? { default: [] } : {}), ...options, espalier });
}

/** Values under names that the writer chooses. */
export function map<Value extends TSchema>(
  values: Value,
  options: { readonly description: string; readonly maxProperties: number },
) {
  return Type.Record(Type.String({ minLength: 1, maxLength: 256 }), values, options);
}
