import { readSessionUpdate, type SessionUpdate } from "@espalier/api";
import { encodeFrame, FrameScanner, opcodes } from "@espalier/core/websocket";

/** Most bytes of a client that wait for its `session.update`, or for an engine. */
const maxOpeningBytes = 262_144;

/** The first bytes of a client, until its `session.update` has come or an engine takes them. */
export class SessionOpening {
  sizeBytes = 0;
  update: SessionUpdate | undefined;
  readonly #pieces: Buffer[] = [];
  readonly #scanner: FrameScanner;
  /** Where the update stands. */
  #from = 0;
  #to = 0;

  /** @param onPing called with the payload of each ping */
  constructor(onPing: (payload: Buffer) => void) {
    this.#scanner = new FrameScanner(maxOpeningBytes, (opcode, payload) => {
      if (opcode === opcodes.ping && payload) onPing(payload);
      if (opcode === opcodes.text && payload && !this.update) this.#read(payload);
    });
  }

  get isFull(): boolean {
    return this.sizeBytes > maxOpeningBytes;
  }

  /** Whether no update can follow. */
  get isOver(): boolean {
    return this.#scanner.isClosed || this.#scanner.isBroken;
  }

  push(chunk: Buffer): void {
    this.sizeBytes += chunk.length;
    this.#pieces.push(chunk);
    this.#scanner.push(chunk);
  }

  /** All bytes so far. @param model the one that the update has to name; as it is by default */
  bytes(model?: string): Buffer {
    const all = Buffer.concat(this.#pieces);
    if (model === undefined || !this.update || this.update.model === model) return all;
    const update = encodeFrame(opcodes.text, this.update.withModel(model), true);
    return Buffer.concat([all.subarray(0, this.#from), update, all.subarray(this.#to)]);
  }

  #read(payload: Buffer): void {
    this.update = readSessionUpdate(payload);
    this.#from = this.#scanner.messageFrom;
    this.#to = this.#scanner.position;
  }
}
