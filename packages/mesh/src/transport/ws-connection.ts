import type { Socket } from "node:net";
import type { Cancel, Scheduler } from "@espalier/common";
import type { RawData, WebSocket } from "ws";
import type { Connection, ConnectionEnd, ConnectionObserver } from "./transport.ts";
import { drainMarkBytes, maxUntrustedBytes } from "./transport-limits.ts";

export interface WsConnectionDeps {
  readonly webSocket: WebSocket;
  /** The socket below, to count what comes before the other end is trusted. */
  readonly socket: Socket;
  readonly remote: string;
  readonly scheduler: Scheduler;
  readonly closeTimeoutMs: number;
}

/** A connection over an open websocket. */
export class WsConnection implements Connection {
  readonly remote: string;
  readonly #deps: WsConnectionDeps;
  readonly #countBytes: (chunk: Uint8Array) => void;
  #observer: ConnectionObserver | undefined;
  #isTrusted = false;
  #untrustedBytes = 0;
  #isAboveMark = false;
  /** What broke, until the websocket says that it is closed. */
  #broken: ConnectionEnd | undefined;
  #isEnding = false;
  #cancelClose: Cancel = () => {};

  constructor(deps: WsConnectionDeps) {
    this.#deps = deps;
    this.remote = deps.remote;
    const { webSocket, socket } = deps;
    webSocket.on("message", (data, isBinary) => this.#message(data, isBinary));
    webSocket.on("error", (error) => {
      this.#broken ??= errorEnd(error);
    });
    webSocket.once("close", (code, reason) => this.#closed(code, reason));
    this.#countBytes = (chunk) => {
      // The websocket has read the chunk by now: when a frame in it earned the trust, the bytes behind have it too.
      if (this.#isTrusted) return;
      this.#untrustedBytes += chunk.length;
      if (this.#untrustedBytes > maxUntrustedBytes)
        this.#breakOff(1009, "too many bytes before the handshake was done");
    };
    socket.on("data", this.#countBytes);
  }

  observe(observer: ConnectionObserver): void {
    this.#observer = observer;
  }

  get bufferedBytes(): number {
    return this.#deps.webSocket.bufferedAmount;
  }

  trust(): void {
    this.#isTrusted = true;
    this.#deps.socket.off("data", this.#countBytes);
  }

  send(frame: Uint8Array): void {
    const { webSocket } = this.#deps;
    if (this.#isEnding) return;
    webSocket.send(frame, { binary: true, compress: false }, this.#written);
    if (webSocket.bufferedAmount >= drainMarkBytes) this.#isAboveMark = true;
  }

  close(code: number, reason: string): void {
    if (this.#isEnding) return;
    this.#isEnding = true;
    const { webSocket, scheduler, closeTimeoutMs } = this.#deps;
    webSocket.close(code, reason);
    this.#cancelClose = scheduler.after(closeTimeoutMs, () => webSocket.terminate());
  }

  terminate(): void {
    this.#isEnding = true;
    this.#deps.webSocket.terminate();
  }

  readonly #written = (): void => {
    if (!this.#isAboveMark || this.#isEnding || this.#deps.webSocket.bufferedAmount >= drainMarkBytes) return;
    this.#isAboveMark = false;
    this.#observer?.drained();
  };

  #message(data: RawData, isBinary: boolean): void {
    if (this.#isEnding) return;
    if (isBinary && data instanceof Uint8Array) this.#observer?.frame(data);
    else this.#breakOff(1003, "a frame of text");
  }

  #breakOff(code: number, reason: string): void {
    this.#broken ??= { kind: "error", code, reason };
    this.close(code, reason);
  }

  #closed(code: number, reason: Buffer): void {
    this.#isEnding = true;
    this.#cancelClose();
    this.trust();
    this.#observer?.closed(
      this.#broken ?? { kind: code === 1006 ? "reset" : "closed", code, reason: reason.toString("utf8") },
    );
  }
}

/** Codes of ws for frames that break the protocol, and what a websocket says of them. */
const frameErrors: Readonly<Record<string, number>> = {
  WS_ERR_UNSUPPORTED_MESSAGE_LENGTH: 1009,
  WS_ERR_UNSUPPORTED_DATA_PAYLOAD_LENGTH: 1009,
  WS_ERR_TOO_MANY_BUFFERED_PARTS: 1009,
};

function errorEnd(error: Error & { readonly code?: string }): ConnectionEnd {
  const code = error.code ?? "";
  if (code.startsWith("WS_ERR_")) return { kind: "error", code: frameErrors[code] ?? 1002, reason: error.message };
  return { kind: "reset", code: 1006, reason: error.message };
}
