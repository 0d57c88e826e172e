import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { EspalierError } from "@espalier/common";
import type { FastifyInstance } from "fastify";
import { fromClientError } from "./error-reply.ts";

/** Answers bytes that never became a request. */
export interface ClientErrors {
  /** Has the answers of an application watched, so that none is broken into. */
  watch(app: FastifyInstance): void;
  handle(error: NodeJS.ErrnoException, socket: Socket): void;
}

export function createClientErrors(): ClientErrors {
  // Arrays and not sets: V8 keeps the discarded tables of a set that changes with every request, and what they held.
  const openAnswers = new WeakMap<Socket, ServerResponse[]>();

  /** An error of our own would be read as a part, or instead, of an answer that is under way. */
  const mayAnswer = (socket: Socket): boolean => {
    for (const response of openAnswers.get(socket) ?? []) {
      if (response.headersSent || response.req.complete) return false;
    }
    return true;
  };
  return {
    watch(app) {
      app.addHook("onRequest", (request, reply, done) => {
        const { socket } = request.raw;
        const open = openAnswers.get(socket) ?? [];
        if (open.length === 0) openAnswers.set(socket, open);
        open.push(reply.raw);
        reply.raw.once("close", () => open.splice(open.indexOf(reply.raw), 1));
        done();
      });
    },
    handle(error, socket) {
      if (socket.writable && error.code !== "ECONNRESET" && mayAnswer(socket)) {
        socket.end(rawErrorAnswer(fromClientError(error)));
      } else socket.destroy();
    },
  };
}

/** There is no response object to write it with. */
function rawErrorAnswer(error: EspalierError): string {
  const { kind, code, message } = error;
  const body = JSON.stringify({ error: { message, type: kind.type, param: null, code } });
  return `HTTP/1.1 ${kind.status} Error\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`;
}
