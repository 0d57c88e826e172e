import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { RealtimeFrames } from "@espalier/api";
import { type Cancel, EspalierError, isJsonObject, parseJson, type Scheduler } from "@espalier/core";
import { closeCodes, closeFrame, encodeFrame, FrameScanner, opcodes, webSocketAccept } from "@espalier/core/websocket";
import type { Tunnel } from "@espalier/engines";
import type { ClientResponse } from "../request/response-sink.ts";
import { SessionOpening } from "./session-opening.ts";

/** Longest time for a client to close its connection after a close frame. */
const maxLingerMs = 2_000;
/** Most bytes of an error for a client that has been accepted. */
const maxErrorBytes = 65_536;

export interface ClientSocketParts {
  /** Answers what is refused before the upgrade. */
  readonly response: ServerResponse;
  readonly socket: Socket;
  /** Bytes that came with the head of the request. */
  readonly head: Buffer;
  readonly requestId: string;
  /** Follows the bytes that the engine sends. */
  readonly frames: RealtimeFrames;
  readonly scheduler: Scheduler;
}

/**
 * - `http`: nothing was sent; an error is an HTTP answer. - `accepted`: the router has accepted the connection to learn its model, and
 *   no engine has it yet. - `open`: an engine has it. - `closing`: a close frame was sent, or the engine has ended.
 */
type State = "http" | "accepted" | "open" | "closing";

/** An answer in place of an upgrade, to a client that was accepted already. */
interface Refusal {
  readonly status: number;
  readonly body: Buffer[];
  sizeBytes: number;
}

/**
 * A client's connection to the realtime API, as the answer of an exchange: its head is the upgrade, its body the engine's frames. The
 * client's own bytes go to the engine's socket as they come.
 */
export class ClientSocket implements ClientResponse, Tunnel {
  /** URL of the engine that was asked last. */
  engineUrl: string | undefined;
  /** The model's name at its engines. */
  model: string | undefined;
  readonly #parts: ClientSocketParts;
  readonly #socket: Socket;
  #state: State = "http";
  #engine: Socket | undefined;
  /** Undefined once the client's bytes pass unread. */
  #opening: SessionOpening | undefined;
  #onUpdate: ((model: string | undefined) => void) | undefined;
  #onTooMuch: (() => void) | undefined;
  #refusal: Refusal | undefined;
  /** Of an accepted client: the engine's own greeting, until it is complete. */
  #greeting: Greeting | undefined;
  #cancelLinger: Cancel = () => {};

  constructor(parts: ClientSocketParts) {
    const { socket, head } = parts;
    this.#parts = parts;
    this.#socket = socket;
    this.#opening = new SessionOpening((payload) => {
      if (this.#state === "accepted") socket.write(encodeFrame(opcodes.pong, payload));
    });
    socket.once("close", () => this.#cancelLinger());
    // A client that has closed its half hears no answer.
    socket.on("end", () => socket.destroy());
    socket.on("data", (chunk: Buffer) => this.#received(chunk));
    if (head.length > 0) this.#received(head);
  }

  get destroyed(): boolean {
    return this.#socket.destroyed || this.#parts.response.destroyed;
  }

  get headersSent(): boolean {
    return this.#state === "open" || this.#state === "closing" || this.#parts.response.headersSent;
  }

  get writableNeedDrain(): boolean {
    return this.#socket.writableNeedDrain;
  }

  get isOver(): boolean {
    return this.#state === "closing" || this.#parts.frames.isClosed;
  }

  on(event: "close" | "drain", listener: () => void): void {
    if (event === "drain") {
      this.#socket.on("drain", listener);
      return;
    }
    this.#parts.response.on("close", () => {
      // After a close frame the end is in order, whoever closes first.
      if (this.isOver && this.#engine) this.#engine.destroy();
      else listener();
    });
  }

  onClosed(listener: () => void): void {
    this.#socket.once("close", listener);
  }

