import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { FastifyInstance } from "fastify";

/** The answers that have not ended, by the connection on which they go. */
export interface OpenAnswers {
  /** Has every answer of an application close, at the latest with its connection. */
  watch(app: FastifyInstance): void;
  on(socket: Socket): readonly ServerResponse[];
}

/**
 * Node gives a connection to one answer at a time, and tells only that one when the connection closes. The answers to
 * requests that were pipelined behind it would never emit `close`, by which everything that is counted for a request is
 * given back. So they are closed here.
 */
export function createOpenAnswers(): OpenAnswers {
  // Arrays and not sets: V8 keeps the discarded tables of a set that changes with every request, and what they held.
  const openAnswers = new WeakMap<Socket, ServerResponse[]>();

  const listOf = (socket: Socket): ServerResponse[] => {
    const known = openAnswers.get(socket);
    if (known) return known;
    const open: ServerResponse[] = [];
    openAnswers.set(socket, open);
    socket.once("close", () => {
      for (const response of open.splice(0)) if (!response.closed) close(response);
    });
    return open;
  };
  return {
    watch(app) {
      app.addHook("onRequest", ({ raw: { socket } }, { raw: response }, done) => {
        const open = listOf(socket);
        open.push(response);
        response.once("close", () => {
          const at = open.indexOf(response);
          if (at >= 0) open.splice(at, 1);
        });
        done();
      });
    },
    on: (socket) => openAnswers.get(socket) ?? [],
  };
}

function close(response: ServerResponse): void {
  response.destroy();
  response.emit("close");
}
