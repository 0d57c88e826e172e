import { maxLoadFrameBytes, maxLoadFrameReports } from "./load-frame.ts";

/** Bytes that a report takes at most beside its key: number, counter, five gauges, and the length of the key. */
export const reportBytes = 8 + 8 + 5 * 6 + 2;
/** Bytes that a frame takes at most beside its reports. */
const headBytes = 512;

/** Cuts reports into as few lists as fit into frames; one empty list when there are none. */
export function splitReports<Report extends { readonly key: string | undefined }>(
  reports: readonly Report[],
): (readonly Report[])[] {
  const lists: (readonly Report[])[] = [];
  let from = 0;
  let bytes = headBytes;
  for (let index = 0; index < reports.length; index++) {
    // A UTF-16 unit takes at most three bytes of UTF-8.
    const more = reportBytes + (reports[index]!.key?.length ?? 0) * 3;
    if (bytes + more > maxLoadFrameBytes || index - from === maxLoadFrameReports) {
      lists.push(reports.slice(from, index));
      from = index;
      bytes = headBytes;
    }
    bytes += more;
  }
  lists.push(reports.slice(from));
  return lists;
}
