import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type Cancel, EspalierError, type Scheduler } from "@espalier/core";
import type { FastifyInstance, FastifyRequest } from "fastify";

/** Unfinished answers by connection. */
export interface OpenAnswers {
  /**
   * Makes every answer of an application emit `close`, at the latest when its connection closes.
   *
   * @param closed called once for each, then
   */
  watch(app: FastifyInstance, closed?: (request: FastifyRequest) => void): void;
  on(socket: Socket): readonly ServerResponse[];
}

/**
 * Node assigns a connection to one answer at a time, and only that one emits `close` when the connection closes.
 * Answers to pipelined requests behind it would never emit it and their resources would leak, so they are closed here.
 */
export function createOpenAnswers(): OpenAnswers {
  // Arrays rather than sets: V8 retains the discarded tables of a set that changes with every request, with their
  // contents.
  const openAnswers = new WeakMap<Socket, ServerResponse[]>();

  const listOf = (socket: Socket): ServerResponse[] => {
    const known = openAnswers.get(socket);
    if (known) return known;
    const open: ServerResponse[] = [];
    openAnswers.set(socket, open);
    socket.once("close", () => {
      for (const response of [...open]) if (!response.closed) close(response);
    });
    return open;
  };
  return {
    watch(app, closed) {
      app.addHook("onRequest", (request, { raw: response }, done) => {
        const open = listOf(request.raw.socket);
        open.push(response);
        response.on("close", () => {
          const at = open.indexOf(response);
          if (at < 0) return;
          open.splice(at, 1);
          closed?.(request);
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

/** Pause between the first two probes; doubles after each further one. */
const firstPauseMs = 50;
/** Longest pause between two probes. */
const maxPauseMs = 5_000;
/**
 * A client with a half-closed connection counts as gone when its answer has begun and then been silent for this long.
 */
const maxSilenceMs = 1_000;

/**
 * Lets clients close their half of a connection after sending their request. A client that went away looks the same, so
 * the connection is probed with `100 Continue`: a waiting client ignores it, also one such as Python's http.client
 * that takes every other interim answer for the answer. The host of a lost client resets the
 * connection at the first probe; the next probe fails, and the request ends. Once the answer has begun, its chunks are
 * the probes. If it then pauses it is aborted, since an engine should not work for a client that is most likely gone.
 *
 * TLS connections end as a whole: Node does not half-close them.
 */
export function allowHalfClose(server: Server, openAnswers: OpenAnswers, scheduler: Scheduler): void {
  // Missing in the types. By default Node ends the requests of such a connection.
  Object.assign(server, { httpAllowHalfOpen: true });
  server.on("connection", (socket: Socket) => {
    socket.once("end", () => {
      const [answer] = openAnswers.on(socket);
      if (!answer) return;
      if (answer.headersSent) endWhenSilent(answer, socket, scheduler);
      // HTTP/1.0 has no interim responses.
      else if (answer.req.httpVersion === "1.1") probeClient(answer, socket, scheduler);
      else socket.destroy();
    });
  });
}

function probeClient(answer: ServerResponse, socket: Socket, scheduler: Scheduler): void {
  let cancel: Cancel = () => {};
  const tryAfter = (pauseMs: number): void => {
    if (answer.destroyed) return;
    if (answer.headersSent) {
      endWhenSilent(answer, socket, scheduler);
      return;
    }
    answer.writeContinue();
    cancel = scheduler.after(pauseMs, () => tryAfter(Math.min(2 * pauseMs, maxPauseMs)));
  };
  answer.once("close", () => cancel());
  tryAfter(firstPauseMs);
}

function endWhenSilent(answer: ServerResponse, socket: Socket, scheduler: Scheduler): void {
  let cancel: Cancel = () => {};
  const watch = (writtenBytes: number): void => {
    cancel = scheduler.after(maxSilenceMs, () => {
      // Bytes buffered for a slow reader are not silence.
      if (socket.bytesWritten > writtenBytes || answer.writableLength > 0) watch(socket.bytesWritten);
      else socket.destroy();
    });
  };
  answer.once("close", () => cancel());
  watch(socket.bytesWritten);
}

/** A client that sends nothing for this long waits for the answer or is gone. */
const quietMs = 1_000;
/** Longest time that the rest of a rejected request's body is read. */
const maxLingerMs = 10_000;

/**
 * Reads and drops the rest of a refused body. Closing a connection with unread bytes resets it before the client reads
 * the refusal.
 *
 * @param done called once: when the body has ended, the client is silent, or ten seconds have passed
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

/** Node's error for bytes that do not form a request, with the last packet. */
export interface ClientError extends NodeJS.ErrnoException {
  readonly rawPacket?: unknown;
}

/**
 * Answers bytes that do not form a request.
 *
 * @param maxHeaderBytes limit of path and headers together
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

/** Whether the first line alone exceeds the limit. Lines spread over several packets are not recognised. */
function isLongPath(packet: unknown, maxHeaderBytes: number): boolean {
  if (!Buffer.isBuffer(packet) || !/^[A-Z]+ /.test(packet.toString("latin1", 0, 16))) return false;
  const end = packet.indexOf("\n");
  return (end === -1 ? packet.length : end) > maxHeaderBytes;
}

/** False while another answer is in progress: the client would read the error as a part of it. */
function mayAnswer(openAnswers: OpenAnswers, socket: Socket): boolean {
  return openAnswers.on(socket).every(({ headersSent, req }) => !headersSent && !req.complete);
}

/** Node provides no response object to write it with. */
function rawErrorAnswer(error: EspalierError): string {
  const { kind, code, message } = error;
  const body = JSON.stringify({ error: { message, type: kind.type, param: null, code } });
  return `HTTP/1.1 ${kind.status} Error\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`;
}
