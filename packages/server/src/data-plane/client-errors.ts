import type { Socket } from "node:net";
import { EspalierError } from "@espalier/common";
import type { OpenAnswers } from "../lifecycle/open-answers.ts";

/** What Node says of bytes that never became a request, with those of them that came last. */
export interface ClientError extends NodeJS.ErrnoException {
  readonly rawPacket?: unknown;
}

/**
 * Answers bytes that never became a request.
 *
 * @param maxHeaderBytes of a path and headers together
 */
export function answerClientError(
  openAnswers: OpenAnswers,
  error: ClientError,
  socket: Socket,
  maxHeaderBytes: number,
): void {
  if (socket.writable && error.code !== "ECONNRESET" && mayAnswer(openAnswers, socket)) {
    socket.end(rawErrorAnswer(fromClientError(error, maxHeaderBytes)));
  } else socket.destroy();
}

/** Node's codes (llhttp and its limits). */
function fromClientError({ code, rawPacket }: ClientError, maxHeaderBytes: number): EspalierError {
  switch (code) {
    case "HPE_HEADER_OVERFLOW":
      return new EspalierError(isLongPath(rawPacket, maxHeaderBytes) ? "uri_too_long" : "headers_too_large");
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new EspalierError("request_timeout");
    default:
      return new EspalierError("bad_request");
  }
}

/** Whether a request begins here whose first line is over the limit by itself. A line in several packets is not known as one. */
function isLongPath(packet: unknown, maxHeaderBytes: number): boolean {
  if (!Buffer.isBuffer(packet) || !/^[A-Z]+ /.test(packet.toString("latin1", 0, 16))) return false;
  const end = packet.indexOf("\n");
  return (end === -1 ? packet.length : end) > maxHeaderBytes;
}

/** An error of our own would be read as a part, or instead, of an answer that is under way. */
function mayAnswer(openAnswers: OpenAnswers, socket: Socket): boolean {
  return openAnswers.on(socket).every(({ headersSent, req }) => !headersSent && !req.complete);
}

/** There is no response object to write it with. */
function rawErrorAnswer(error: EspalierError): string {
  const { kind, code, message } = error;
  const body = JSON.stringify({ error: { message, type: kind.type, param: null, code } });
  return `HTTP/1.1 ${kind.status} Error\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`;
}
