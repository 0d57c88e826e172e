import { isUtf8 } from "node:buffer";
import { EspalierError, type JsonBody, scanBody } from "@espalier/core";
import { findTransferField, reservedFieldNames, reservedWithinNames } from "@espalier/routing";

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
  throw new EspalierError("reserved_field", `Only a router may set the field ${field}.`, { param: field });
}

/** Most bytes of a form's `model`. */
const maxModelBytes = 1_024;
/** Most fields of a form. Starlette, which reads forms for vLLM and SGLang, takes 1,000 and as many files. */
const maxFormFields = 4_096;
/** Most bytes of the headers of a form's part. */
const maxPartHeadBytes = 65_536;

/**
 * Reads a body as engines read it.
 *
 * @returns the `model` of a JSON body or a form
 * @throws EspalierError `reserved_field`; `invalid_json` for a body that is called JSON; for a form `duplicate_key` if it has two
 *   models, and `invalid_body` if readers may find other fields in it
 */
export function readForwardedBody(bytes: Buffer, forwarded: ForwardedBody): string | undefined {
  const { contentType, trustsTransferFields } = forwarded;
  const isForm =
    contentType !== undefined && /^\s*(?:multipart\/|application\/x-www-form-urlencoded)/i.test(contentType);
  if (isForm) return readForm(fieldsOfForm(bytes, contentType), trustsTransferFields);
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

/** Reads all fields, since a model's name may follow the file. */
function readForm(fields: Iterable<FormField>, trustsTransferFields: boolean): string | undefined {
  let model: string | undefined;
  let count = 0;
  for (const [name, value] of fields) {
    if (++count > maxFormFields) throw unclearForm(`The form has more than ${maxFormFields} fields.`);
    if (!trustsTransferFields) refuseReserved(reservedIn(name, value));
    if (name !== "model") continue;
    // An engine may take the other one.
    if (model !== undefined)
      throw new EspalierError("duplicate_key", "Duplicate field model in the form.", { param: "model" });
    model = value.toString("utf8", 0, maxModelBytes).trim();
  }
  return model === "" ? undefined : model;
}

const unclearForm = (message: string): EspalierError => new EspalierError("invalid_body", message);

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

function* fieldsOfForm(form: Buffer, contentType: string): Generator<FormField> {
  if (/^\s*multipart\//i.test(contentType)) {
    const [boundary, ...others] = [...contentType.matchAll(/;\s*boundary(\*?)[^=;]*=\s*(?:"([^"]*)"|([^;\s]*))/gi)];
    const delimiter = boundary?.[2] ?? boundary?.[3];
    if (!delimiter || boundary?.[1] || others.length > 0) throw unclearForm("Invalid boundary of the form.");
    yield* partsOf(form, `--${delimiter}`);
    return;
  }
  const text = form.toString();
  // Some readers, among them python-multipart 0.0.20, take it for `&`.
  if (text.includes(";")) throw unclearForm("The form has an unescaped semicolon.");
  for (const field of text.split("&", maxFormFields + 1)) {
    for (const [name, value] of new URLSearchParams(field)) yield [name, Buffer.from(value)];
  }
}

/** The reserved field that a form's field is or contains. */
function reservedIn(name: string, value: Buffer): string | undefined {
  if (reservedFieldNames.has(name)) return name;
  const inside = reservedWithinNames.has(name) ? fieldOf(value, scan(value)) : undefined;
  return inside === undefined ? undefined : `${name}.${inside}`;
}

const disposition = /^content-disposition:.*$/gim;
const nameIn = /;\s*name\s*(\*[^=;]*)?=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]*))/gi;

/** The names of a multipart body's fields, and what they contain with the lines around it. A part without a name has an empty one. */
function* partsOf(form: Buffer, delimiter: string): Generator<FormField> {
  let at = form.indexOf(delimiter, 0, "latin1");
  while (at >= 0) {
    const from = at + delimiter.length;
    const next = form.indexOf(delimiter, from, "latin1");
    const part = form.subarray(from, next < 0 ? form.length : next);
    const start = part.subarray(0, maxPartHeadBytes);
    const end = ["\r\n\r\n", "\n\n"].map((blank) => start.indexOf(blank)).filter((found) => found >= 0);
    const valueAt = end.length > 0 ? Math.min(...end) : part.length;
    if (valueAt > maxPartHeadBytes) throw unclearForm("The headers of a part of the form are too long.");
    const value = part.subarray(valueAt);
    let isNamed = false;
    // Of two headers or two names readers may take either.
    for (const [line] of part.toString("latin1", 0, valueAt).matchAll(disposition)) {
      for (const [, encoding, quoted, plain] of line.matchAll(nameIn)) {
        // RFC 7578 section 5.1.3 knows none; Python's readers decode it.
        if (encoding !== undefined) throw unclearForm("The name of a field in the form is encoded.");
        isNamed = true;
        yield [quoted?.replace(/\\(.)/g, "$1") ?? plain ?? "", value];
      }
    }
    if (!isNamed) yield ["", value];
    at = next;
  }
}
