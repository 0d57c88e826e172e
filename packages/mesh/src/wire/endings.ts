import { ByteReader, ByteWriter } from "@espalier/common";
import type { LinkEnd, RejectReason } from "../link/link.ts";
import { frameTypes } from "./frame-types.ts";
import { maxEpoch } from "./hello.ts";

/** Why one end refuses the other in the handshake. */
export interface Rejection {
  readonly reason: RejectReason;
  /** A sentence for the log of both ends. */
  readonly detail: string;
  /** With `epoch-behind`: the highest epoch known of the other's id; else 0. */
  readonly knownEpoch: number;
}

/** The place of a reason in this list is its number in a reject frame: only append. */
export const rejectReasons: readonly RejectReason[] = [
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
];

/** The place of an end in this list is its number in a goodbye frame: only append. */
export const linkEnds: readonly LinkEnd[] = [
  "goodbye",
  "reset",
  "silent",
  "replaced",
  "stopped",
  "frame-invalid",
  "update-refused",
  "buffer-full",
];

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
  const knownEpoch = reader.varint();
  if (knownEpoch > maxEpoch) throw new RangeError(`an epoch of ${knownEpoch}`);
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
