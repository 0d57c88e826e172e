import {
  ByteWriter,
  type Codec,
  converted,
  EspalierError,
  flag,
  flagged,
  flags,
  list,
  messages,
  name,
  oneOf,
  type RouterId,
  struct,
  text,
  u32,
  varint,
} from "@espalier/core";
import { type Origin, originOf } from "../origin.ts";
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

const flagOf = { left: 1, draining: 2, region: 4 } as const;
const encoder = new TextEncoder();

const router = name<RouterId>(frameBounds.idBytes);
const origin = originOf(frameBounds.idBytes);
/** Bounded, so that the router still has higher numbers to answer with: a varint ends at 2^53. */
const incarnation = varint(frameBounds.incarnation);

const record: Codec<MemberRecord> = converted(
  struct({
    origin,
    incarnation: varint(frameBounds.incarnation, 1),
    flags: flags(flagOf),
    hasLeft: flag(flagOf.left),
    isDraining: flag(flagOf.draining),
    address: text(frameBounds.addressBytes),
    links: list(router, frameBounds.links),
    unreachable: list(text(frameBounds.targetBytes), frameBounds.unreachable, frameBounds.unreachableBytes),
    region: flagged(flagOf.region, name(frameBounds.regionBytes)),
  }),
  { to: (record) => record, from: (record) => ({ ...record, region: record.region || undefined }) },
);
const claim: Codec<MemberClaim> = struct({ origin, incarnation, state: oneOf("suspect", "down") });

const codes = { records: 3, claims: 4 } as const;
const frames = messages({
  ping: [1, struct({ number: varint(), digest: u32 })],
  ack: [2, struct({ number: varint() })],
  records: [codes.records, struct({ records: list(record, frameBounds.items) })],
  claims: [codes.claims, struct({ claims: list(claim, frameBounds.items) })],
  probe: [5, struct({ origin })],
  heard: [6, struct({ origin })],
});

export const membershipFrameLayouts = frames.layouts;

/** @returns the message's frames: one, or for many records or claims several */
export function encodeMembership(message: MembershipMessage): Uint8Array[] {
  switch (message.kind) {
    case "records":
      return encodeItems(codes.records, message.records, record);
    case "claims":
      return encodeItems(codes.claims, message.claims, claim);
    default:
      return [frames.encode(message, 32)];
  }
}

function encodeItems<Item>(code: number, items: readonly Item[], item: Codec<Item>): Uint8Array[] {
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
  for (const one of items) {
    item.write(body, one);
    count += 1;
    if (body.length >= frameBounds.fullAtBytes || count === frameBounds.items) end();
  }
  end();
  return frames;
}

/** @throws EspalierError `mesh_frame_invalid` for bytes that no member writes */
export function decodeMembership(frame: Uint8Array): MembershipMessage {
  try {
    return frames.decode(frame);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new EspalierError("mesh_frame_invalid", `A membership frame cannot be read: ${why}.`, { cause: error });
  }
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
