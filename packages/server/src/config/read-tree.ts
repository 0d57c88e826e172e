import { resolve } from "node:path";
import { didYouMean, isJsonObject, parseDuration, parseSize } from "@espalier/core";
import type { TSchema } from "typebox";
import { Value } from "typebox/value";
import { formatPath, type Path, type Problem } from "./problems.ts";
import { defaultOf, type LeafKind, type LeafNotes, type Shape, shapeOf, writtenNames } from "./schema-builders.ts";
import { mask } from "./secret.ts";

interface ReadContext {
  readonly problems: Problem[];
  /** The text before interpolation, by path; shown instead of the value. */
  readonly writtenText: ReadonlyMap<string, string>;
  /**
   * Paths of strings that could not be interpolated. Their problems are already reported, so their values are not
   * checked.
   */
  readonly unfilled: ReadonlySet<string>;
  /** Folder from which a relative path of the file system is read; the current one by default. */
  readonly folderOf?: (path: Path) => string;
}

/**
 * Reads a written tree according to a schema: checks keys, types and bounds, fills in defaults, and converts durations to
 * milliseconds, sizes to bytes and paths of files to absolute ones. Strings are parsed as the type that the schema requires, so that `"8080"` from a variable
 * is a port. An empty value (YAML `null`) counts as absent.
 *
 * @returns the tree; it conforms to the schema only if no problem was added to `context.problems`
 */
export function readTree(schema: TSchema, written: unknown, path: Path, context: ReadContext): unknown {
  const shape = shapeOf(schema);
  if (shape.form === "leaf") return readLeaf(schema, shape.notes, written, path, context);
  if (shape.form === "list") return readList(shape, written ?? defaultOf(schema) ?? [], path, context);
  const value = written ?? {};
  if (shape.form === "map") return readMap(shape, value, path, context);
  return readSection(shape, expandShorthand(shape, value), path, context);
}

/** Expands a plain string that replaces a section into the section. */
export function expandShorthand(shape: Shape, written: unknown): unknown {
  const key = shape.form === "section" ? shape.notes.shorthand : undefined;
  return key !== undefined && typeof written === "string" ? { [key]: written } : written;
}

/** Whether a missing value is a problem: a value or a list without a default. Sections and maps can be empty. */
export function needsValue(schema: TSchema): boolean {
  const { form } = shapeOf(schema);
  return (form === "leaf" || form === "list") && defaultOf(schema) === undefined;
}

type ShapeOf<Form extends Shape["form"]> = Extract<Shape, { readonly form: Form }>;

function readSection(shape: ShapeOf<"section">, written: unknown, path: Path, context: ReadContext): unknown {
  const keys = Object.keys(shape.properties);
  if (!isJsonObject(written)) return refuse(`a section with ${keys.join(", ")}`, written, path, context);
  const isKnown = (key: string): boolean =>
    Object.hasOwn(shape.properties, key) || keys.some((known) => writtenNames(shape.notes, known).includes(key));
  for (const key of Object.keys(written)) {
    if (isKnown(key)) continue;
    const advice = didYouMean(key, keys) || `; the keys here are ${keys.join(", ")}`;
    const replacement = new Map(Object.entries(shape.notes.replaced ?? {})).get(key);
    const message = replacement === undefined ? `is not a known key${advice}` : `is replaced by ${replacement}`;
    context.problems.push({ path: [...path, key], message });
  }
  const read: Record<string, unknown> = {};
  for (const [key, schema] of Object.entries(shape.properties)) {
    const name = writtenName(shape, key, written, path, context);
    const value = (Object.hasOwn(written, name) ? written[name] : undefined) ?? defaultOf(schema);
    const isAbsent = value === undefined || value === null;
    if (isAbsent && !shape.required.has(key)) continue;
    if (isAbsent && needsValue(schema)) context.problems.push({ path: [...path, key], message: "is required" });
    else read[key] = readTree(schema, value, [...path, name], context);
  }
  return read;
}

/** The name under which a key is written, or the key itself if it is absent. More than one name is a mistake. */
function writtenName(
  { notes }: ShapeOf<"section">,
  key: string,
  written: Readonly<Record<string, unknown>>,
  path: Path,
  { problems }: ReadContext,
): string {
  const isGiven = (name: string): boolean => Object.hasOwn(written, name) && (written[name] ?? undefined) !== undefined;
  const names = writtenNames(notes, key);
  if (names.length === 1) return key;
  const [name = key, ...others] = names.filter(isGiven);
  for (const other of others) {
    problems.push({ path: [...path, other], message: `is an alias of ${name}, which is set too; remove one` });
  }
  return name;
}

