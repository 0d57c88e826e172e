import type { IncomingMessage } from "node:http";
import { EspalierError } from "@espalier/common";

export interface BodyLimits {
  /** A longer body is refused, when its length is declared before anything of it is read. */
  readonly maxBytes: number;
  /** Told of each piece; what it returns ends the reading. */
  readonly onPiece?: ((bytes: number) => Error | undefined) | undefined;
}

/**
 * Reads a request body into one buffer. A body that comes in one piece, as nearly all do, is taken as it is: joining
 * would allocate and copy it once more.
 *
 * @param done called once, with EspalierError `body_too_large`, with what `onPiece` finds wrong, with the error of a
 *   connection that broke, or with the body
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
  const chunks: Buffer[] = [];
  let size = 0;
  const finish = (error: Error | null): void => {
    request.off("data", onData);
    request.off("end", onEnd);
    request.off("error", finish);
    if (error) done(error);
    else done(null, chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, size));
  };
  const onData = (chunk: Buffer): void => {
    size += chunk.length;
    const wrong = size > maxBytes ? new EspalierError("body_too_large") : onPiece?.(chunk.length);
    if (wrong) finish(wrong);
    else chunks.push(chunk);
  };
  const onEnd = (): void => finish(null);
  request.on("data", onData);
  request.on("end", onEnd);
  request.on("error", finish);
}
