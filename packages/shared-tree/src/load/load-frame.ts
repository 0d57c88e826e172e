import { ByteReader, ByteWriter } from "@espalier/core";
import { type CountedFrame, frameOrigin, readCounter, readFrame, splitIntoFrames } from "@espalier/mesh";
import { gaugeFlags, gaugeFlagsOf, gaugeNames, type LoadGauge, readGauge, writeGauge } from "./load-gauge.ts";

/** A longer frame is refused. */
export const maxLoadFrameBytes = 262_144;
/** A frame with more reports is refused. */
export const maxLoadFrameReports = 4_096;
/** UTF-8 bytes of a target's key. */
export const maxLoadKeyBytes = 255;
const version = 1;
/** Others are those of gauges. */
const flag = { covers: 1, relayed: 2 } as const;
const knownFlags = flag.covers | flag.relayed | gaugeFlags;

/** The absolute gauge of one target. */
export interface GaugeReport extends LoadGauge {
  /** Denotes the target in all frames of one origin. */
  readonly number: number;
  /** The target; absent where an earlier frame has named the number's target. */
  readonly key: string | undefined;
  /**
   * The counter of the origin's frame that had this gauge. It equals the frame's own counter unless a relay made the
   * frame.
   */
  readonly counter: number;
}

/** Of the numbers from `from` to `to` (exclusive) those without a report are zero. */
export interface CoveredNumbers {
  readonly from: number;
  readonly to: number;
}

export interface LoadFrame extends CountedFrame {
  /** Wall clock of the origin, to measure how long frames take. */
  readonly sentWallMs: number;
  readonly covers: CoveredNumbers | undefined;
  readonly reports: readonly GaugeReport[];
}

/**
 * Layout: version and flags, a byte each; router as text; varints: epoch, counter, wall clock, the relay's age if
 * flagged, first covered number and how many (0: all from there on) if flagged, number of reports. A report is the
 * varint 2 x number + (1 when the key follows), the key as text, in a relay's frame the distance of its counter, and
 * the gauges as varints, the ones with flags last: 6 to 12 bytes without the key.
 */
export function writeLoadFrame(frame: LoadFrame): Uint8Array {
  const { origin, covers, relayedAgeMs, reports } = frame;
  const isRelayed = relayedAgeMs !== undefined;
  const writer = new ByteWriter(64 + reports.length * 16);
  writer.u8(version);
  const flags = (covers ? flag.covers : 0) | (isRelayed ? flag.relayed : 0) | gaugeFlagsOf(reports);
  writer.u8(flags);
  frameOrigin.write(writer, origin);
  writer.varint(frame.counter);
  writer.varint(frame.sentWallMs);
  if (isRelayed) writer.varint(Math.ceil(relayedAgeMs));
  if (covers) {
    writer.varint(covers.from);
    writer.varint(covers.to === Number.POSITIVE_INFINITY ? 0 : covers.to - covers.from);
  }
  writer.varint(reports.length);
  for (const report of reports) {
    writeReport(writer, report, isRelayed ? frame.counter : undefined);
    writeGauge(writer, report, flags);
  }
  return writer.copy();
}

function writeReport(writer: ByteWriter, report: GaugeReport, relayedCounter: number | undefined): void {
  const { key } = report;
  writer.varint(report.number * 2 + (key === undefined ? 0 : 1));
  if (key !== undefined) writer.text(key);
  if (relayedCounter !== undefined) writer.varint(relayedCounter - report.counter);
}

/** @throws EspalierError `mesh_frame_invalid` */
export function readLoadFrame(bytes: Uint8Array): LoadFrame {
  return readFrame(bytes, { what: "load gauges", maxBytes: maxLoadFrameBytes, read: readGauges });
}

function readGauges(bytes: Uint8Array): LoadFrame {
  const reader = ByteReader.ofVersion(version, bytes);
  const flags = reader.u8();
  if ((flags & ~knownFlags) !== 0) throw new RangeError(`flags ${flags} are not known`);
  const origin = frameOrigin.read(reader);
  const counter = reader.varint();
  const sentWallMs = reader.varint();
  const relayedAgeMs = flags & flag.relayed ? reader.varint() : undefined;
  const covers = flags & flag.covers ? readCovers(reader) : undefined;
  const count = reader.varint();
  if (count > maxLoadFrameReports) throw new RangeError(`${count} reports are too many`);
  const isRelayed = relayedAgeMs !== undefined;
  const reports: GaugeReport[] = [];
  const head = { counter, isRelayed, flags };
  for (let index = 0; index < count; index++) reports.push(readReport(reader, head));
  reader.end();
  return { origin, counter, sentWallMs, relayedAgeMs, covers, reports };
}

function readCovers(reader: ByteReader): CoveredNumbers {
  const from = reader.varint();
  const length = reader.varint();
  return { from, to: length === 0 ? Number.POSITIVE_INFINITY : from + length };
}

function readReport(
  reader: ByteReader,
  frame: { readonly counter: number; readonly isRelayed: boolean; readonly flags: number },
): GaugeReport {
  const head = reader.varint();
  const key = head % 2 === 1 ? reader.text(maxLoadKeyBytes) : undefined;
  const counter = readCounter(reader, frame.counter, frame.isRelayed);
  const gauge = readGauge(reader, frame.flags);
  // A spread that comes first is a copy of the object, and fast.
  return { ...gauge, number: Math.floor(head / 2), key, counter };
}

/**
 * Upper bound of a report's bytes next to its key: number and counter, which no process counts up to 2^48, its gauges,
 * and the length of the key.
 */
export const reportBytes = 7 + 7 + gaugeNames.length * 6 + 2;
/** Upper bound of a frame's bytes next to its reports. */
const headBytes = 512;

/** Splits reports into as few lists as fit into frames; one empty list when there are none. */
export function splitReports<Report extends { readonly key: string | undefined }>(
  reports: readonly Report[],
): (readonly Report[])[] {
  const lists = splitIntoFrames(reports, {
    maxBytes: maxLoadFrameBytes - headBytes,
    maxItems: maxLoadFrameReports,
    // A UTF-16 unit takes at most three bytes of UTF-8.
    sizeOf: ({ key }) => reportBytes + (key?.length ?? 0) * 3,
  });
  return lists.length === 0 ? [[]] : lists;
}
