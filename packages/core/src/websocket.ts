/** Frames of WebSocket connections (RFC 6455) that pass through, without a library: none of them is copied or rewritten. */
import { createHash } from "node:crypto";

/** Operation codes of RFC 6455 section 5.2. */
export const opcodes = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** Status codes of a close frame (RFC 6455 section 7.4.1, and 1012 and 1013 of IANA's registry). */
export const closeCodes = {
  goingAway: 1001,
  policyViolation: 1008,
  internalError: 1011,
  serviceRestart: 1012,
  tryAgainLater: 1013,
} as const;

const handshakeGuid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/** The `sec-websocket-accept` of a client's `sec-websocket-key` (RFC 6455 section 4.2.2). */
export const webSocketAccept = (key: string): string =>
  createHash("sha1").update(`${key}${handshakeGuid}`).digest("base64");

/** Longest payload whose length stands in the second byte, and in two further ones. */
const shortPayload = 125;
const mediumPayload = 0xffff;

/**
 * One whole frame. A client's frames carry a mask, which servers demand; that of zeros leaves the payload as it is.
 *
 * @param isClient whether the frame goes to a server
 */
export function encodeFrame(opcode: number, payload: Uint8Array | string, isClient = false): Buffer {
  const bytes = Buffer.from(payload as Uint8Array);
  const extended = bytes.length <= shortPayload ? 0 : bytes.length <= mediumPayload ? 2 : 8;
  const head = Buffer.alloc(2 + extended + (isClient ? 4 : 0));
  head[0] = 0x80 | opcode;
  head[1] = (isClient ? 0x80 : 0) | (extended === 0 ? bytes.length : extended === 2 ? 126 : 127);
  if (extended === 2) head.writeUInt16BE(bytes.length, 2);
  if (extended === 8) head.writeBigUInt64BE(BigInt(bytes.length), 2);
  return Buffer.concat([head, bytes]);
}

/** Most bytes of the reason in a close frame: a control frame has at most 125 (RFC 6455 section 5.5), two are the code. */
const maxReasonBytes = shortPayload - 2;

/** A close frame. */
export function closeFrame(code: number, reason: string): Buffer {
  const payload = Buffer.alloc(2 + Math.min(Buffer.byteLength(reason), maxReasonBytes));
  payload.writeUInt16BE(code, 0);
  payload.write(reason, 2);
  return encodeFrame(opcodes.close, payload);
}

/** Called at the end of a message or control frame. @param payload undefined if it is too long, or compressed */
type OnMessage = (opcode: number, payload: Buffer | undefined) => void;

/** Two bytes, eight of the length, four of the mask. */
const frameHeadBytes = 14;

/** Follows the frames of one direction by their heads. Payloads are kept only for messages that are short enough to read. */
export class FrameScanner {
  /** Bytes seen so far. */
  position = 0;
  /** Where the present message began, or the last one that ended. */
  messageFrom = 0;
  /** Whether a close frame has begun: nothing may follow it. */
  isClosed = false;
  /** Whether bytes came that are no frame. Nothing is known of what follows. */
  isBroken = false;
  readonly #maxKept: number;
  readonly #onMessage: OnMessage;
  readonly #head = Buffer.alloc(frameHeadBytes);
  #headBytes = 0;
  /** Bytes that are missing of the present frame's payload. */
  #left = 0;
  #isInPayload = false;
  #isFinal = true;
  #opcode = 0;
  /** Of the present message, which may have several frames. */
  #messageOpcode = 0;
  #isMessageOpen = false;
  /** As one number; -1 in a frame without a mask. */
  #mask = -1;
  /** Which byte of the mask is next. */
  #maskAt = 0;
  #kept: Buffer[] | undefined;
  #keptBytes = 0;
  #control: Buffer[] = [];

  /** @param maxKept most bytes of a message that is passed to `onMessage` */
  constructor(maxKept: number, onMessage: OnMessage) {
    this.#maxKept = maxKept;
    this.#onMessage = onMessage;
  }

  /** Whether the next byte begins a frame, so that another frame can be added. */
  get isBetweenFrames(): boolean {
    return !this.isBroken && this.#headBytes === 0 && !this.#isInPayload;
  }

  push(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length && !this.isBroken) {
      if (!this.#isInPayload) {
        this.#head[this.#headBytes++] = chunk[at++]!;
        this.position += 1;
        if (this.#headBytes >= 2 && this.#headBytes === this.#headLength()) this.#begin();
      } else {
        const taken = Math.min(this.#left, chunk.length - at);
        this.#keep(chunk.subarray(at, at + taken));
        at += taken;
        this.position += taken;
        this.#left -= taken;
      }
      if (this.#isInPayload && this.#left === 0) this.#endFrame();
    }
  }

  #headLength(): number {
    const length = this.#head[1]! & 0x7f;
    const isMasked = (this.#head[1]! & 0x80) !== 0;
    return 2 + (length === 126 ? 2 : length === 127 ? 8 : 0) + (isMasked ? 4 : 0);
  }

  #begin(): void {
    const first = this.#head[0]!;
    const length = this.#head[1]! & 0x7f;
    const headLength = this.#headBytes;
    this.#opcode = first & 0x0f;
    this.#isFinal = (first & 0x80) !== 0;
    this.#left =
      length === 126 ? this.#head.readUInt16BE(2) : length === 127 ? Number(this.#head.readBigUInt64BE(2)) : length;
    this.#mask = (this.#head[1]! & 0x80) !== 0 ? this.#head.readInt32BE(headLength - 4) >>> 0 : -1;
    this.#headBytes = 0;
    this.#isInPayload = true;
    const isControl = this.#isControl();
    if (this.#opcode === opcodes.close) this.isClosed = true;
    // A continuation belongs to an open message, and to that only; a control frame is short and whole.
    const isLost = !isControl && (this.#opcode === opcodes.continuation) !== this.#isMessageOpen;
    if (isLost || (isControl && (!this.#isFinal || this.#left > shortPayload))) {
      this.isBroken = true;
      return;
    }
    if (isControl) {
      this.#control = [];
      return;
    }
    if (this.#opcode !== opcodes.continuation) {
      this.messageFrom = this.position - headLength;
      this.#messageOpcode = this.#opcode;
      this.#isMessageOpen = true;
      // A reserved bit means that an extension has changed the payload.
      this.#kept = (first & 0x70) === 0 ? [] : undefined;
      this.#keptBytes = 0;
    }
    this.#keptBytes += this.#left;
    if (this.#keptBytes > this.#maxKept) this.#kept = undefined;
  }

  #isControl(): boolean {
    return (this.#opcode & 0x08) !== 0;
  }

  #keep(bytes: Buffer): void {
    const list = this.#isControl() ? this.#control : this.#kept;
    if (!list || bytes.length === 0) return;
    list.push(this.#mask < 0 ? bytes : this.#unmasked(bytes));
  }

  #unmasked(bytes: Buffer): Buffer {
    const plain = Buffer.from(bytes);
    if (this.#mask === 0) return plain;
    const from = this.#maskAt;
    for (let i = 0; i < plain.length; i++) plain[i]! ^= (this.#mask >>> (8 * (3 - ((from + i) & 3)))) & 0xff;
    this.#maskAt = (from + plain.length) & 3;
    return plain;
  }

  #endFrame(): void {
    this.#isInPayload = false;
    this.#maskAt = 0;
    if (this.#isControl()) {
      this.#onMessage(this.#opcode, Buffer.concat(this.#control));
      return;
    }
    if (!this.#isFinal) return;
    this.#isMessageOpen = false;
    const kept = this.#kept;
    this.#kept = undefined;
    this.#onMessage(this.#messageOpcode, kept && (kept.length === 1 ? kept[0] : Buffer.concat(kept)));
  }
}
