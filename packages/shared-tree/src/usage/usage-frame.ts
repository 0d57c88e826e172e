import {
  before,
  type Codec,
  flagged,
  flags,
  hashOf,
  list,
  packed,
  roundedUp,
  signedVarint,
  struct,
  varint,
  versioned,
} from "@espalier/core";
import { type CountedFrame, frameOrigin, readFrame } from "@espalier/mesh";

/** The kind of note that a usage frame is: its first byte. */
export const usageNoteKind = 2;
/** A longer frame is refused. */
export const maxUsageFrameBytes = 65_536;
/** A frame with more tenants is refused. */
export const maxUsageReports = 2_048;
/** More tokens of one tenant are refused. */
export const maxUsageTokens = 2 ** 40;
/** An age beyond it, of either sign, is refused. */
export const maxFirstAgeMs = 2 ** 40;

/** What one router has served to one tenant. */
export interface UsageReport {
  /** See `usageKey`. */
  readonly key: number;
  /**
   * The counter of the origin's frame that had this report. It equals the frame's own unless a relay made the frame.
   */
  readonly counter: number;
  /** Served, as of the making of the frame; half of them are forgotten in every `usageHalfLifeMs`. */
  readonly tokens: number;
  /** Tokens by which it was lifted after an absence, decayed likewise. */
  readonly lift: number;
  /**
   * By how many milliseconds the sort key of its first request at the router is past, as of the making of the frame;
   * negative for a key in the future. Undefined while none waits.
   */
  readonly firstAgeMs: number | undefined;
}

export interface UsageFrame extends CountedFrame {
  readonly reports: readonly UsageReport[];
}

/** Seven bytes, the lowest first. */
const key: Codec<number> = {
  write(writer, value) {
    const high = Math.floor(value / 2 ** 32);
    writer.u32(value);
    writer.u8(high);
    writer.u8(high >>> 8);
    writer.u8(high >>> 16);
  },
  read(reader) {
    const low = reader.u32();
    const value = (reader.u8() + reader.u8() * 2 ** 8 + reader.u8() * 2 ** 16) * 2 ** 32 + low;
    if (!Number.isSafeInteger(value)) throw new RangeError("a key is too large");
    return value;
  },
  layout: "7B",
};

const relayed = 1;
const usageFrame = versioned(
  usageNoteKind,
  struct({
    flags: flags({ relayed }, "ignored"),
    origin: frameOrigin,
    counter: varint(),
    relayedAgeMs: flagged(relayed, roundedUp),
    reports: list(
      struct({
        key,
        counter: before("counter", relayed),
        tokens: packed(["firstAgeMs", "lift"], maxUsageTokens),
        firstAgeMs: flagged(1, signedVarint(maxFirstAgeMs)),
        lift: flagged(2, varint(maxUsageTokens), 0),
      }),
      maxUsageReports,
    ),
  }),
);

export const usageFrameLayout = usageFrame.layout;

/** A report takes 9 to 15 bytes, one of a tenant that waits up to 6 more. */
export function writeUsageFrame(frame: UsageFrame): Uint8Array {
  return usageFrame.encode(frame, 64 + frame.reports.length * 21);
}

/**
 * Bytes after the reports and unknown flags are ignored, so that a later version may add to a frame.
 *
 * @throws EspalierError `mesh_frame_invalid`
 */
export function readUsageFrame(bytes: Uint8Array): UsageFrame {
  return readFrame(bytes, { what: "usage", maxBytes: maxUsageFrameBytes, read: usageFrame.decode });
}

/**
 * How many values the two parts of a key have: one for the class of a pool, one for a tenant in it. Their product is
 * 2^53.
 */
const groups = 2 ** 16;
const tenants = 2 ** 37;

/**
 * A key for a tenant of a class of a pool, so that names of any length cost seven bytes. It has 16 bits of a hash of
 * class and pool, the high ones, and 37 bits of a hash of all three. Among 10,000 tenants of a class two share a key
 * with a probability of one in 2,700; other routers then serve them as if they were one.
 */
export function usageKey(pool: string, className: string, tenant: string): number {
  const { low, high } = hashOf(JSON.stringify([pool, className, tenant]));
  return usageGroup(pool, className) * tenants + (high % (tenants / 2 ** 32)) * 2 ** 32 + low;
}

/** The part of a key for a class of a pool. */
export function usageGroup(pool: string, className: string): number {
  return hashOf(JSON.stringify([pool, className])).low % groups;
}

/** The class and pool of a key. */
export function groupOfKey(key: number): number {
  return Math.floor(key / tenants);
}
