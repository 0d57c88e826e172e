import { shapeOf } from "./schema/shape.ts";
import type { Setting } from "./settings.ts";

/** What a setting takes, in words. */
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

/** The default as it would be written; undefined when there is none. */
export function defaultText({ default: value, shape }: Setting): string | undefined {
  if (shape.form === "map") return "{}";
  if (value === undefined) return undefined;
  return Array.isArray(value) ? `[${value.join(", ")}]` : String(value);
}