  /** Accepts the connection before an engine has: a client names its model only then. */
  accept(key: string, session: string): void {
    this.#writeHead(["Sec-WebSocket-Accept", webSocketAccept(key), "x-request-id", this.#parts.requestId]);
    this.#state = "accepted";
    this.#socket.write(encodeFrame(opcodes.text, session));
  }

  /**
   * Waits for the client's `session.update`.
   *
   * @throws (rejects) EspalierError `client_closed`, `request_timeout`, or `invalid_body` if it sends too much before
   */
  namedModel(withinMs: number): Promise<string | undefined> {
    return new Promise((resolve, reject) => {
      const gone = (): void => settle(() => reject(new EspalierError("client_closed")));
      const late = (): void => settle(() => reject(new EspalierError("request_timeout", "No `session.update` came.")));
      const cancel = this.#parts.scheduler.after(withinMs, late);
      const settle = (then: () => void): void => {
        cancel();
        this.#socket.off("close", gone);
        this.#onUpdate = undefined;
        then();
      };
      this.#socket.once("close", gone);
      this.#onUpdate = (model) => settle(() => resolve(model));
      this.#onTooMuch = () =>
        settle(() => reject(new EspalierError("invalid_body", "The connection does not begin with `session.update`.")));
      this.#look();
    });
  }

  writeHead(status: number, pairs: (string | string[])[]): void {
    if (this.#state === "accepted") {
      if (status === 101) {
        this.#greeting = new Greeting();
        this.#state = "open";
      } else this.#refusal = { status, body: [], sizeBytes: 0 };
      return;
    }
    if (status !== 101) {
      this.#parts.response.writeHead(status, pairs);
      return;
    }
    this.#writeHead(pairs.flat());
    this.#state = "open";
  }

