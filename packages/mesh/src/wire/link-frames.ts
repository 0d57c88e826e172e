import { createHmac, timingSafeEqual } from "node:crypto";
import { asRouterId, ByteReader, ByteWriter } from "@espalier/core";
import { checkEpoch, type Origin } from "../origin.ts";
import { nonceBytes } from "./secure-nonce.ts";

/**
 * Channels of a link, in the order in which their frames go out when several wait. `load` and `membership` never wait
 * behind documents; `bulk` (snapshots, diffs) has a credit of its own; `notes` wait for all else, and go only to peers
 * that have the capability of this name.
 */
export const channels = ["load", "membership", "documents", "bulk", "notes"] as const;

export type Channel = (typeof channels)[number];

/** Bytes that a link prepends to every frame of a channel. */
export const dataHeaderBytes = 2;

/** Permission to send more on a channel. */
export interface Credit {
  readonly channel: Channel;
  /** Bytes of data frames, headers included, that the receiver has processed. */
  readonly bytes: number;
}

const channelNumbers = Object.fromEntries(channels.map((channel, index) => [channel, index])) as Readonly<
  Record<Channel, number>
>;

/** Prepends the header of its channel to a frame. */
export function encodeData(channel: Channel, payload: Uint8Array): Uint8Array {
  const frame = new Uint8Array(dataHeaderBytes + payload.length);
  frame[0] = frameTypes.data;
  frame[1] = channelNumbers[channel];
  frame.set(payload, dataHeaderBytes);
  return frame;
}

/**
 * The channel of a data frame.
 *
 * @throws RangeError for a channel that does not exist
 */
export function channelOf(frame: Uint8Array): Channel {
  const channel = frame.length < dataHeaderBytes ? undefined : channels[frame[1]!];
  if (!channel) throw new RangeError("a frame of an unknown channel");
  return channel;
}

/** Writes a credit frame. */
export function encodeCredit({ channel, bytes }: Credit): Uint8Array {
  const writer = new ByteWriter(16);
  writer.u8(frameTypes.credit);
  writer.u8(channelNumbers[channel]);
  writer.varint(bytes);
  return writer.copy();
}

/**
 * Reads a credit frame.
 *
 * @throws RangeError for bytes that are no credit frame
 */
export function decodeCredit(frame: Uint8Array): Credit {
  const channel = channelOf(frame);
  const reader = new ByteReader(frame.subarray(dataHeaderBytes));
  const bytes = reader.varint();
  reader.end();
  return { channel, bytes };
}

/**
 * The first byte of every frame between two routers. The first four are of the handshake, the rest of the link that
 * follows it; only `goodbye` may occur in both.
 */
export const frameTypes = {
  hello: 1,
  proof: 2,
  accept: 3,
  reject: 4,
  goodbye: 5,
  data: 6,
  credit: 7,
} as const;

/** Protocol versions that one end speaks, both included. */
export interface VersionRange {
  readonly min: number;
  readonly max: number;
}

/** What each end says of itself first. */
export interface Hello {
  readonly versions: VersionRange;
  readonly nonce: Uint8Array;
  readonly cluster: string;
  /** SHA-256 of the fleet seed. */
  readonly seedDigest: Uint8Array;
  readonly blockSizeTokens: number;
  readonly origin: Origin;
  /** Where it can be dialed, `host:port`; undefined when it cannot. */
  readonly address: string | undefined;
  /** Names of the optional parts of the protocol that it supports. */
  readonly capabilities: readonly string[];
}

/** "ESPA" distinguishes another program's frame from a router's at once. */
const magic = 0x41505345;
const digestBytes = 32;
const maxVersion = 0xffff;
export const maxNameBytes = 255;
const maxBlockSizeTokens = 1 << 20;
const maxCapabilities = 32;
const maxCapabilityBytes = 64;

