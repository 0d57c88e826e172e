import type { IncomingMessage } from "node:http";
import { EspalierError } from "@espalier/core";
import { StreamedBody } from "@espalier/engines";
import { FormFields } from "../large-bodies/form-fields.ts";

interface UploadTerms {
  readonly trustsTransferFields: boolean;
  /** A longer form is refused. */
  readonly maxBytes: number;
  /** Called with the size of each piece while the whole form is held; a returned error ends the reading. */
  readonly onPiece?: ((bytes: number) => Error | undefined) | undefined;
  /** The form passes on while the rest of it arrives: no more of it is held than a part. */
  readonly onStreaming: () => void;
}

/**
 * A form that a client sends. It is ready for an engine once its model and the beginning of its first file have come, whatever their
 * order; or else when it is complete. What follows is read on its way, before an engine has all of the form.
 */
export class Upload {
  readonly fields: FormFields;
  /** Declared, or what has come of a form in chunks. */
  sizeBytes: number;
  readonly #request: IncomingMessage;
  readonly #terms: UploadTerms;
  readonly #ready: (error: Error | null, upload?: Upload) => void;
  readonly #declaredBytes: number | undefined;
  #held: Buffer[] = [];
  #body: StreamedBody | undefined;
  #isOver = false;

  /**
   * @param ready called once, with the upload or with why there is none
   * @throws EspalierError `invalid_body` for a type without a boundary, and `body_too_large` for a length
   */
  constructor(request: IncomingMessage, terms: UploadTerms, ready: (error: Error | null, upload?: Upload) => void) {
    const { "content-type": contentType = "", "content-length": length } = request.headers;
    this.#request = request;
    this.#terms = terms;
    this.#ready = ready;
    this.#declaredBytes = length === undefined ? undefined : Number(length);
    this.sizeBytes = this.#declaredBytes ?? 0;
    if (this.sizeBytes > terms.maxBytes) throw new EspalierError("body_too_large");
    this.fields = new FormFields(contentType, terms.trustsTransferFields);
    request.on("data", this.#onData);
    request.on("end", this.#onEnd);
    request.on("error", this.#onError);
  }

  /** The form for engines. */
  get body(): StreamedBody {
    return this.#body!;
  }

  /** Writes another name of the model into the form; before it is sent. */
  rename(model: string): void {
    this.body.replace(this.fields.modelFrom, this.fields.modelTo, Buffer.from(model));
  }

  /** Its answer has ended: the rest is read and dropped, so that the connection can go on. */
  discard(): void {
    this.#isOver = true;
    this.#request.off("data", this.#onData);
    this.#request.resume();
  }

  readonly #onData = (chunk: Buffer): void => {
    if (this.#isOver) return;
    if (this.#declaredBytes === undefined) this.sizeBytes += chunk.length;
    try {
      if (this.sizeBytes > this.#terms.maxBytes) throw new EspalierError("body_too_large");
      const wrong = this.#body ? undefined : this.#terms.onPiece?.(chunk.length);
      if (wrong) throw wrong;
      this.fields.push(chunk);
    } catch (thrown) {
      this.#onError(thrown as Error);
      return;
    }
    if (this.#body) {
      if (!this.#body.push(chunk)) this.#request.pause();
      return;
    }
    this.#held.push(chunk);
    if (this.fields.model === undefined || this.fields.fileHash === undefined) return;
    this.#terms.onStreaming();
    this.#begin();
  };

  readonly #onEnd = (): void => {
    if (this.#isOver) return;
    try {
      this.fields.end();
    } catch (thrown) {
      this.#onError(thrown as Error);
      return;
    }
    this.#isOver = true;
    const isComplete = !this.#body;
    if (isComplete) this.#body = this.#createBody();
    this.#body!.end();
    if (isComplete) this.#ready(null, this);
  };

  readonly #onError = (error: Error): void => {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.#body) this.#body.fail(error);
    else this.#ready(error);
    this.#held = [];
  };

  #begin(): void {
    this.#body = this.#createBody();
    this.#ready(null, this);
  }

  #createBody(): StreamedBody {
    const body = new StreamedBody(this.#held, this.#declaredBytes);
    body.onDemand = () => void (this.#isOver || this.#request.resume());
    this.#held = [];
    return body;
  }
}
