import { ByteReader, ByteWriter, hashOf } from "@espalier/core";
import { type CountedFrame, frameOrigin, readCounter, readFrame } from "@espalier/mesh";

/** The kind of note that a usage frame is: its first byte. */
export const usageNoteKind = 2;
/** A longer frame is refused. */
export const maxUsageFrameBytes = 65_536;
/** A frame with more tenants is refused. */
export const maxUsageReports = 2_048;
/** More tokens of one tenant are refused. */
export const maxUsageTokens = 2 ** 40;

const flag = { relayed: 1 } as const;

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
  /** Its requests wait at the router. */
  readonly isWaiting: boolean;
}

export interface UsageFrame extends CountedFrame {
  readonly reports: readonly UsageReport[];
}

/**
 * Layout: kind and flags, a byte each; router as text; varints: epoch, counter, the relay's age if flagged, number of
 * reports. A report: seven bytes of key, the lowest first, in a relay's frame the varint distance of its counter, and
 * varints of 4 x tokens + (2 when a lift follows) + (1 when it waits) and of the lift: 9 to 15 bytes.
 */
export function writeUsageFrame({ origin, counter, relayedAgeMs, reports }: UsageFrame): Uint8Array {
  const isRelayed = relayedAgeMs !== undefined;
  const writer = new ByteWriter(64 + reports.length * 16);
  writer.u8(usageNoteKind);
  writer.u8(isRelayed ? flag.relayed : 0);
  frameOrigin.write(writer, origin);
  writer.varint(counter);
  if (isRelayed) writer.varint(Math.ceil(relayedAgeMs));
  writer.varint(reports.length);
  for (const report of reports) {
    const high = Math.floor(report.key / 2 ** 32);
    writer.u32(report.key);
    writer.u8(high);
    writer.u8(high >>> 8);
    writer.u8(high >>> 16);
    if (isRelayed) writer.varint(counter - report.counter);
    writer.varint(report.tokens * 4 + (report.lift > 0 ? 2 : 0) + (report.isWaiting ? 1 : 0));
    if (report.lift > 0) writer.varint(report.lift);
  }
  return writer.copy();
}

/**
 * Bytes after the reports and unknown flags are ignored, so that a later version may add to a frame.
 *
 * @throws EspalierError `mesh_frame_invalid`
 */
export function readUsageFrame(bytes: Uint8Array): UsageFrame {
  return readFrame(bytes, { what: "usage", maxBytes: maxUsageFrameBytes, read: readReports });
}

function readReports(bytes: Uint8Array): UsageFrame {
  const reader = new ByteReader(bytes);
  const kind = reader.u8();
  if (kind !== usageNoteKind) throw new RangeError(`it is of kind ${kind}`);
  const flags = reader.u8();
  const origin = frameOrigin.read(reader);
  const counter = reader.varint();
  const isRelayed = (flags & flag.relayed) !== 0;
  const relayedAgeMs = isRelayed ? reader.varint() : undefined;
  const count = reader.varint();
  if (count > maxUsageReports) throw new RangeError(`${count} reports are too many`);
  const reports = Array.from({ length: count }, () => readReport(reader, counter, isRelayed));
  return { origin, counter, relayedAgeMs, reports };
}

function readReport(reader: ByteReader, frameCounter: number, isRelayed: boolean): UsageReport {
  const low = reader.u32();
  const key = (reader.u8() + reader.u8() * 2 ** 8 + reader.u8() * 2 ** 16) * 2 ** 32 + low;
  if (!Number.isSafeInteger(key)) throw new RangeError("a key is too large");
  const counter = readCounter(reader, frameCounter, isRelayed);
  const head = reader.varint();
  const tokens = Math.floor(head / 4);
  const lift = head % 4 >= 2 ? reader.varint() : 0;
  if (tokens > maxUsageTokens || lift > maxUsageTokens) throw new RangeError(`${tokens} tokens are too many`);
  return { key, counter, tokens, lift, isWaiting: head % 2 === 1 };
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
