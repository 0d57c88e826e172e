import { asRouterId, ByteReader, ByteWriter, EspalierError, type RouterId } from "@espalier/core";
import { checkEpoch, type Origin } from "../origin.ts";
import type { MemberClaim, MemberRecord } from "./member-table.ts";

/** Bounds on the content of a frame, the same for writing and reading. */
export const frameBounds = {
  idBytes: 128,
  addressBytes: 256,
  targetBytes: 512,
  /** Bytes of all targets of a record together. */
  unreachableBytes: 8_192,
  unreachable: 256,
  regionBytes: 128,
  links: 64,
  /** Records or claims in one frame. */
  items: 256,
  /** A frame takes no further record once it has so many bytes. */
  fullAtBytes: 16_384,
  /** Higher than any router counts in its lifetime. */
  incarnation: 2 ** 48,
} as const;

/** Name of the capability to read records with a region. */
export const regionCapability = "regions";

/** Messages between members, as read from a frame. */
export type MembershipMessage =
  | { readonly kind: "ping"; readonly number: number; readonly digest: number }
  | { readonly kind: "ack"; readonly number: number }
  | { readonly kind: "records"; readonly records: readonly MemberRecord[] }
  | { readonly kind: "claims"; readonly claims: readonly MemberClaim[] }
  /** Asks whether the sender's peer hears that router. The answer is `heard`, or nothing if it does not. */
  | { readonly kind: "probe" | "heard"; readonly origin: Origin };

const codes = { ping: 1, ack: 2, records: 3, claims: 4, probe: 5, heard: 6 } as const;
const flagLeft = 1;
const flagDraining = 2;
const flagRegion = 4;
const claimStates = ["suspect", "down"] as const;
const encoder = new TextEncoder();

/** @returns the message's frames: one, or for many records several */
export function encodeMembership(message: MembershipMessage): Uint8Array[] {
  switch (message.kind) {
    case "records":
      return encodeItems(codes.records, message.records, writeRecord);
    case "claims":
      return encodeItems(codes.claims, message.claims, writeClaim);
    default:
      return [encodeSmall(message)];
  }
}

function encodeSmall(message: Exclude<MembershipMessage, { kind: "records" | "claims" }>): Uint8Array {
  const writer = new ByteWriter(32);
  writer.u8(codes[message.kind]);
  if (message.kind === "ping" || message.kind === "ack") writer.varint(message.number);
  else writeOrigin(writer, message.origin);
  if (message.kind === "ping") writer.u32(message.digest);
  return writer.copy();
}

function encodeItems<Item>(
  code: number,
  items: readonly Item[],
  write: (writer: ByteWriter, item: Item) => void,
): Uint8Array[] {
  const frames: Uint8Array[] = [];
  const body = new ByteWriter(1_024);
  let count = 0;
  const end = (): void => {
    if (count === 0) return;
    const frame = new ByteWriter(body.length + 3);
    frame.u8(code);
    frame.varint(count);
    frame.raw(body.copy());
    frames.push(frame.copy());
    body.reset();
    count = 0;
  };
  for (const item of items) {
    write(body, item);
    count += 1;
    if (body.length >= frameBounds.fullAtBytes || count === frameBounds.items) end();
  }
  end();
  return frames;
}

/** @throws EspalierError `mesh_frame_invalid` for bytes that no member writes */
export function decodeMembership(frame: Uint8Array): MembershipMessage {
  try {
    const reader = new ByteReader(frame);
    const message = readMessage(reader);
    reader.end();
    return message;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new EspalierError("mesh_frame_invalid", `A membership frame cannot be read: ${why}.`, { cause: error });
  }
}

function readMessage(reader: ByteReader): MembershipMessage {
  const code = reader.u8();
  switch (code) {
    case codes.ping:
      return { kind: "ping", number: reader.varint(), digest: reader.u32() };
    case codes.ack:
      return { kind: "ack", number: reader.varint() };
    case codes.records:
      return { kind: "records", records: readItems(reader, readRecord) };
    case codes.claims:
      return { kind: "claims", claims: readItems(reader, readClaim) };
    case codes.probe:
      return { kind: "probe", origin: readOrigin(reader) };
    case codes.heard:
      return { kind: "heard", origin: readOrigin(reader) };
    default:
      throw new RangeError(`${code} is no message`);
  }
}

