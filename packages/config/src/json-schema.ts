import type { TSchema } from "typebox";
import { writtenNames } from "./aliases.ts";
import { needsValue } from "./read-tree.ts";
import { configSchema } from "./schema/config-schema.ts";
import { shapeOf } from "./schema/shape.ts";

/** JSON Schema (draft 2020-12) of the file as people write it, for editors. */
export const configJsonSchema: Readonly<Record<string, unknown>> = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  title: "Espalier configuration",
  ...writtenForm(configSchema),
};

/** Leaves out our own notes, and requires only what has no default; a shorthand is plain text instead of its section. */
function writtenForm(schema: TSchema): Record<string, unknown> {
  const { espalier: _, required: __, ...keywords } = schema as Readonly<Record<string, unknown>>;
  const shape = shapeOf(schema);
  if (shape.form === "leaf") return keywords;
  if (shape.form === "list") return { ...keywords, items: writtenForm(shape.items) };
  if (shape.form === "map") {
    const { patternProperties: ___, ...rest } = keywords;
    return { ...rest, additionalProperties: writtenForm(shape.values) };
  }
  const properties = Object.fromEntries(
    Object.entries(shape.properties).flatMap(([key, each]) =>
      writtenNames(shape.notes, key).map((name) => [name, writtenForm(each)]),
    ),
  );
  const required = Object.keys(shape.properties).filter(
    (key) => shape.required.has(key) && needsValue(shape.properties[key]!),
  );
  const section = { ...keywords, properties, ...(required.length > 0 ? { required } : {}) };
  const { shorthand } = shape.notes;
  if (shorthand === undefined) return section;
  const { description, ...alone } = section as Readonly<Record<string, unknown>>;
  return { description, anyOf: [properties[shorthand], alone] };
}