  write(chunk: Buffer | string): boolean {
    const bytes = Buffer.from(chunk as Buffer);
    if (this.#refusal) {
      this.#refusal.sizeBytes += bytes.length;
      if (this.#refusal.sizeBytes <= maxErrorBytes) this.#refusal.body.push(bytes);
      return true;
    }
    if (this.#state === "http") return this.#parts.response.write(chunk);
    if (this.#state !== "open") return true;
    const due = this.#greeting ? this.#greeting.push(chunk as Buffer) : chunk;
    if (this.#greeting?.isOver) this.#greeting = undefined;
    return due.length === 0 || this.#socket.write(due);
  }

  end(chunk?: Buffer | string): void {
    if (this.#state === "http") {
      this.#parts.response.end(chunk);
      return;
    }
    if (chunk !== undefined) this.write(chunk);
    if (this.#refusal) this.#refuse(this.#refusal);
    else this.#leave();
  }

  /** The engine's connection broke, or the client does not read. */
  destroy(): void {
    if (this.#state === "http") this.#parts.response.destroy();
    else this.close(closeCodes.internalError, "The engine's connection ended.");
  }

  cork(): void {
    this.#socket.cork();
  }

  uncork(): void {
    this.#socket.uncork();
  }

  opened(engine: Socket): void {
    this.#engine = engine;
    engine.on("drain", () => this.#socket.resume());
    this.#passOpening();
    this.#socket.resume();
  }

  idled(): void {
    this.close(closeCodes.goingAway, "The connection was idle.");
  }

  /** Ends the connection with a close frame, where the last frame is whole; does nothing before the upgrade. */
  close(code: number, reason: string): void {
    if (this.#state === "http" || this.#state === "closing") return;
    const { frames } = this.#parts;
    const isWhole = this.#state === "accepted" || (frames.isBetweenFrames && !this.#greeting);
    if (isWhole && !frames.isClosed) this.#socket.write(closeFrame(code, reason));
    this.#leave();
    this.#engine?.destroy();
  }

  /** Ends the connection without waiting for the client. */
  drop(code: number, reason: string): void {
    this.close(code, reason);
    this.#socket.destroySoon();
  }

  #leave(): void {
    if (this.#state === "closing") return;
    this.#state = "closing";
    this.#opening = undefined;
    this.#socket.resume();
    this.#socket.end();
    this.#cancelLinger = this.#parts.scheduler.after(maxLingerMs, () => this.#socket.destroy());
  }

  #received(chunk: Buffer): void {
    if (this.#state === "closing") return;
    if (!this.#opening) {
      if (this.#engine?.write(chunk) === false) this.#socket.pause();
      return;
    }
    this.#opening.push(chunk);
    this.#look();
    if (this.#engine) this.#passOpening();
    // As far as the client may go ahead of its engine.
    else if (this.#opening?.isFull) this.#socket.pause();
  }

  /** Looks for what the client's first bytes say to who waits for it. */
  #look(): void {
    const opening = this.#opening;
    if (!opening || !this.#onUpdate) return;
    if (opening.update) this.#onUpdate(opening.update.model);
    else if (opening.isOver) this.close(closeCodes.goingAway, "");
    else if (opening.isFull) this.#onTooMuch?.();
  }

  /** A client that names an alias gets the model that it stands for. */
  #passOpening(): void {
    const opening = this.#opening;
    if (!opening) return;
    const isAwaited = this.model !== undefined && !opening.update && !opening.isFull && !opening.isOver;
    if (isAwaited) return;
    this.#opening = undefined;
    const bytes = opening.bytes(this.model);
    if (bytes.length > 0 && this.#engine?.write(bytes) === false) this.#socket.pause();
  }

  #writeHead(pairs: readonly string[]): void {
    const { response } = this.#parts;
    response.detachSocket(this.#socket);
    const lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"];
    for (let at = 0; at < pairs.length; at += 2) {
      if (pairs[at]!.toLowerCase() !== "connection") lines.push(`${pairs[at]}: ${pairs[at + 1]}`);
    }
    this.#socket.write(`${lines.join("\r\n")}\r\n\r\n`, "latin1");
  }

  /** Tells an accepted client why it gets no engine, as vLLM tells errors. */
  #refuse({ status, body }: Refusal): void {
    const { message, code } = errorOf(Buffer.concat(body), status);
    this.#socket.write(encodeFrame(opcodes.text, JSON.stringify({ type: "error", error: message, code })));
    const isTemporary = status === 429 || status === 503;
    const isClients = status >= 400 && status < 500;
    this.close(
      isTemporary ? closeCodes.tryAgainLater : isClients ? closeCodes.policyViolation : closeCodes.internalError,
      code,
    );
  }
}

/** The message and the code of an error in OpenAI's shape. */
function errorOf(body: Buffer, status: number): { readonly message: string; readonly code: string } {
  const parsed = parseJson(body.toString("utf8"));
  const error = isJsonObject(parsed) && isJsonObject(parsed.error) ? parsed.error : {};
  const { message = `The engine answered with status ${status}.`, code = "engine_error" } = error;
  return { message: String(message), code: String(code) };
}

const greetingStart = '{"type":"session.created"';
/** Most bytes of an engine's greeting. */
const maxGreetingBytes = 4_096;

/** Takes `session.created` out of an engine's frames: an accepted client has that of the router. */
class Greeting {
  /** Whether all further bytes pass. */
  isOver = false;
  readonly #pieces: Buffer[] = [];
  #sizeBytes = 0;
  #until: number | undefined;
  readonly #scanner = new FrameScanner(maxGreetingBytes, (opcode, payload) => {
    const isGreeting = opcode === opcodes.text && payload?.toString("utf8").startsWith(greetingStart) === true;
    this.#until ??= isGreeting ? this.#scanner.position : 0;
  });

  /** @returns what passes */
  push(chunk: Buffer): Buffer {
    this.#pieces.push(chunk);
    this.#sizeBytes += chunk.length;
    this.#scanner.push(chunk);
    if (this.#until === undefined && this.#sizeBytes <= maxGreetingBytes) return Buffer.alloc(0);
    this.isOver = true;
    return Buffer.concat(this.#pieces).subarray(this.#until ?? 0);
  }
}
