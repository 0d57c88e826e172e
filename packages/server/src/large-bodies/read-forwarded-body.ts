import { isUtf8 } from "node:buffer";
import { EspalierError } from "@espalier/common";
import { findTransferField, reservedFieldNames, reservedWithinNames } from "@espalier/disaggregation";
import { type JsonBody, scanBody } from "@espalier/json-body";

/** Nesting up to which a body is read; Python's own reader ends at about this depth. */
const maxDepth = 1_000;

/** What is known of a body at a path of `forward-paths`. */
export interface ForwardedBody {
  readonly contentType: string | undefined;
  readonly trustsTransferFields: boolean;
}

/** @throws EspalierError `reserved_field` for a field that only a router may set */
export function refuseReserved(field: string | undefined): void {
  if (field === undefined) return;
  throw new EspalierError("reserved_field", `The field ${field} is for a router to set.`, { param: field });
}

/** Whether a body is a form. */
export function isForm(contentType: string | undefined): contentType is string {
  return contentType !== undefined && /^\s*(?:multipart\/|application\/x-www-form-urlencoded)/i.test(contentType);
}

/** Most bytes of a form's `model`. */
const maxModelBytes = 1_024;

/**
 * Reads a form, wherever its fields stand: a model's name may follow the file.
 *
 * @returns its `model`; undefined for none, and for a form that readers may cut in different ways
 * @throws EspalierError `reserved_field`, and `duplicate_key` for two models: an engine may take the other one
 */
export function readForwardedForm(
  form: Buffer,
  { contentType, trustsTransferFields }: ForwardedBody & { readonly contentType: string },
): string | undefined {
  const fields = fieldsOfForm(form, contentType);
  if (!fields) {
    if (!trustsTransferFields) refuseReserved([...reservedFieldNames].find((name) => form.includes(name)));
    return undefined;
  }
  let model: string | undefined;
  for (const [name, value] of fields) {
    if (!trustsTransferFields) refuseReserved(reservedIn(name, value));
    if (name !== "model") continue;
    if (model !== undefined) throw new EspalierError("duplicate_key", "The form has two models.", { param: "model" });
    model = value.toString("utf8", 0, maxModelBytes).trim();
  }
  return model === "" ? undefined : model;
}

/**
 * Reads a body that is no form.
 *
 * @returns the `model` of a JSON body
 * @throws EspalierError `reserved_field`, and `invalid_json` for a body that is called JSON
 */
export function readForwardedBody(
  bytes: Buffer,
  { contentType, trustsTransferFields }: ForwardedBody,
): string | undefined {
  const isJson = contentType?.startsWith("application/json") === true;
  if (!isJson && !beginsAsJson(bytes)) return undefined;
  const body = scan(bytes);
  if (!trustsTransferFields) refuseReserved(fieldOf(bytes, body));
  if (!isJson) return undefined;
  if (body === "invalid") throw new EspalierError("invalid_json");
  if (typeof body === "string") return undefined;
  const node = body.member("model");
  return node !== undefined && body.kindOf(node) === "string" ? body.textOf(node) : undefined;
}

const scan = (bytes: Buffer): ReturnType<typeof scanBody> => (isUtf8(bytes) ? scanBody(bytes, maxDepth) : "invalid");

/** Engines find out by themselves whether a text is UTF-8, UTF-16 or UTF-32, with or without a mark in front. */
const noText: ReadonlySet<number> = new Set([0x00, 0x09, 0x0a, 0x0d, 0x20, 0xef, 0xbb, 0xbf, 0xfe, 0xff]);
const jsonBrackets: ReadonlySet<number> = new Set([0x5b, 0x7b]);

function beginsAsJson(bytes: Buffer): boolean {
  const first = bytes.find((byte) => !noText.has(byte));
  return first !== undefined && jsonBrackets.has(first);
}

const escapedUnit = /\\u([0-9a-fA-F]{4})/g;

/**
 * Finds a reserved field in a text. Engines read texts that the scanner does not, such as lists, other encodings, or numbers that
 * are `NaN`; in these any string of a reserved name counts.
 */
function fieldOf(bytes: Buffer, body: JsonBody | string): string | undefined {
  if (typeof body !== "string") return findTransferField(body);
  const text = bytes
    .toString("latin1")
    .replaceAll("\0", "")
    .replace(escapedUnit, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)));
  return [...reservedFieldNames].find((name) => text.includes(`"${name}"`));
}

type FormField = readonly [name: string, value: Buffer];

/** @returns undefined for a form that readers may cut in different ways */
function fieldsOfForm(form: Buffer, contentType: string): Iterable<FormField> | undefined {
  if (!/^\s*multipart\//i.test(contentType)) {
    const fields = [...new URLSearchParams(form.toString("latin1"))];
    return fields.map(([name, value]) => [name, Buffer.from(value, "latin1")]);
  }
  const [boundary, ...others] = [...contentType.matchAll(/;\s*boundary(\*?)[^=;]*=\s*(?:"([^"]*)"|([^;\s]*))/gi)];
  const delimiter = boundary?.[2] ?? boundary?.[3];
  if (!delimiter || boundary?.[1] || others.length > 0) return undefined;
  return partsOf(form, `--${delimiter}`);
}

/** The reserved field that a form's field is or contains. */
function reservedIn(name: string, value: Buffer): string | undefined {
  if (reservedFieldNames.has(name)) return name;
  const inside = reservedWithinNames.has(name) ? fieldOf(value, scan(value)) : undefined;
  return inside === undefined ? undefined : `${name}.${inside}`;
}

const disposition = /^content-disposition:.*$/gim;
const nameIn = /;\s*name\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]*))/gi;

/** The names of a multipart body's fields, and what they contain with the lines around it. */
function* partsOf(form: Buffer, delimiter: string): Generator<FormField> {
  let at = form.indexOf(delimiter, 0, "latin1");
  while (at >= 0) {
    const from = at + delimiter.length;
    const next = form.indexOf(delimiter, from, "latin1");
    const part = form.subarray(from, next < 0 ? form.length : next);
    const end = ["\r\n\r\n", "\n\n"].map((blank) => part.indexOf(blank)).filter((found) => found >= 0);
    const valueAt = end.length > 0 ? Math.min(...end) : part.length;
    // Of two headers or two names readers may take either.
    for (const [line] of part.toString("latin1", 0, valueAt).matchAll(disposition)) {
      for (const [, quoted, plain] of line.matchAll(nameIn)) {
        yield [quoted?.replace(/\\(.)/g, "$1") ?? plain ?? "", part.subarray(valueAt)];
      }
    }
    at = next;
  }
}
