import { EspalierError } from "@espalier/core";
import { FormFields } from "./form-fields.ts";
import { unclearForm } from "./form-scanner.ts";
import {
  beginsAsJson,
  fieldOf,
  findReservedWithin,
  isReservedField,
  refuseReserved,
  reservesWithin,
  scan,
} from "./reserved-fields.ts";

/** What is known of a body at a path of `forward-paths`. */
export interface ForwardedBody {
  readonly contentType: string | undefined;
  readonly trustsTransferFields: boolean;
}

/** Most bytes of a form's `model`. */
const maxModelBytes = 1_024;
/** Most fields of a form. */
const maxFormFields = 4_096;

/** Whether a content type is that of a form in parts. */
export const isMultipart = (contentType: string | undefined): boolean => /^\s*multipart\//i.test(contentType ?? "");

/**
 * Reads a body as engines read it.
 *
 * @returns the `model` of a JSON body or a form
 * @throws EspalierError `reserved_field`; `invalid_json` for a body that is called JSON; for a form `duplicate_key` if it has two
 *   models, and `invalid_body` if readers may find other fields in it
 */
export function readForwardedBody(bytes: Buffer, forwarded: ForwardedBody): string | undefined {
  const { contentType, trustsTransferFields } = forwarded;
  if (isMultipart(contentType)) {
    const fields = new FormFields(contentType ?? "", trustsTransferFields);
    fields.push(bytes);
    fields.end();
    return fields.model;
  }
  if (contentType !== undefined && /^\s*application\/x-www-form-urlencoded/i.test(contentType))
    return readForm(bytes.toString(), trustsTransferFields);
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

/** A form in one line. */
function readForm(text: string, trustsTransferFields: boolean): string | undefined {
  // Some readers, among them python-multipart 0.0.20, take it for `&`.
  if (text.includes(";")) throw unclearForm("The form has an unescaped semicolon.");
  let model: string | undefined;
  let count = 0;
  for (const field of text.split("&", maxFormFields + 1)) {
    for (const [name, value] of new URLSearchParams(field)) {
      if (++count > maxFormFields) throw unclearForm(`The form has more than ${maxFormFields} fields.`);
      const bytes = Buffer.from(value);
      if (!trustsTransferFields && isReservedField(name)) refuseReserved(name);
      if (!trustsTransferFields && reservesWithin(name)) refuseReserved(findReservedWithin(name, bytes));
      if (name !== "model") continue;
      // An engine may take the other one.
      if (model !== undefined)
        throw new EspalierError("duplicate_key", "Duplicate field model in the form.", { param: "model" });
      model = bytes.toString("utf8", 0, maxModelBytes).trim();
    }
  }
  return model === "" ? undefined : model;
}
