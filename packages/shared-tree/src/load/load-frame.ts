import { ByteReader, ByteWriter } from "@espalier/core";
import { type CountedFrame, readCounter, readFrame, readOrigin, splitIntoFrames, writeOrigin } from "@espalier/mesh";

/** A longer frame is refused. */
export const maxLoadFrameBytes = 262_144;
/** A frame with more reports is refused. */
export const maxLoadFrameReports = 4_096;
/** UTF-8 bytes of a target's key. */
export const maxLoadKeyBytes = 255;
/** Larger gauges are refused, so that the sums over all origins stay exact whole numbers. */
export const maxGaugeValue = 2 ** 40;

const version = 1;
const flag = { covers: 1, relayed: 2, active: 4, lending: 8, yielding: 16 } as const;
const knownFlags = flag.covers | flag.relayed | flag.active | flag.lending | flag.yielding;

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
 * the gauges as varints: 6 to 12 bytes without the key. Tokens of active blocks follow if flagged, then lent tokens, then yielding requests. Routers
 * that do not count them send frames that older routers know.
 */
export function writeLoadFrame(frame: LoadFrame): Uint8Array {
  const { origin, covers, relayedAgeMs, reports } = frame;
  const isRelayed = relayedAgeMs !== undefined;
  const hasActive = reports.some(({ activeTokens }) => activeTokens > 0);
  const hasLending = reports.some(({ lendingTokens }) => lendingTokens > 0);
  const hasYielding = reports.some(({ yieldingInFlight }) => yieldingInFlight > 0);
  const writer = new ByteWriter(64 + reports.length * 16);
  writer.u8(version);
  writer.u8(
    (covers ? flag.covers : 0) |
      (isRelayed ? flag.relayed : 0) |
      (hasActive ? flag.active : 0) |
      (hasLending ? flag.lending : 0) |
      (hasYielding ? flag.yielding : 0),
  );
  writeOrigin(writer, origin);
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
    if (hasActive) writer.varint(report.activeTokens);
    if (hasLending) writer.varint(report.lendingTokens);
    if (hasYielding) writer.varint(report.yieldingInFlight);
  }
  return writer.copy();
}

function writeReport(writer: ByteWriter, report: GaugeReport, relayedCounter: number | undefined): void {
  const { key } = report;
  writer.varint(report.number * 2 + (key === undefined ? 0 : 1));
  if (key !== undefined) writer.text(key);
  if (relayedCounter !== undefined) writer.varint(relayedCounter - report.counter);
  writer.varint(report.inFlight);
  writer.varint(report.pendingPrefillTokens);
  writer.varint(report.decodeTokens);
  writer.varint(report.pendingWorkMs);
}

/** @throws EspalierError `mesh_frame_invalid` */
export function readLoadFrame(bytes: Uint8Array): LoadFrame {
  return readFrame(bytes, { what: "load gauges", maxBytes: maxLoadFrameBytes, read: readGauges });
}

function readGauges(bytes: Uint8Array): LoadFrame {
  const reader = ByteReader.ofVersion(version, bytes);
  const flags = reader.u8();
  if ((flags & ~knownFlags) !== 0) throw new RangeError(`flags ${flags} are not known`);
  const origin = readOrigin(reader);
  const counter = reader.varint();
  const sentWallMs = reader.varint();
  const relayedAgeMs = flags & flag.relayed ? reader.varint() : undefined;
  const covers = flags & flag.covers ? readCovers(reader) : undefined;
  const count = reader.varint();
  if (count > maxLoadFrameReports) throw new RangeError(`${count} reports are too many`);
  const reports: GaugeReport[] = [];
  for (let index = 0; index < count; index++) {
    const report = readReport(reader, counter, relayedAgeMs !== undefined);
    const activeTokens = flags & flag.active ? readGauge(reader) : 0;
    const lendingTokens = flags & flag.lending ? readGauge(reader) : 0;
    const yieldingInFlight = flags & flag.yielding ? readGauge(reader) : 0;
    reports.push({ ...report, activeTokens, lendingTokens, yieldingInFlight });
  }
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
  frameCounter: number,
  isRelayed: boolean,
): Omit<GaugeReport, "activeTokens" | "lendingTokens" | "yieldingInFlight"> {
  const head = reader.varint();
  const key = head % 2 === 1 ? reader.text(maxLoadKeyBytes) : undefined;
  return {
    number: Math.floor(head / 2),
    key,
    counter: readCounter(reader, frameCounter, isRelayed),
    inFlight: readGauge(reader),
    pendingPrefillTokens: readGauge(reader),
    decodeTokens: readGauge(reader),
    pendingWorkMs: readGauge(reader),
  };
}

function readGauge(reader: ByteReader): number {
  const value = reader.varint();
  if (value > maxGaugeValue) throw new RangeError(`a gauge of ${value} is too large`);
  return value;
}

/**
 * Upper bound of a report's bytes next to its key: number and counter, which no process counts up to 2^48, seven gauges,
 * and the length of the key.
 */
export const reportBytes = 7 + 7 + 7 * 6 + 2;
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

/** What one router has sent to one target and not seen end. Whole numbers from 0. */
export interface LoadGauge {
  readonly inFlight: number;
  /** Prompt tokens to be computed for requests that have not produced a token. */
  readonly pendingPrefillTokens: number;
  /** Context tokens of requests past their first token. */
  readonly decodeTokens: number;
  /** Milliseconds that the engine is expected to compute on those prompts. */
  readonly pendingWorkMs: number;
  /** Tokens in prompt blocks of all those requests, each block once; 0 where they are not counted. */
  readonly activeTokens: number;
  /** Tokens that the target is sending to other engines for those requests; 0 where they are not counted. */
  readonly lendingTokens: number;
  /** Of the requests in flight, those of classes that yield; 0 where they are not counted. */
  readonly yieldingInFlight: number;
}

export const idleGauge: LoadGauge = {
  inFlight: 0,
  pendingPrefillTokens: 0,
  decodeTokens: 0,
  pendingWorkMs: 0,
  activeTokens: 0,
  lendingTokens: 0,
  yieldingInFlight: 0,
};

export function isIdle(gauge: LoadGauge): boolean {
  return isSameGauge(gauge, idleGauge);
}

export function isSameGauge(one: LoadGauge, other: LoadGauge): boolean {
  return (
    one.inFlight === other.inFlight &&
    one.pendingPrefillTokens === other.pendingPrefillTokens &&
    one.decodeTokens === other.decodeTokens &&
    one.pendingWorkMs === other.pendingWorkMs &&
    one.activeTokens === other.activeTokens &&
    one.lendingTokens === other.lendingTokens &&
    one.yieldingInFlight === other.yieldingInFlight
  );
}
