const counts = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** Shown where a value is unknown. */
export const unknown = "–";

/** 12,345 */
export function formatCount(value: number): string {
  return counts.format(value);
}

/** 12.3K */
export function formatShort(value: number): string {
  return short.format(value);
}

/** 0, 0.4, 7.2, 31 */
export function formatRate(value: number): string {
  if (value === 0) return "0";
  return value < 10 ? value.toFixed(1) : counts.format(value);
}

/** 42 % */
export function formatShare(share: number | null): string {
  return share === null ? unknown : `${Math.round(share * 100)} %`;
}

/** 8 ms, 1.2 s */
export function formatMs(milliseconds: number | null): string {
  if (milliseconds === null) return unknown;
  return milliseconds < 1_000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1_000).toFixed(1)} s`;
}

/** 0, 0.4 s, 12 s, 3 min, 2.5 h: how long something lasted. */
export function formatSpan(milliseconds: number): string {
  const seconds = milliseconds / 1_000;
  if (seconds < 0.05) return "0";
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  return seconds < 7_200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3_600).toFixed(1)} h`;
}

/** now, 8 s ago, 3 min ago */
export function formatAge(milliseconds: number): string {
  const seconds = Math.max(0, Math.round(milliseconds / 1_000));
  if (seconds < 2) return "now";
  return seconds < 120 ? `${seconds} s ago` : `${Math.round(seconds / 60)} min ago`;
}

/** 14:03:59, in the viewer's time zone. */
export function formatTime(wallMs: number): string {
  const date = new Date(wallMs);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/** 0.26, 1.2, 1,250: for figures without a unit of their own; what is too small to matter is 0. */
export function formatNumber(value: number): string {
  const size = Math.abs(value);
  if (size < 0.001) return "0";
  return size < 100 ? String(Number(value.toPrecision(2))) : counts.format(value);
}
