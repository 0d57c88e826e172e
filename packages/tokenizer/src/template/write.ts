import { floatText, intText } from "./numbers.ts";
import { limitError, maxValueDepth, TemplateError } from "./template-error.ts";
import {
  Callable,
  dictEntries,
  dictSize,
  isDict,
  isInt,
  LazySequence,
  Markup,
  Namespace,
  PyFloat,
  PyTuple,
  toDouble,
  type Value,
} from "./values.ts";

/**
 * `str(value)`: what a template prints. Undefined is empty.
 *
 * @throws TemplateError when the value's text differs between processes
 */
export function textOf(value: Value): string {
  if (typeof value === "string") return value;
  if (value instanceof Markup) return value.text;
  return value === undefined ? "" : represent(value, 0);
}

/** `repr(value)`: a string in quotes. */
export function reprOf(value: Value): string {
  return represent(value, 0);
}

function represent(value: Value, depth: number): string {
  switch (typeof value) {
    case "string":
      return quote(value);
    case "boolean":
      return value ? "True" : "False";
    case "undefined":
      return "Undefined";
    case "bigint":
      return intText(value);
    case "number":
      return isInt(value) ? intText(value) : floatText(toDouble(value));
    default:
      return value === null ? "None" : representObject(value as object, depth);
  }
}

function representObject(value: object, depth: number): string {
  if (depth > maxValueDepth) throw limitError("a value exceeds the nesting limit");
  if (value instanceof PyFloat) return floatText(value.value);
  if (value instanceof Markup) return `Markup(${quote(value.text)})`;
  if (Array.isArray(value)) {
    const items = value.map((item) => represent(item, depth + 1)).join(", ");
    if (!(value instanceof PyTuple)) return `[${items}]`;
    return value.length === 1 ? `(${items},)` : `(${items})`;
  }
  if (isDict(value)) {
    if (dictSize(value) === 0) return "{}";
    const items = dictEntries(value).map(
      ([key, item]) => `${represent(key, depth + 1)}: ${represent(item, depth + 1)}`,
    );
    return `{${items.join(", ")}}`;
  }
  // Python writes these with a memory address or with the value's own class.
  const what = value instanceof LazySequence ? value.kind : value instanceof Callable ? value.name : "an object";
  if (value instanceof Namespace) return `<Namespace ${represent(value.attributes, depth + 1)}>`;
  throw new TemplateError("value", `${what} has no deterministic text`);
}

const escaped: Readonly<Record<string, string>> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** `repr` of a string: single quotes unless it contains only those, and escapes for what Python does not print. */
function quote(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  const body = text.replace(/[\\\n\r\t]|[\p{C}\p{Z}]/gu, (point) => {
    if (point === " ") return point;
    return escaped[point] ?? escapePoint(point.codePointAt(0)!);
  });
  return `${mark}${mark === "'" ? body.replaceAll("'", "\\'") : body}${mark}`;
}

function escapePoint(point: number): string {
  if (point < 0x100) return `\\x${point.toString(16).padStart(2, "0")}`;
  if (point < 0x10000) return `\\u${point.toString(16).padStart(4, "0")}`;
  return `\\U${point.toString(16).padStart(8, "0")}`;
}
