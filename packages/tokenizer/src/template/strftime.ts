import { valueError } from "./template-error.ts";

const days = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const months = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];

const pad = (value: number, width = 2, fill = "0"): string => String(value).padStart(width, fill);
const dayOfYear = (date: Date): number =>
  Math.floor((date.getTime() - Date.UTC(date.getUTCFullYear(), 0, 1)) / 86_400_000) + 1;
const hour12 = (date: Date): number => date.getUTCHours() % 12 || 12;

/** Directives of C's `strftime` in the C locale, which engines run in. */
const directives: Readonly<Record<string, (date: Date) => string>> = {
  a: (date) => days[date.getUTCDay()]!.slice(0, 3),
  A: (date) => days[date.getUTCDay()]!,
  b: (date) => months[date.getUTCMonth()]!.slice(0, 3),
  B: (date) => months[date.getUTCMonth()]!,
  c: (date) => formatTime(date, "%a %b %e %H:%M:%S %Y"),
  C: (date) => pad(Math.floor(date.getUTCFullYear() / 100)),
  d: (date) => pad(date.getUTCDate()),
  D: (date) => formatTime(date, "%m/%d/%y"),
  e: (date) => pad(date.getUTCDate(), 2, " "),
  f: (date) => pad(date.getUTCMilliseconds() * 1000, 6),
  F: (date) => formatTime(date, "%Y-%m-%d"),
  h: (date) => formatTime(date, "%b"),
  H: (date) => pad(date.getUTCHours()),
  I: (date) => pad(hour12(date)),
  j: (date) => pad(dayOfYear(date), 3),
  k: (date) => pad(date.getUTCHours(), 2, " "),
  l: (date) => pad(hour12(date), 2, " "),
  m: (date) => pad(date.getUTCMonth() + 1),
  M: (date) => pad(date.getUTCMinutes()),
  n: () => "\n",
  p: (date) => (date.getUTCHours() < 12 ? "AM" : "PM"),
  P: (date) => (date.getUTCHours() < 12 ? "am" : "pm"),
  r: (date) => formatTime(date, "%I:%M:%S %p"),
  R: (date) => formatTime(date, "%H:%M"),
  S: (date) => pad(date.getUTCSeconds()),
  t: () => "\t",
  T: (date) => formatTime(date, "%H:%M:%S"),
  u: (date) => String(date.getUTCDay() || 7),
  w: (date) => String(date.getUTCDay()),
  x: (date) => formatTime(date, "%m/%d/%y"),
  X: (date) => formatTime(date, "%H:%M:%S"),
  y: (date) => pad(date.getUTCFullYear() % 100),
  Y: (date) => String(date.getUTCFullYear()),
  z: () => "",
  Z: () => "",
  "%": () => "%",
};

/**
 * `datetime.strftime` of a time without a zone. The date's UTC fields are taken as they are: the caller shifts it to
 * the engine's zone, which is UTC in a container.
 *
 * @throws TemplateError for a directive whose text depends on the platform
 */
export function formatTime(date: Date, format: string): string {
  return format.replace(/%(-?)([A-Za-z%])/g, (whole, dash: string, letter: string) => {
    if (!Object.hasOwn(directives, letter)) throw valueError(`strftime_now: ${whole} is not supported`);
    const text = directives[letter]!(date);
    // glibc's flag for no padding.
    return dash === "" ? text : text.replace(/^[0 ]+(?=.)/, "");
  });
}
