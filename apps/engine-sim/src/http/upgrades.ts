import { type IncomingMessage, type RequestListener, type Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { encodeFrame, FrameScanner, opcodes, webSocketAccept } from "@espalier/core/websocket";
import { ApiError, type Exchange } from "./exchange.ts";

/** From Node 24.9. */
interface UpgradeChoice {
  shouldUpgradeCallback?: (request: IncomingMessage) => boolean;
}

interface Upgrade {
  readonly socket: Socket;
  readonly head: Buffer;
}

const upgrades = new WeakMap<IncomingMessage, Upgrade>();

/** Passes requests for a WebSocket to the listener of all requests, so that keys and faults apply to them too. */
export function listenForUpgrades(server: Server & UpgradeChoice, onRequest: RequestListener): void {
  if (server.shouldUpgradeCallback === undefined) return;
  server.shouldUpgradeCallback = ({ headers }) => headers.upgrade?.toLowerCase() === "websocket";
  server.on("upgrade", (request: IncomingMessage, socket: Socket, head: Buffer) => {
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    socket.on("error", () => socket.destroy());
    response.on("finish", () => socket.destroySoon());
    response.assignSocket(socket as never);
    upgrades.set(request, { socket, head });
    onRequest(request, response);
  });
}

/** The engine's end of a WebSocket. */
export interface WebSocketEnd {
  readonly socket: Socket;
  send(text: string): void;
}

/** Most bytes of a client's message: uvicorn's limit. */
const maxMessageBytes = 16 * 1024 * 1024;

/**
 * Completes the upgrade of a request. Pings and close frames are answered here.
 *
 * @throws ApiError 404 for a request that asks for none
 */
export function upgrade({ request, response }: Exchange, onText: (text: string) => void): WebSocketEnd {
  const waiting = upgrades.get(request);
  const key = request.headers["sec-websocket-key"];
  if (!waiting || key === undefined) throw new ApiError(404, "Not Found");
  const { socket, head } = waiting;
  response.detachSocket(socket as never);
  const accept = `Sec-WebSocket-Accept: ${webSocketAccept(key)}`;
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n${accept}\r\n\r\n`);
  const scanner = new FrameScanner(maxMessageBytes, (opcode, payload) => {
    if (opcode === opcodes.text && payload) onText(payload.toString("utf8"));
    else if (opcode === opcodes.ping && payload) socket.write(encodeFrame(opcodes.pong, payload));
    else if (opcode === opcodes.close && payload) socket.end(encodeFrame(opcodes.close, payload));
  });
  socket.on("data", (chunk: Buffer) => scanner.push(chunk));
  socket.on("end", () => socket.destroy());
  if (head.length > 0) scanner.push(head);
  return { socket, send: (text) => void socket.write(encodeFrame(opcodes.text, text)) };
}
