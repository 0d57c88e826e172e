import { isUtf8 } from "node:buffer";
import { EspalierError, type JsonBody, scanBody } from "@espalier/core";
import { findTransferField, reservedFieldNames, reservedWithinNames } from "@espalier/routing";

/** Nesting up to which a body is read; Python's own reader ends at about this depth. */
const maxDepth = 1_000;

/** @throws EspalierError `reserved_field` for a field that only a router may set */
export function refuseReserved(field: string | undefined): void {
  if (field === undefined) return;
  throw new EspalierError("reserved_field", `Only a router may set the field ${field}.`, { param: field });
}

/** @returns why a text is not read, in place of a body */
export const scan = (bytes: Buffer): ReturnType<typeof scanBody> =>
  isUtf8(bytes) ? scanBody(bytes, maxDepth) : "invalid";

/** Engines find out by themselves whether a text is UTF-8, UTF-16 or UTF-32, with or without a mark in front. */
const noText: ReadonlySet<number> = new Set([0x00, 0x09, 0x0a, 0x0d, 0x20, 0xef, 0xbb, 0xbf, 0xfe, 0xff]);
const jsonBrackets: ReadonlySet<number> = new Set([0x5b, 0x7b]);

/** Whether an engine may take a body for JSON. */
export function beginsAsJson(bytes: Buffer): boolean {
  const first = bytes.find((byte) => !noText.has(byte));
  return first !== undefined && jsonBrackets.has(first);
}

const escapedUnit = /\\u([0-9a-fA-F]{4})/g;

/**
 * Finds a reserved field in a text. Engines read texts that the scanner does not, such as lists, other encodings, or numbers that
 * are `NaN`; in these any string of a reserved name counts.
 */
export function fieldOf(bytes: Buffer, body: JsonBody | string): string | undefined {
  if (typeof body !== "string") return findTransferField(body);
  const text = bytes
    .toString("latin1")
    .replaceAll("\0", "")
    .replace(escapedUnit, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)));
  return [...reservedFieldNames].find((name) => text.includes(`"${name}"`));
}

/** Whether a form's field is reserved by its name. */
export const isReservedField = (name: string): boolean => reservedFieldNames.has(name);

/** Whether other fields are reserved inside this one. */
export const reservesWithin = (name: string): boolean => reservedWithinNames.has(name);

/** The reserved field inside a form's field. */
export function findReservedWithin(name: string, value: Buffer): string | undefined {
  const inside = fieldOf(value, scan(value));
  return inside === undefined ? undefined : `${name}.${inside}`;
}
