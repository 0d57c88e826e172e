import {
  before,
  converted,
  ended,
  flagged,
  flags,
  list,
  packed,
  roundedUp,
  struct,
  text,
  varint,
  versioned,
} from "@espalier/core";
import { type CountedFrame, frameOrigin, readFrame, splitIntoFrames } from "@espalier/mesh";
import { gaugeFields, gaugeFlags, gaugeNames, type LoadGauge } from "./load-gauge.ts";

/** A longer frame is refused. */
export const maxLoadFrameBytes = 262_144;
/** A frame with more reports is refused. */
export const maxLoadFrameReports = 4_096;
/** UTF-8 bytes of a target's key. */
export const maxLoadKeyBytes = 255;

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

const flag = { covers: 1, relayed: 2 } as const;
const loadFrame = versioned(
  1,
  ended(
    struct({
      flags: flags({ ...flag, ...gaugeFlags }),
      origin: frameOrigin,
      counter: varint(),
      sentWallMs: varint(),
      relayedAgeMs: flagged(flag.relayed, roundedUp),
      covers: flagged(
        flag.covers,
        // None: all from there on.
        converted<{ from: number; count: number }, CoveredNumbers>(struct({ from: varint(), count: varint() }), {
          to: ({ from, count }) => ({ from, to: count === 0 ? Number.POSITIVE_INFINITY : from + count }),
          from: ({ from, to }) => ({ from, count: to === Number.POSITIVE_INFINITY ? 0 : to - from }),
        }),
      ),
      reports: list(
        struct({
          number: packed(["key"]),
          key: flagged(1, text(maxLoadKeyBytes)),
          counter: before("counter", flag.relayed),
          ...gaugeFields,
        }),
        maxLoadFrameReports,
      ),
    }),
  ),
);

export const loadFrameLayout = loadFrame.layout;

/** Name of the capability to read the number of answers. */
export const answersCapability = "answers";

/** The same frame for routers that refuse the flag of the number of answers. */
export function withoutAnswers(frame: Uint8Array): Uint8Array {
  const read = readLoadFrame(frame);
  return writeLoadFrame({ ...read, reports: read.reports.map((report) => ({ ...report, answers: 0 })) });
}

/** A report takes 7 to 13 bytes without the key. */
export function writeLoadFrame(frame: LoadFrame): Uint8Array {
  return loadFrame.encode(frame, 64 + frame.reports.length * 16);
}

/** @throws EspalierError `mesh_frame_invalid` */
export function readLoadFrame(bytes: Uint8Array): LoadFrame {
  return readFrame(bytes, { what: "load gauges", maxBytes: maxLoadFrameBytes, read: loadFrame.decode });
}

/**
 * Upper bound of a report's bytes next to its key and its gauges: its number, of which no process has 2^34, its counter,
 * which none counts up to 2^48, and the length of the key.
 */
export const reportHeadBytes = 5 + 7 + 2;
/** Upper bound of a report's bytes next to its key. */
const reportBytes = reportHeadBytes + gaugeNames.length * 6;
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