/** Writes a hello frame. */
export function encodeHello(hello: Hello): Uint8Array {
  const writer = new ByteWriter();
  writer.u8(frameTypes.hello);
  writer.u32(magic);
  writer.varint(hello.versions.min);
  writer.varint(hello.versions.max);
  writer.raw(hello.nonce);
  writer.text(hello.cluster);
  writer.raw(hello.seedDigest);
  writer.varint(hello.blockSizeTokens);
  writer.text(hello.origin.router);
  writer.varint(hello.origin.epoch);
  writer.text(hello.address ?? "");
  writer.varint(hello.capabilities.length);
  for (const capability of hello.capabilities) writer.text(capability);
  return writer.copy();
}

/**
 * Reads only the versions of a hello frame: later versions may lay out the rest otherwise.
 *
 * @throws RangeError for a frame that is not the hello of a router
 */
export function decodeVersions(frame: Uint8Array): VersionRange {
  return readVersions(new ByteReader(frame));
}

/**
 * Reads a hello frame. Bytes after the fields of this version are ignored, so that a later version can add fields.
 *
 * @throws RangeError for bytes that are no hello
 */
export function decodeHello(frame: Uint8Array): Hello {
  const reader = new ByteReader(frame);
  const versions = readVersions(reader);
  const nonce = Uint8Array.from(reader.raw(nonceBytes));
  const cluster = reader.text(maxNameBytes);
  const seedDigest = Uint8Array.from(reader.raw(digestBytes));
  const blockSizeTokens = atMost(reader.varint(), maxBlockSizeTokens, "block size");
  const router = asRouterId(reader.text(maxNameBytes));
  if (router === "") throw new RangeError("a router without an id");
  const epoch = checkEpoch(reader.varint());
  const address = reader.text(maxNameBytes);
  const capabilities: string[] = [];
  const count = atMost(reader.varint(), maxCapabilities, "number of capabilities");
  while (capabilities.length < count) capabilities.push(reader.text(maxCapabilityBytes));
  return {
    versions,
    nonce,
    cluster,
    seedDigest,
    blockSizeTokens,
    origin: { router, epoch },
    address: address === "" ? undefined : address,
    capabilities,
  };
}

function readVersions(reader: ByteReader): VersionRange {
  if (reader.u8() !== frameTypes.hello) throw new RangeError("a frame that is no hello");
  if (reader.u32() !== magic) throw new RangeError("a hello of another protocol");
  const min = atMost(reader.varint(), maxVersion, "version");
  const max = atMost(reader.varint(), maxVersion, "version");
  if (min > max) throw new RangeError(`versions from ${min} to ${max}`);
  return { min, max };
}

function atMost(value: number, most: number, what: string): number {
  if (value > most) throw new RangeError(`a ${what} of ${value} where ${most} is the most`);
  return value;
}

/** The highest version in both ranges, undefined when there is none. */
export function commonVersion(one: VersionRange, other: VersionRange): number | undefined {
  const highest = Math.min(one.max, other.max);
  return highest >= Math.max(one.min, other.min) ? highest : undefined;
}

/** Which end began the connection. The two prove different things, so that neither can send the other's proof back. */
export type HandshakeRole = "dialer" | "acceptor";

/** All that both ends have said before they prove that they know the secret. */
export interface Transcript {
  readonly dialerHello: Uint8Array;
  readonly acceptorHello: Uint8Array;
  readonly version: number;
}

const proofBytes = 32;
/** Secrets that a router knows at once: its own, and those that others still have or have already. */
export const maxSecrets = 4;
const context = new TextEncoder().encode("espalier mesh proof\0");

/**
 * Writes a proof frame: for each secret, HMAC-SHA256 (RFC 2104) over the role and both hello frames as they were sent.
 * The hello frames have both nonces, so a proof is good for one handshake only, and both identities, so it is good for
 * one pair.
 */
export function encodeProof(secrets: readonly string[], role: HandshakeRole, transcript: Transcript): Uint8Array {
  const writer = new ByteWriter();
  writer.u8(frameTypes.proof);
  for (const secret of secrets) writer.raw(proofOf(secret, role, transcript));
  return writer.copy();
}

/**
 * The first of the known secrets that a proof frame proves. Every proof is compared with every secret, and each
 * comparison takes the same time wherever they differ.
 *
 * @returns undefined when it proves none
 * @throws RangeError for a frame of the wrong length
 */
