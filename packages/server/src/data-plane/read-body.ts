import type { IncomingMessage } from "node:http";
import { EspalierError, isJsonObject } from "@espalier/core";
import { maxInlineBytes } from "../large-bodies/large-bodies.ts";

export interface BodyLimits {
  /** A longer body is refused, before any of it is read if its length is declared. */
  readonly maxBytes: number;
  /** Called with the size of each piece; a returned error ends the reading. */
  readonly onPiece?: ((bytes: number) => Error | undefined) | undefined;
}

/**
 * Reads a request body into one buffer. Nearly all bodies come in one piece, which is used as it is: joining would
 * allocate and copy it again. A body that the worker thread is sure to read goes into shared memory.
 *
 * @param done called once: with EspalierError `body_too_large`, the error from `onPiece`, the error of a broken
 *   connection, or the body
 */
export function readBody(
  request: IncomingMessage,
  { maxBytes, onPiece }: BodyLimits,
  done: (error: Error | null, body?: Buffer) => void,
): void {
  if (Number(request.headers["content-length"] ?? 0) > maxBytes) {
    done(new EspalierError("body_too_large"));
    return;
  }
  // The client left while the request waited to be read: nothing comes of it any more.
  if (request.errored) {
    done(request.errored);
    return;
  }
  const pieces = new BodyPieces(Number(request.headers["content-length"] ?? 0));
  const finish = (error: Error | null): void => {
    request.off("data", onData);
    request.off("end", onEnd);
    request.off("error", finish);
    if (error) done(error);
    else done(null, pieces.whole());
  };
  const onData = (chunk: Buffer): void => {
    const wrong =
      pieces.sizeBytes + chunk.length > maxBytes ? new EspalierError("body_too_large") : onPiece?.(chunk.length);
    if (wrong) finish(wrong);
    else pieces.add(chunk);
  };
  const onEnd = (): void => finish(null);
  request.on("data", onData);
  request.on("end", onEnd);
  request.on("error", finish);
}

/** Joins the pieces of a large body as they arrive, since joining 30 MB at once takes 10 ms and more. */
export class BodyPieces {
  readonly #pieces: Buffer[] = [];
  #joined: Buffer | undefined;
  #sizeBytes = 0;

  /** @param declaredBytes 0 when the length is not declared */
  constructor(declaredBytes: number) {
    if (declaredBytes > maxInlineBytes) this.#joined = sharedBuffer(declaredBytes);
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  add(piece: Buffer): void {
    const from = this.#sizeBytes;
    this.#sizeBytes += piece.length;
    if (!this.#joined && this.#sizeBytes <= maxInlineBytes) {
      this.#pieces.push(piece);
      return;
    }
    if (!this.#joined || this.#joined.length < this.#sizeBytes) this.#grow(from);
    piece.copy(this.#joined!, from);
  }

  whole(): Buffer {
    if (this.#joined) return this.#joined.subarray(0, this.#sizeBytes);
    return this.#pieces.length === 1 ? this.#pieces[0]! : Buffer.concat(this.#pieces, this.#sizeBytes);
  }

  #grow(filledBytes: number): void {
    const larger = sharedBuffer(2 * this.#sizeBytes);
    const before = this.#joined ?? Buffer.concat(this.#pieces.splice(0), filledBytes);
    before.copy(larger, 0, 0, filledBytes);
    this.#joined = larger;
  }
}

/** The memory is touched, and thus committed, as the body arrives. */
const sharedBuffer = (sizeBytes: number): Buffer => Buffer.from(new SharedArrayBuffer(sizeBytes));

/** @throws EspalierError for a body that is no JSON object */
export function readObject(body: unknown): Readonly<Record<string, unknown>> {
  if (!Buffer.isBuffer(body) || body.length === 0) return {};
  let value: unknown;
  try {
    value = JSON.parse(body.toString("utf8"));
  } catch (error) {
    throw new EspalierError("invalid_json", undefined, { cause: error });
  }
  if (!isJsonObject(value)) throw new EspalierError("invalid_body");
  return value;
}
