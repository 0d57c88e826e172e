import type { TSchema } from "typebox";
import type { ListNotes, SectionNotes } from "./container.ts";
import type { LeafNotes } from "./leaf.ts";

/** A schema as the code that walks it sees it. */
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

/** The keywords that the constructors beside this file write. */
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
  readonly espalier?: LeafNotes & SectionNotes & ListNotes;
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
  throw new TypeError(`a schema of type ${keywords.type} is none that a configuration is made of`);
}

/** The default as it is written in the schema: `2s`, not 2000. */
export const defaultOf = (schema: TSchema): unknown => (schema as Keywords).default;

export const descriptionOf = (schema: TSchema): string => (schema as Keywords).description ?? "";