export function provedSecret(
  frame: Uint8Array,
  secrets: readonly string[],
  role: HandshakeRole,
  transcript: Transcript,
): string | undefined {
  const count = (frame.length - 1) / proofBytes;
  if (!Number.isInteger(count) || count < 1 || count > maxSecrets)
    throw new RangeError(`a proof of ${frame.length} bytes`);
  const reader = new ByteReader(frame);
  reader.u8();
  const expected = secrets.map((secret) => proofOf(secret, role, transcript));
  let proved: string | undefined;
  for (let at = 0; at < count; at++) {
    const proof = reader.raw(proofBytes);
    const matching = secrets.filter((_, index) => timingSafeEqual(proof, expected[index]!));
    proved ??= matching[0];
  }
  return proved;
}

function proofOf(secret: string, role: HandshakeRole, transcript: Transcript): Uint8Array {
  const writer = new ByteWriter(1_024);
  writer.raw(context);
  writer.u8(role === "dialer" ? 1 : 2);
  writer.varint(transcript.version);
  writer.bytes(transcript.dialerHello);
  writer.bytes(transcript.acceptorHello);
  return createHmac("sha256", secret).update(writer.copy()).digest();
}

/** Why one end refuses the other in the handshake. */
export interface Rejection {
  readonly reason: RejectReason;
  /** A sentence for the log of both ends. */
  readonly detail: string;
  /** With `epoch-behind`: the highest known epoch of the other's id; else 0. */
  readonly knownEpoch: number;
}

/** The place of a reason in this list is its number in a reject frame: only append. */
export const rejectReasons = [
  "protocol-version",
  "cluster-name",
  "fleet-seed",
  "block-size",
  "secret",
  "self",
  "router-id-taken",
  "epoch-behind",
  "handshake-invalid",
  "handshake-timeout",
  "too-many-peers",
] as const;

/** Why a handshake is refused; sent to the other end, logged and counted on both. */
export type RejectReason = (typeof rejectReasons)[number];

/** The place of an end in this list is its number in a goodbye frame: only append. */
export const linkEnds = [
  "goodbye",
  "reset",
  "silent",
  "replaced",
  "stopped",
  "frame-invalid",
  "update-refused",
  "buffer-full",
] as const;

/** Why a link has ended. `reset`: the other end is gone; `silent`: nothing was heard for too long. */
export type LinkEnd = (typeof linkEnds)[number];

const maxDetailBytes = 512;
const maxDetailCharacters = 128;

/** Writes a reject frame; a long detail is cut. */
export function encodeReject({ reason, detail, knownEpoch }: Rejection): Uint8Array {
  const writer = new ByteWriter();
  writer.u8(frameTypes.reject);
  writer.u8(rejectReasons.indexOf(reason));
  writer.varint(knownEpoch);
  writer.text(detail.slice(0, maxDetailCharacters));
  return writer.copy();
}

/**
 * Reads a reject frame. Characters that could disturb a terminal are replaced in its detail.
 *
 * @throws RangeError for bytes that are no reject frame
 */
export function decodeReject(frame: Uint8Array): Rejection {
  const reader = new ByteReader(frame);
  reader.u8();
  const reason = rejectReasons[reader.u8()];
  if (!reason) throw new RangeError("a rejection without a known reason");
  const knownEpoch = checkEpoch(reader.varint());
  const detail = reader.text(maxDetailBytes).replace(/\p{C}/gu, "?");
  reader.end();
  return { reason, detail, knownEpoch };
}

/** Writes a goodbye frame. */
export function encodeGoodbye(why: LinkEnd): Uint8Array {
  return Uint8Array.of(frameTypes.goodbye, linkEnds.indexOf(why));
}

/**
 * Reads a goodbye frame.
 *
 * @throws RangeError for bytes that are no goodbye frame
 */
export function decodeGoodbye(frame: Uint8Array): LinkEnd {
  const why = frame.length === 2 ? linkEnds[frame[1]!] : undefined;
  if (!why) throw new RangeError("a goodbye without a known reason");
  return why;
}
