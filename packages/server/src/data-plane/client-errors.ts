import type { Socket } from "node:net";
import type { EspalierError } from "@espalier/common";
import type { OpenAnswers } from "../lifecycle/open-answers.ts";
import { fromClientError } from "./error-reply.ts";

/** Answers bytes that never became a request. */
export function answerClientError(openAnswers: OpenAnswers, error: NodeJS.ErrnoException, socket: Socket): void {
  if (socket.writable && error.code !== "ECONNRESET" && mayAnswer(openAnswers, socket)) {
    socket.end(rawErrorAnswer(fromClientError(error)));
  } else socket.destroy();
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
