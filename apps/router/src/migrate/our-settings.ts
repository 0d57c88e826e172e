import { isJsonObject, type JsonObject } from "@espalier/core";
import { configJsonSchema } from "@espalier/server";

/** What is written for a setting of ours: the parts of the JSON Schema that a translation needs. */
export interface OurSetting {
  readonly type: "number" | "text" | "duration" | "list" | "other";
  /** Whether a number has no fraction. */
  readonly isWhole: boolean;
  readonly min: number;
  readonly max: number;
}

/** The section's schema, where a shorthand is allowed too. */
const longForm = (schema: JsonObject): JsonObject => {
  const forms = (Array.isArray(schema.anyOf) ? schema.anyOf : [schema]).filter(isJsonObject);
  return forms.find((form) => form.properties !== undefined || form.type === "integer") ?? forms[0] ?? {};
};

function schemaAt(path: string): JsonObject | undefined {
  let schema: JsonObject = configJsonSchema;
  for (const key of path.split(/\.|(?=\[\])/)) {
    const { properties, items, additionalProperties } = longForm(schema);
    const named = isJsonObject(properties) && Object.hasOwn(properties, key) ? properties[key] : undefined;
    const next = key === "[]" ? items : (named ?? additionalProperties);
    if (!isJsonObject(next)) return undefined;
    schema = next;
  }
  return schema;
}

/**
 * @param path keys with dots between them, `[]` for an element of a list
 * @throws Error when there is no such setting
 */
export function ourSetting(path: string): OurSetting {
  const schema = schemaAt(path);
  if (!schema) throw new Error(`unknown setting ${path}`);
  const { type, minimum, maximum, pattern } = longForm(schema);
  const isDuration = typeof pattern === "string" && pattern.includes("(ms|s|m|h)");
  const plain = type === "string" ? (isDuration ? "duration" : "text") : type === "array" ? "list" : "other";
  return {
    type: type === "integer" || type === "number" ? "number" : plain,
    isWhole: type === "integer",
    min: typeof minimum === "number" ? minimum : Number.NEGATIVE_INFINITY,
    max: typeof maximum === "number" ? maximum : Number.POSITIVE_INFINITY,
  };
}
