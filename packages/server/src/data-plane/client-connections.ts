import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type Cancel, EspalierError, type Scheduler } from "@espalier/common";
import type { FastifyInstance } from "fastify";

/** From the first word to the second one, and from then on twice as long each time. */
const firstPauseMs = 50;
const maxPauseMs = 5_000;
/** A client that has closed its half is gone when its answer, once begun, has had nothing new for so long. */
const maxSilenceMs = 1_000;

/**
 * Lets clients close their half of a connection once they have sent their request. A client that is gone looks the same at
 * first, so it is sent `102 Processing` now and then, which means nothing to one that waits: the system of one that is gone
 * resets the connection at the first, the next one fails of that, and the request ends. Where the answer has begun, its pieces
 * do the same, and one that pauses is given up: an engine must not go on for somebody who most likely is not there.
 *
 * Connections with TLS end as a whole; Node has no half of them.
 */
export function allowHalfClose(server: Server, openAnswers: OpenAnswers, scheduler: Scheduler): void {
  // Not among the types; by default Node ends the requests of such a connection.
  Object.assign(server, { httpAllowHalfOpen: true });
  server.on("connection", (socket: Socket) => {
    socket.once("end", () => {
      const [answer] = openAnswers.on(socket);
      if (!answer) return;
      if (answer.headersSent) endWhenSilent(answer, socket, scheduler);
      // Older clients know no answers before the answer.
      else if (answer.req.httpVersion === "1.1") tryNowAndThen(answer, socket, scheduler);
      else socket.destroy();
    });
  });
}

function tryNowAndThen(answer: ServerResponse, socket: Socket, scheduler: Scheduler): void {
  let cancel: Cancel = () => {};
  const tryAfter = (pauseMs: number): void => {
    if (answer.destroyed) return;
    if (answer.headersSent) {
      endWhenSilent(answer, socket, scheduler);
      return;
    }
    answer.writeProcessing();
    cancel = scheduler.after(pauseMs, () => tryAfter(Math.min(2 * pauseMs, maxPauseMs)));
  };
  answer.once("close", () => cancel());
  tryAfter(firstPauseMs);
}

function endWhenSilent(answer: ServerResponse, socket: Socket, scheduler: Scheduler): void {
  let cancel: Cancel = () => {};
  const watch = (writtenBytes: number): void => {
    cancel = scheduler.after(maxSilenceMs, () => {
      // What waits for a client that reads slowly is no silence.
      if (socket.bytesWritten > writtenBytes || answer.writableLength > 0) watch(socket.bytesWritten);
      else socket.destroy();
    });
  };
  answer.once("close", () => cancel());
  watch(socket.bytesWritten);
}

/** A client that has sent nothing for so long waits for the answer, or is gone. */
const quietMs = 1_000;
const maxLingerMs = 10_000;

/**
 * Reads on and drops what a client still sends of a body that was refused. A connection that is closed with unread bytes in it
 * is reset, and the reset takes the refusal with it, which the client then never reads.
 *
 * @param done called once: the body has ended, the client is silent, or it has had ten seconds
 */
export function linger(request: IncomingMessage, scheduler: Scheduler, done: () => void): void {
  let isQuiet = false;
  let quietLooks = 0;
  const finish = (): void => {
    cancel();
    request.off("data", onData);
    request.off("close", finish);
    request.off("end", finish);
    done();
  };
  const cancel = scheduler.every(quietMs, () => {
    quietLooks += 1;
    if (isQuiet || quietLooks * quietMs >= maxLingerMs) finish();
    isQuiet = true;
  });
  const onData = (): void => {
    isQuiet = false;
  };
  request.on("data", onData);
  request.once("end", finish);
  request.once("close", finish);
  request.resume();
}

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
