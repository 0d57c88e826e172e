const millisecondsPer = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 } as const;
const bytesPer = { B: 1, KiB: 1_024, MiB: 1_048_576, GiB: 1_073_741_824, kB: 1e3, MB: 1e6, GB: 1e9 } as const;

/** Durations as text. A number alone is none, apart from 0: some programs count in seconds, others in milliseconds. */
export const durationPattern = "^\\d+(\\.\\d+)?(ms|s|m|h)$";
/** Sizes as text; a bare number is in bytes. */
export const sizePattern = "^\\d+(\\.\\d+)?(B|KiB|MiB|GiB|kB|MB|GB)$";

/** @returns milliseconds, or undefined when `text` is not a duration such as `500ms`, `2s`, `1.5m` or `1h` */
export function parseDuration(text: string): number | undefined {
  return parse(text, durationPattern, millisecondsPer);
}

/** @returns bytes, or undefined when `text` is not a size such as `512B`, `32KiB`, `1.5MiB` or `1GB` */
export function parseSize(text: string): number | undefined {
  return parse(text, sizePattern, bytesPer);
}

/** The shortest text that `parseDuration` reads back as `durationMs`. */
export function formatDuration(durationMs: number): string {
  return format(durationMs, ["h", "m", "s"], "ms", millisecondsPer);
}

/** The shortest text that `parseSize` reads back as `bytes`. */
export function formatSize(bytes: number): string {
  return format(bytes, ["GiB", "MiB", "KiB"], "B", bytesPer);
}

function parse(text: string, pattern: string, factors: Readonly<Record<string, number>>): number | undefined {
  if (!new RegExp(pattern).test(text)) return undefined;
  const digits = /^[\d.]+/.exec(text)?.[0] ?? "";
  return Number(digits) * (factors[text.slice(digits.length)] ?? Number.NaN);
}

function format(
  value: number,
  units: readonly string[],
  base: string,
  factors: Readonly<Record<string, number>>,
): string {
  const unit = value === 0 ? base : (units.find((each) => value % (factors[each] ?? 1) === 0) ?? base);
  return `${value / (factors[unit] ?? 1)}${unit}`;
}