function readItems<Item>(reader: ByteReader, read: (reader: ByteReader) => Item): Item[] {
  return Array.from({ length: readCount(reader, frameBounds.items) }, () => read(reader));
}

function writeOrigin(writer: ByteWriter, { router, epoch }: Origin): void {
  writer.text(router);
  writer.varint(epoch);
}

function readOrigin(reader: ByteReader): Origin {
  return { router: readRouter(reader), epoch: checkEpoch(reader.varint()) };
}

function readRouter(reader: ByteReader): RouterId {
  const text = reader.text(frameBounds.idBytes);
  if (text === "") throw new RangeError("a router has no id");
  return asRouterId(text);
}

function writeRecord(writer: ByteWriter, record: MemberRecord): void {
  writeOrigin(writer, record.origin);
  writer.varint(record.incarnation);
  const { hasLeft, isDraining, region = "" } = record;
  writer.u8((hasLeft ? flagLeft : 0) | (isDraining ? flagDraining : 0) | (region === "" ? 0 : flagRegion));
  writer.text(record.address);
  writeTexts(writer, record.links);
  writeTexts(writer, record.unreachable);
  if (region !== "") writer.text(region);
}

function readRecord(reader: ByteReader): MemberRecord {
  const origin = readOrigin(reader);
  const incarnation = readIncarnation(reader);
  if (incarnation === 0) throw new RangeError("a record has no incarnation");
  const flags = reader.u8();
  if (flags > (flagLeft | flagDraining | flagRegion)) throw new RangeError(`the flags of a record are ${flags}`);
  const address = reader.text(frameBounds.addressBytes);
  const links = Array.from({ length: readCount(reader, frameBounds.links) }, () => readRouter(reader));
  const listAt = reader.position;
  const unreachable = Array.from({ length: readCount(reader, frameBounds.unreachable) }, () =>
    reader.text(frameBounds.targetBytes),
  );
  if (reader.position - listAt > frameBounds.unreachableBytes) throw new RangeError("a record names too many targets");
  const hasLeft = (flags & flagLeft) !== 0;
  const isDraining = (flags & flagDraining) !== 0;
  const region = (flags & flagRegion) === 0 ? undefined : reader.text(frameBounds.regionBytes);
  if (region === "") throw new RangeError("a region has no name");
  return { origin, incarnation, hasLeft, isDraining, address, links, unreachable, region };
}

function writeClaim(writer: ByteWriter, { origin, incarnation, state }: MemberClaim): void {
  writeOrigin(writer, origin);
  writer.varint(incarnation);
  writer.u8(claimStates.indexOf(state));
}

function readClaim(reader: ByteReader): MemberClaim {
  const origin = readOrigin(reader);
  const incarnation = readIncarnation(reader);
  const state = claimStates[reader.u8()];
  if (state === undefined) throw new RangeError("a claim has an unknown state");
  return { origin, incarnation, state };
}

/** Bounded, so that the router still has higher numbers to answer with: a varint ends at 2^53. */
function readIncarnation(reader: ByteReader): number {
  const incarnation = reader.varint();
  if (incarnation > frameBounds.incarnation) throw new RangeError(`an incarnation of ${incarnation}`);
  return incarnation;
}

function writeTexts(writer: ByteWriter, texts: readonly string[]): void {
  writer.varint(texts.length);
  for (const text of texts) writer.text(text);
}

function readCount(reader: ByteReader, max: number): number {
  const count = reader.varint();
  if (count > max) throw new RangeError(`${count} items where ${max} are the most`);
  return count;
}

/** The first targets, in order of their names, that fit into a record. */
export function fitUnreachable(targets: readonly string[]): string[] {
  const fitting: string[] = [];
  let sizeBytes = 2;
  for (const target of [...new Set(targets)].sort()) {
    const bytes = encoder.encode(target).length;
    if (bytes > frameBounds.targetBytes) continue;
    if (fitting.length === frameBounds.unreachable || sizeBytes + bytes + 2 > frameBounds.unreachableBytes) break;
    fitting.push(target);
    sizeBytes += bytes + 2;
  }
  return fitting;
}
