import type { Socket } from "node:net";
import { Duplex } from "node:stream";

const prefaceBytes = 24;
const headerBytes = 9;
/** Types and flags of HTTP/2 frames (RFC 9113, section 6). */
const [dataFrame, headersFrame, resetFrame] = [0, 1, 3];
const endStreamFlag = 1;
const resetPayloadBytes = 4;

/**
 * A connection of an HTTP/2 client on which every RST_STREAM is turned into the end of the client's side of the stream.
 *
 * Envoy resets each `ext_proc` stream that it is done with. Node's HTTP/2 (nghttp2 1.57 and newer) takes more than 1,000
 * resets, less 33 a second, for an attack (CVE-2023-44487): it ends the connection, and the requests on it fail. Only from
 * Node 25 on can that be set. There is no such attack on a server that bounds the streams at a time and that ends a stream as
 * soon as its client has.
 */
export class ResetFilter extends Duplex {
  readonly #socket: Socket;
  readonly #onReset: (streamId: number) => void;
  /** Streams that the server may still know, by id; true once the client has ended its side. */
  readonly #open = new Map<number, boolean>();
  /** Bytes of the client's preface, or of a frame's payload, that pass as they are. */
  #passingBytes = prefaceBytes;
  /** The beginning of a frame's header, or of a reset. */
  #held: Buffer | undefined;

  /** @param onReset called when a client has reset a stream, before the stream ends for the server */
  constructor(socket: Socket, onReset: (streamId: number) => void) {
    super({ allowHalfOpen: true });
    this.#socket = socket;
    this.#onReset = onReset;
    socket.on("data", (chunk: Buffer) => this.#receive(chunk));
    socket.on("end", () => this.push(null));
    socket.on("error", (error) => this.destroy(error));
    socket.on("close", () => this.destroy());
  }

  /** The server has forgotten a stream. */
  forget(streamId: number): void {
    this.#open.delete(streamId);
  }

  override _read(): void {
    this.#socket.resume();
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.#socket.write(chunk, done);
  }

  /** Frames that are written together go out together. */
  override _writev(chunks: { chunk: Buffer }[], done: (error?: Error | null) => void): void {
    if (chunks.length === 1) {
      this.#socket.write(chunks[0]!.chunk, done);
      return;
    }
    this.#socket.write(Buffer.concat(chunks.map(({ chunk }) => chunk)), done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#socket.end(done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#socket.destroy();
    done(error);
  }

  #receive(chunk: Buffer): void {
    const passed = this.#filter(this.#held ? Buffer.concat([this.#held, chunk]) : chunk);
    if (passed.length > 0 && !this.push(passed)) this.#socket.pause();
  }

  #filter(bytes: Buffer): Buffer {
    this.#held = undefined;
    let kept: Buffer[] | undefined;
    /** Where the bytes begin that pass unchanged and are not in `kept`. */
    let from = 0;
    let at = 0;
    while (at < bytes.length) {
      if (this.#passingBytes > 0) {
        const skipped = Math.min(this.#passingBytes, bytes.length - at);
        this.#passingBytes -= skipped;
        at += skipped;
        continue;
      }
      const isReset = bytes.length - at > 3 && bytes[at + 3] === resetFrame;
      if (bytes.length - at < headerBytes + (isReset ? resetPayloadBytes : 0)) {
        this.#held = bytes.subarray(at);
        break;
      }
      const length = bytes.readUIntBE(at, 3);
      const type = bytes[at + 3]!;
      const streamId = bytes.readUInt32BE(at + 5) & 0x7fff_ffff;
      if (type === resetFrame && length === resetPayloadBytes) {
        kept ??= [];
        kept.push(bytes.subarray(from, at));
        if (this.#open.get(streamId) === false) kept.push(endOf(streamId));
        if (this.#open.has(streamId)) {
          this.#open.set(streamId, true);
          this.#onReset(streamId);
        }
        at += headerBytes + resetPayloadBytes;
        from = at;
        continue;
      }
      if (type === headersFrame && !this.#open.has(streamId)) this.#open.set(streamId, false);
      const isEnd = (type === headersFrame || type === dataFrame) && (bytes[at + 4]! & endStreamFlag) !== 0;
      if (isEnd && this.#open.has(streamId)) this.#open.set(streamId, true);
      this.#passingBytes = length;
      at += headerBytes;
    }
    const rest = bytes.subarray(from, this.#held ? at : bytes.length);
    return kept ? Buffer.concat([...kept, rest]) : rest;
  }
}

/** An empty DATA frame with END_STREAM. */
function endOf(streamId: number): Buffer {
  const frame = Buffer.alloc(headerBytes);
  frame[3] = dataFrame!;
  frame[4] = endStreamFlag;
  frame.writeUInt32BE(streamId, 5);
  return frame;
}
