import { EspalierError } from "@espalier/core";

/** Most bytes of the headers of a form's part. */
const maxPartHeadBytes = 65_536;

/** One part of a form. */
export interface FormPart {
  /** Each name that its headers give it; one empty name for none. Of two, readers may take either. */
  readonly names: readonly string[];
  readonly isFile: boolean;
  /** Where its value begins in the form, with the blank line before it. */
  readonly from: number;
}

/** Told of the parts of a form, in order. */
export interface FormListener {
  /** @returns most bytes of its value that `ended` gets */
  begun(part: FormPart): number;
  /** More bytes of a value, with the blank line before it. */
  passed(part: FormPart, bytes: Buffer): void;
  /** @param value its beginning, with the lines around it */
  ended(part: FormPart, value: Buffer): void;
}

export const unclearForm = (message: string): EspalierError => new EspalierError("invalid_body", message);

/**
 * Reads a multipart form as its bytes arrive. Nothing but the heads of parts and the values that its listener asks for is kept.
 *
 * It takes the delimiter for one wherever it stands, which finds a field that any reader may find.
 */
export class FormScanner {
  /** Where the bytes in `#pending` begin. */
  #position = 0;
  #pending: Buffer = Buffer.alloc(0);
  #state: "preamble" | "head" | "value" = "preamble";
  #part: FormPart | undefined;
  #kept: Buffer[] = [];
  #missing = 0;
  readonly #delimiter: Buffer;
  readonly #listener: FormListener;

  /** @throws EspalierError `invalid_body` if the form's type has no boundary, or an ambiguous one */
  constructor(contentType: string, listener: FormListener) {
    const [boundary, ...others] = [...contentType.matchAll(/;\s*boundary(\*?)[^=;]*=\s*(?:"([^"]*)"|([^;\s]*))/gi)];
    const text = boundary?.[2] ?? boundary?.[3];
    if (!text || boundary?.[1] || others.length > 0) throw unclearForm("Invalid boundary of the form.");
    this.#delimiter = Buffer.from(`--${text}`, "latin1");
    this.#listener = listener;
  }

  /** @throws EspalierError `invalid_body`, and what its listener throws */
  push(chunk: Buffer): void {
    this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    while (this.#state === "head" ? this.#readHead() : this.#readValue());
  }

  /** The form is complete. @throws as `push` does */
  end(): void {
    if (this.#state === "head") this.#endHead(this.#pending.length);
    if (this.#state !== "value") return;
    this.#take(this.#pending.length);
    this.#endPart();
  }

  /** @returns whether there may be more to read */
  #readValue(): boolean {
    const at = this.#pending.indexOf(this.#delimiter);
    // The delimiter may have begun in the last bytes.
    this.#take(at < 0 ? Math.max(0, this.#pending.length - this.#delimiter.length + 1) : at);
    if (at < 0) return false;
    if (this.#state === "value") this.#endPart();
    this.#skip(this.#delimiter.length);
    this.#state = "head";
    return true;
  }

  #readHead(): boolean {
    const end = this.#pending.indexOf(this.#delimiter);
    const start = this.#pending.subarray(0, Math.min(end < 0 ? this.#pending.length : end, maxPartHeadBytes));
    const blanks = ["\r\n\r\n", "\n\n"].map((blank) => start.indexOf(blank)).filter((found) => found >= 0);
    if (blanks.length > 0) {
      this.#beginPart(Math.min(...blanks));
      return true;
    }
    if (end >= 0) {
      this.#endHead(end);
      this.#endPart();
      this.#skip(this.#delimiter.length);
      this.#state = "head";
      return true;
    }
    if (this.#pending.length > maxPartHeadBytes + this.#delimiter.length) throw longHead();
    return false;
  }

  /** A part that is a head only. */
  #endHead(length: number): void {
    if (length > maxPartHeadBytes) throw longHead();
    this.#beginPart(length);
  }

  #beginPart(headLength: number): void {
    const head = this.#pending.toString("latin1", 0, headLength);
    this.#skip(headLength);
    this.#part = { ...readHead(head), from: this.#position };
    this.#missing = this.#listener.begun(this.#part);
    this.#kept = [];
    this.#state = "value";
  }

  #endPart(): void {
    this.#listener.ended(this.#part!, Buffer.concat(this.#kept));
    this.#kept = [];
    this.#part = undefined;
  }

  #take(length: number): void {
    if (length === 0) return;
    const bytes = this.#pending.subarray(0, length);
    if (this.#part) {
      if (this.#missing > 0) this.#kept.push(bytes.subarray(0, this.#missing));
      this.#missing = Math.max(0, this.#missing - length);
      this.#listener.passed(this.#part, bytes);
    }
    this.#skip(length);
  }

  #skip(length: number): void {
    this.#position += length;
    this.#pending = this.#pending.subarray(length);
  }
}

const longHead = (): EspalierError => unclearForm("The headers of a part of the form are too long.");

const disposition = /^content-disposition:.*$/gim;
const nameIn = /;\s*name\s*(\*[^=;]*)?=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]*))/gi;
const fileIn = /;\s*filename\s*\*?[^=;]*=/i;

function readHead(head: string): Pick<FormPart, "names" | "isFile"> {
  const names: string[] = [];
  let isFile = false;
  for (const [line] of head.matchAll(disposition)) {
    isFile ||= fileIn.test(line);
    for (const [, encoding, quoted, plain] of line.matchAll(nameIn)) {
      // RFC 7578 section 5.1.3 knows none; Python's readers decode it.
      if (encoding !== undefined) throw unclearForm("The name of a field in the form is encoded.");
      names.push(quoted?.replace(/\\(.)/g, "$1") ?? plain ?? "");
    }
  }
  return { names: names.length > 0 ? names : [""], isFile };
}
