import { createTextHasher, EspalierError, type Hash64 } from "@espalier/core";
import { type FormListener, type FormPart, FormScanner, unclearForm } from "./form-scanner.ts";
import { findReservedWithin, isReservedField, refuseReserved, reservesWithin } from "./reserved-fields.ts";

/** Most bytes of a form's `model`, and of other short fields. */
const maxModelBytes = 1_024;
/** Most fields of a form. Starlette, which reads forms for vLLM and SGLang, takes 1,000 and as many files. */
const maxFormFields = 4_096;
/** Most bytes of a field in which others are reserved: Starlette's own limit for a field that is no file. */
const maxReadFieldBytes = 1_048_576;
/** Most bytes of a file by which it is recognized. */
const maxHashedBytes = 65_536;

/** What the router reads of a multipart form, as it arrives. */
export class FormFields implements FormListener {
  model: string | undefined;
  /** Where the model's name stands in the form. */
  modelFrom = 0;
  modelTo = 0;
  /** Whether the answer is asked for as a stream. */
  isStreamed = false;
  /** Of the beginning of the first file; undefined without one, and until enough of it has come. */
  fileHash: Hash64 | undefined;
  readonly #trustsTransferFields: boolean;
  readonly #scanner: FormScanner;
  readonly #hasher = createTextHasher();
  #hashedBytes = 0;
  #file: FormPart | undefined;
  #hasModel = false;
  #count = 0;

  /** @throws EspalierError `invalid_body` */
  constructor(contentType: string, trustsTransferFields: boolean) {
    this.#trustsTransferFields = trustsTransferFields;
    this.#scanner = new FormScanner(contentType, this);
  }

  /**
   * @throws EspalierError `reserved_field`, `duplicate_key` if it has two models, and `invalid_body` if readers may find other fields
   *   in it
   */
  push(chunk: Buffer): void {
    this.#scanner.push(chunk);
  }

  /** The form is complete. @throws EspalierError as `push` does */
  end(): void {
    this.#scanner.end();
  }

  begun(part: FormPart): number {
    let kept = 0;
    for (const name of part.names) {
      this.#count += 1;
      if (this.#count > maxFormFields) throw unclearForm(`The form has more than ${maxFormFields} fields.`);
      if (!this.#trustsTransferFields && isReservedField(name)) refuseReserved(name);
      // An engine may take the other one.
      if (name === "model" && this.#hasModel)
        throw new EspalierError("duplicate_key", "Duplicate field model in the form.", { param: "model" });
      if (name === "model") this.#hasModel = true;
      if (name === "model" || name === "stream") kept = Math.max(kept, maxModelBytes);
      if (!this.#trustsTransferFields && reservesWithin(name)) kept = maxReadFieldBytes + 1;
    }
    if (part.isFile) this.#file ??= part;
    return kept;
  }

  passed(part: FormPart, bytes: Buffer): void {
    if (part !== this.#file || this.fileHash) return;
    const read = bytes.subarray(0, maxHashedBytes - this.#hashedBytes);
    this.#hasher.update(read);
    this.#hashedBytes += read.length;
    if (this.#hashedBytes === maxHashedBytes) this.#hashed();
  }

  ended(part: FormPart, value: Buffer): void {
    if (part === this.#file && !this.fileHash) this.#hashed();
    for (const name of part.names) {
      if (name === "model") this.#readModel(part, value);
      if (name === "stream") this.isStreamed = /^(?:true|1|on|yes|t|y)$/i.test(value.toString("latin1").trim());
      if (this.#trustsTransferFields || !reservesWithin(name)) continue;
      if (value.length > maxReadFieldBytes) throw unclearForm(`The field ${name} of the form is too long.`);
      refuseReserved(findReservedWithin(name, value));
    }
  }

  #hashed(): void {
    this.fileHash = { low: this.#hasher.low, high: this.#hasher.high };
  }

  #readModel({ from }: FormPart, value: Buffer): void {
    const bytes = value.subarray(0, maxModelBytes);
    this.modelFrom = from + bytes.findIndex(isInk);
    this.modelTo = from + bytes.findLastIndex(isInk) + 1;
    this.model = bytes.toString("utf8").trim() || undefined;
  }
}

/** Whether a byte is neither white space nor a control character. */
const isInk = (byte: number): boolean => byte > 0x20;
