import type { AddressInfo } from "node:net";
import { createServer, type Server, type Socket } from "node:net";
import type { Scheduler } from "@espalier/common";
import { chatAnswer, engineMetrics, modelsAnswer, sizedAnswer, streamPieces } from "./engine-bytes.ts";
import { type StreamShape, streamMark } from "./prepared-request.ts";
import { renderProcessUsage } from "./process-usage.ts";

/** An engine that answers at once with prepared bytes, so that what is measured is what stands in front of it. */
export interface BenchEngine {
  readonly urls: readonly string[];
  stop(): Promise<void>;
}

/** A head that is longer ends its connection. */
const maxHeadBytes = 65_536;
const headEnd = "\r\n\r\n";
/** Bodies above it are not searched for how to stream: they are answered with one object. */
const maxStreamBodyBytes = 16_384;
const shapeMark = `"${streamMark}`;
const maxShapeCharacters = 20;
const usageWish = '"include_usage":true';
const healthAnswer = sizedAnswer("text/plain", "");

/**
 * Listens on as many addresses of 127.0.0.1 as asked for. Chat completions are answered as the fields of a
 * `StreamShape` in them say; `/health`, `/v1/models` and `/metrics` are there as vLLM has them.
 */
export async function startBenchEngine(addresses: number, scheduler: Scheduler): Promise<BenchEngine> {
  const sockets = new Set<Socket>();
  const piecesOf = createPieceCache();
  const servers = Array.from({ length: addresses }, () =>
    createServer({ noDelay: true }, (socket) => {
      sockets.add(socket);
      socket.on("close", () => sockets.delete(socket));
      socket.on("error", () => socket.destroy());
      serve(socket, piecesOf, scheduler);
    }),
  );
  const urls = await Promise.all(servers.map((server) => listen(server)));
  return {
    urls,
    async stop() {
      for (const socket of sockets) socket.destroy();
      await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
    },
  };
}

function listen(server: Server): Promise<string> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => resolve(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
  });
}

type PieceCache = (shape: StreamShape, withUsage: boolean) => readonly Buffer[];

interface Head {
  readonly path: string;
  readonly contentLength: number;
}

function serve(socket: Socket, piecesOf: PieceCache, scheduler: Scheduler): void {
  let held: Buffer | undefined;
  let head: Head | undefined;
  let missingBytes = 0;
  let body: Buffer[] = [];

  const readBody = (bytes: Buffer): void => {
    if (!head) return;
    if (head.contentLength <= maxStreamBodyBytes) body.push(bytes);
    missingBytes -= bytes.length;
    if (missingBytes > 0) return;
    const whole = body.length === 1 ? body[0]! : Buffer.concat(body);
    const stream = readStreamShape(whole);
    if (stream) writeStream(socket, piecesOf(stream, whole.includes(usageWish)), stream.gapMs, scheduler);
    else socket.write(answerTo(head.path));
    head = undefined;
    body = [];
  };
  socket.on("data", (chunk: Buffer) => {
    if (head) {
      readBody(chunk);
      return;
    }
    const bytes = held ? Buffer.concat([held, chunk]) : chunk;
    const end = bytes.indexOf(headEnd);
    held = end < 0 ? bytes : undefined;
    if (end < 0) {
      if (bytes.length > maxHeadBytes) socket.destroy();
      return;
    }
    head = readHead(bytes.toString("latin1", 0, end + 2));
    missingBytes = head.contentLength;
    readBody(bytes.subarray(end + headEnd.length));
  });
}

function readHead(text: string): Head {
  const lower = text.toLowerCase();
  return {
    path: text.slice(text.indexOf(" ") + 1, text.indexOf(" HTTP/")),
    contentLength: Number(fieldOf(lower, "content-length") ?? 0),
  };
}

/** @returns undefined when the body asks for no stream */
function readStreamShape(body: Buffer): StreamShape | undefined {
  const at = body.indexOf(shapeMark);
  if (at < 0) return undefined;
  const text = body.toString("latin1", at + shapeMark.length, at + shapeMark.length + maxShapeCharacters);
  const [tokens = Number.NaN, gapMs = Number.NaN] = text.slice(0, text.indexOf('"')).split(",").map(Number);
  return tokens >= 1 && gapMs >= 0 ? { tokens, gapMs } : undefined;
}

function fieldOf(head: string, name: string): string | undefined {
  const at = head.indexOf(`\r\n${name}:`);
  return at < 0 ? undefined : head.slice(at + name.length + 3, head.indexOf("\r\n", at + 2)).trim();
}

function answerTo(path: string): Buffer {
  switch (path) {
    case "/health":
      return healthAnswer;
    case "/v1/models":
      return modelsAnswer;
    case "/metrics":
      return sizedAnswer("text/plain; version=0.0.4", engineMetrics + renderProcessUsage());
    default:
      return chatAnswer;
  }
}

function writeStream(socket: Socket, pieces: readonly Buffer[], gapMs: number, scheduler: Scheduler): void {
  if (gapMs === 0) {
    for (const piece of pieces) socket.write(piece);
    return;
  }
  let written = 1;
  socket.write(pieces[0]!);
  if (pieces.length === 1) return;
  const cancel = scheduler.every(gapMs, () => {
    if (!socket.destroyed) socket.write(pieces[written++]!);
    if (socket.destroyed || written === pieces.length) cancel();
  });
}

/** Streams whose pieces are kept; those of further lengths are made each time. */
const maxKeptStreams = 16;

/** Streams differ in length and usage only. */
function createPieceCache(): PieceCache {
  const cache = new Map<string, readonly Buffer[]>();
  return (shape, withUsage) => {
    const key = `${shape.tokens} ${withUsage}`;
    const known = cache.get(key);
    if (known) return known;
    const pieces = streamPieces(shape, withUsage);
    if (cache.size < maxKeptStreams) cache.set(key, pieces);
    return pieces;
  };
}
