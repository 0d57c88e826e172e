import { createHmac, timingSafeEqual } from "node:crypto";
import {
  ByteReader,
  ByteWriter,
  converted,
  copied,
  ended,
  list,
  oneOf,
  raw,
  rest,
  struct,
  text,
  u32,
  varint,
  versioned,
} from "@espalier/core";
import { maxEpoch, type Origin, originOf } from "../origin.ts";
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

const channel = oneOf<Channel>(...channels);
const channelNumbers = Object.fromEntries(channels.map((channel, index) => [channel, index])) as Readonly<
  Record<Channel, number>
>;
const credit = versioned(frameTypes.credit, ended(struct({ channel, bytes: varint() })));

// By hand, as each frame of a link passes here.

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

export const encodeCredit: (credit: Credit) => Uint8Array = credit.encode;

/** @throws RangeError for bytes that are no credit frame */
export const decodeCredit: (frame: Uint8Array) => Credit = credit.decode;

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
const espa = 0x41505345;
const digestBytes = 32;
/** Largest protocol version. */
const maxVersion = 0xffff;
/** UTF-8 bytes of the cluster, the router's id and its address. */
export const maxNameBytes = 255;
/** Largest block size, in tokens. */
const maxBlockSizeTokens = 1 << 20;
/** Capabilities of a hello. */
const maxCapabilities = 32;
/** UTF-8 bytes of a capability. */
const maxCapabilityBytes = 64;

const versions = converted<{ magic: number; min: number; max: number }, VersionRange>(
  struct({ magic: u32, min: varint(maxVersion), max: varint(maxVersion) }),
  {
    to({ magic, min, max }) {
      if (magic !== espa) throw new RangeError("a hello of another protocol");
      if (min > max) throw new RangeError(`versions from ${min} to ${max}`);
      return { min, max };
    },
    from: ({ min, max }) => ({ magic: espa, min, max }),
  },
);
const helloVersions = versioned(frameTypes.hello, versions);
const hello = versioned(
  frameTypes.hello,
  struct({
    versions,
    nonce: copied(raw(nonceBytes)),
    cluster: text(maxNameBytes),
    seedDigest: copied(raw(digestBytes)),
    blockSizeTokens: varint(maxBlockSizeTokens),
    origin: originOf(maxNameBytes),
    address: converted<string, string | undefined>(text(maxNameBytes), {
      to: (address) => address || undefined,
      from: (address) => address ?? "",
    }),
    capabilities: list(text(maxCapabilityBytes), maxCapabilities),
  }),
);

export const encodeHello: (hello: Hello) => Uint8Array = hello.encode;

/**
 * Reads only the versions of a hello frame: later versions may lay out the rest otherwise.
 *
 * @throws RangeError for a frame that is not the hello of a router
 */
export const decodeVersions: (frame: Uint8Array) => VersionRange = helloVersions.decode;

/**
 * Bytes after the fields of this version are ignored, so that a later version can add fields.
 *
 * @throws RangeError for bytes that are no hello
 */
export const decodeHello: (frame: Uint8Array) => Hello = hello.decode;

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

/** UTF-8 bytes of a rejection's detail. */
const maxDetailBytes = 512;
/** Characters of a rejection's detail; the rest is cut. */
const maxDetailCharacters = 128;

const reject = versioned(
  frameTypes.reject,
  ended(
    struct({
      reason: oneOf<RejectReason>(...rejectReasons),
      knownEpoch: varint(maxEpoch),
      detail: converted(text(maxDetailBytes), {
        // Some characters could disturb a terminal.
        to: (detail) => detail.replace(/\p{C}/gu, "?"),
        from: (detail) => detail.slice(0, maxDetailCharacters),
      }),
    }),
  ),
);
const goodbye = versioned(frameTypes.goodbye, ended(struct({ end: oneOf<LinkEnd>(...linkEnds) })));

/** Writes a reject frame; a long detail is cut. */
export const encodeReject: (rejection: Rejection) => Uint8Array = reject.encode;

/**
 * Reads a reject frame. Characters that could disturb a terminal are replaced in its detail.
 *
 * @throws RangeError for bytes that are no reject frame
 */
export const decodeReject: (frame: Uint8Array) => Rejection = reject.decode;

export function encodeGoodbye(end: LinkEnd): Uint8Array {
  return goodbye.encode({ end });
}

/** @throws RangeError for bytes that are no goodbye frame */
export function decodeGoodbye(frame: Uint8Array): LinkEnd {
  return goodbye.decode(frame).end;
}

export const linkFrameLayouts = {
  "1 hello": hello.layout,
  "3 accept": "",
  "4 reject": reject.layout,
  "5 goodbye": goodbye.layout,
  "6 data": `channel:${channel.layout} payload:${rest().layout}`,
  "7 credit": credit.layout,
};
