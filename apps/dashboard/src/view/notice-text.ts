import { formatAge, formatTime } from "../model/format.ts";

export interface NoticeState {
  readonly moved: { readonly from: string; readonly to: string; readonly atMs: number } | undefined;
  readonly isLive: boolean;
  readonly hasBeenLive: boolean;
  readonly nowMs: number;
}

/** How long a move is worth a line. */
const noticedMs = 60_000;

/** One line on what has become of the router that was read. */
export function noticeText({ moved, isLive, hasBeenLive, nowMs }: NoticeState): string {
  if (!isLive && hasBeenLive) return "No router answers. What you see is what was seen last; the page goes on trying.";
  if (!moved || nowMs - moved.atMs > noticedMs) return "";
  const age = formatAge(nowMs - moved.atMs);
  return `${moved.from} is gone: reading from ${moved.to} since ${formatTime(moved.atMs)} (${age}).`;
}
