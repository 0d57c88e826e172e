import { createHash, createHmac, randomBytes } from "node:crypto";
import { connect } from "node:net";
import { ByteReader, ByteWriter } from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { onTestFinished } from "vitest";

/** How a connection ended: the code of the websocket's close frame and what it says, or nothing but the end. */
interface RawEnd {
  readonly code: number | undefined;
  readonly reason: string;
}

/** A client of the mesh's port of which every byte can be chosen. It is written from the protocol's description. */
export interface RawMeshPeer {
  /** Puts bytes on the socket as they are. */
  write(bytes: Uint8Array | string): void;
  /** Sends a binary frame of the websocket. */
  frame(payload: Uint8Array): void;
  /** Waits for the frame of this number. */
  received(number: number): Promise<Uint8Array>;
  /** Waits for the end. */
  readonly ended: Promise<RawEnd>;
}

export interface RawHello {
  readonly versions?: readonly [min: number, max: number];
  readonly cluster?: string;
  readonly router?: string;
}

const binaryFrame = 2;
const closeFrame = 8;

/** Opens a websocket at the mesh's port, or only a socket. */
export async function dialRaw(address: string, { upgrade = true } = {}): Promise<RawMeshPeer> {
  const [host = "", port = ""] = address.split(":");
  const socket = connect(Number(port), host);
  socket.on("error", () => {});
  onTestFinished(() => void socket.destroy());
  let unread: Buffer = Buffer.alloc(0);
  const frames: Buffer[] = [];
  let isOpen = !upgrade;
  let end: RawEnd = { code: undefined, reason: "" };
  socket.on("data", (chunk: Buffer) => {
    unread = Buffer.concat([unread, chunk]);
    const head = unread.indexOf("\r\n\r\n");
    if (!isOpen && head >= 0) {
      isOpen = true;
      unread = unread.subarray(head + 4);
    }
    for (let next = takeFrame(unread); upgrade && isOpen && next; next = takeFrame(unread)) {
      unread = unread.subarray(next.sizeBytes);
      if (next.kind === binaryFrame) frames.push(next.payload);
      if (next.kind === closeFrame)
        end = { code: next.payload.readUInt16BE(), reason: next.payload.toString("utf8", 2) };
    }
  });
  const ended = new Promise<RawEnd>((resolve) => socket.once("close", () => resolve(end)));
  if (upgrade) {
    const key = randomBytes(16).toString("base64");
    const lines = ["GET /mesh HTTP/1.1", `host: ${address}`, "connection: upgrade", "upgrade: websocket"];
    socket.write(`${[...lines, "sec-websocket-version: 13", `sec-websocket-key: ${key}`].join("\r\n")}\r\n\r\n`);
    await waitFor(() => isOpen, { what: "websocket" });
  }
  return {
    write: (bytes) => void socket.write(bytes),
    frame: (payload) => void socket.write(maskedFrame(payload)),
    received: (number) => waitFor(() => frames[number], { what: `frame ${number} of the router` }),
    ended,
  };
}

/** A frame of a client: final, binary, with a mask of zeros. */
function maskedFrame(payload: Uint8Array): Buffer {
  const head = Buffer.alloc(14);
  head.writeUInt8(0x80 | binaryFrame, 0);
  head.writeUInt8(0x80 | 127, 1);
  head.writeBigUInt64BE(BigInt(payload.length), 2);
  return Buffer.concat([head, payload]);
}

function takeFrame(bytes: Buffer): { kind: number; payload: Buffer; sizeBytes: number } | undefined {
  if (bytes.length < 2) return undefined;
  const short = bytes.readUInt8(1) & 0x7f;
  const headBytes = short === 126 ? 4 : short === 127 ? 10 : 2;
  if (bytes.length < headBytes) return undefined;
  const length = short === 126 ? bytes.readUInt16BE(2) : short === 127 ? Number(bytes.readBigUInt64BE(2)) : short;
  if (bytes.length < headBytes + length) return undefined;
  const payload = Buffer.from(bytes.subarray(headBytes, headBytes + length));
  return { kind: bytes.readUInt8(0) & 0x0f, payload, sizeBytes: headBytes + length };
}

/** The first frame of whoever dials. */
export function helloFrame({ versions = [1, 1], cluster = "default", router = "stranger" }: RawHello = {}): Uint8Array {
  const writer = new ByteWriter();
  writer.u8(1);
  writer.u32(0x4150_5345);
  for (const version of versions) writer.varint(version);
  writer.raw(randomBytes(32));
  writer.text(cluster);
  writer.raw(createHash("sha256").update("espalier-fleet").digest());
  writer.varint(16);
  writer.text(router);
  writer.varint(1);
  writer.text("");
  writer.varint(0);
  return writer.copy();
}

/** Proves that whoever dials knows the secret. */
export function proofFrame(secret: string, ownHello: Uint8Array, theirHello: Uint8Array): Uint8Array {
  const writer = new ByteWriter();
  writer.raw(Buffer.from("espalier mesh proof\0"));
  writer.u8(1);
  writer.varint(1);
  writer.bytes(ownHello);
  writer.bytes(theirHello);
  return Buffer.concat([Buffer.of(2), createHmac("sha256", secret).update(writer.copy()).digest()]);
}

export const acceptFrame = Uint8Array.of(3);

/** The sentence of a reject frame. */
export function readRejection(frame: Uint8Array): string {
  const reader = new ByteReader(frame);
  if (reader.u8() !== 4) throw new RangeError(`a frame of type ${frame[0]}, not a rejection`);
  reader.u8();
  reader.varint();
  return reader.text(512);
}