function readMap(shape: ShapeOf<"map">, written: unknown, path: Path, context: ReadContext): unknown {
  if (!isJsonObject(written)) return refuse("a section of names and values", written, path, context);
  const entries = Object.entries(written);
  if (entries.length > shape.maxProperties) {
    context.problems.push({ path, message: `${entries.length} entries are more than ${shape.maxProperties}` });
    return {};
  }
  return Object.fromEntries(
    entries.map(([name, value]) => [name, readTree(shape.values, value, [...path, name], context)]),
  );
}

function readList(shape: ShapeOf<"list">, written: unknown, path: Path, context: ReadContext): unknown {
  if (!Array.isArray(written)) return refuse("a list", written, path, context);
  if (written.length > shape.maxItems || written.length < shape.minItems) {
    const bound = written.length > shape.maxItems ? `more than ${shape.maxItems}` : `fewer than ${shape.minItems}`;
    context.problems.push({ path, message: `${written.length} elements are ${bound}` });
    return [];
  }
  return written.map((item, at) => readTree(shape.items, item, [...path, at], context));
}

/** Names only the kind of a misplaced value, because it may be a secret in the wrong place. */
function refuse(expected: string, written: unknown, path: Path, { problems }: ReadContext): undefined {
  const found = Array.isArray(written) ? "a list" : isJsonObject(written) ? "a section" : `a ${typeof written}`;
  problems.push({ path, message: `expected ${expected}, found ${found.replace("string", "plain text")}` });
  return undefined;
}

function readLeaf(schema: TSchema, notes: LeafNotes, written: unknown, path: Path, context: ReadContext): unknown {
  const value = typeof written === "string" ? readText(notes.kind, written) : written;
  const lacksUnit = notes.kind === "duration" && Number(written) > 0 && isNumeral(String(written));
  if (!lacksUnit && accepts(schema, notes, value))
    return notes.isPath ? resolve(context.folderOf?.(path) ?? ".", String(value)) : value;
  // A plain string that replaces the enclosing section becomes this value and has that section's path.
  const places = [formatPath(path), formatPath(path.slice(0, -1))];
  if (places.some((place) => context.unfilled.has(place))) return value;
  const isUnquoted = notes.kind === "text" && (typeof value === "number" || typeof value === "boolean");
  const { enum: choices } = schema as { readonly enum?: readonly string[] };
  const mayMean = choices && typeof value === "string" && !notes.isSecret ? didYouMean(value, choices) : "";
  const advice = isUnquoted ? "; put it in quotes if it is meant as text" : mayMean;
  const withVariables = places.map((place) => context.writtenText.get(place)).find((each) => each !== undefined);
  const shown = notes.isSecret ? mask : (withVariables ?? show(written));
  const digits = withVariables ?? String(written);
  context.problems.push({
    path,
    message: lacksUnit
      ? `${shown} has no unit; write ${digits}s or ${digits}ms`
      : `${shown} is not ${notes.expected}${advice}`,
  });
  return undefined;
}

function accepts(schema: TSchema, { range, word }: LeafNotes, value: unknown): boolean {
  if (range === undefined) return Value.Check(schema, value);
  return (
    (word !== undefined && value === word) ||
    (typeof value === "number" && value >= range.minimum && value <= range.maximum)
  );
}

/** Text that cannot be parsed stays text, which the schema then refuses. */
function readText(kind: LeafKind, text: string): unknown {
  if (kind === "duration") return parseDuration(text) ?? readNumber(text);
  if (kind === "size") return parseSize(text) ?? readNumber(text);
  if (kind === "integer" || kind === "number") return readNumber(text);
  if (kind === "boolean") return text === "true" ? true : text === "false" ? false : text;
  return text;
}

function readNumber(text: string): unknown {
  return isNumeral(text) ? Number(text) : text;
}

function isNumeral(text: string): boolean {
  return /^-?\d+(\.\d+)?$/.test(text);
}

/** Characters of a value that an error quotes. */
const maxShownLength = 80;

/** A value for a message: short, on one line, and without the credentials of a URL. */
function show(written: unknown): string {
  if (typeof written === "object" && written !== null) return Array.isArray(written) ? "a list" : "a section";
  const text = (typeof written === "string" ? JSON.stringify(written) : String(written)).replace(
    /\/\/[^/@]*@/g,
    `//${mask}@`,
  );
  return text.length <= maxShownLength ? text : `${text.slice(0, maxShownLength)}…`;
}
