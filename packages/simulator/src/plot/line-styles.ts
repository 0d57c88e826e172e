/** Hues that people with common colour blindness tell apart, after Okabe and Ito, on a light and on a dark ground. */
const hues: readonly { readonly light: string; readonly dark: string }[] = [
  { light: "#0072b2", dark: "#56b4e9" },
  { light: "#d55e00", dark: "#ff8a3d" },
  { light: "#007a5a", dark: "#2fd0a0" },
  { light: "#b3478c", dark: "#e79ac6" },
  { light: "#8a6d00", dark: "#f0d94a" },
  { light: "#5b5bd6", dark: "#a5a5ff" },
  { light: "#6b4226", dark: "#c99a7a" },
  { light: "#444c56", dark: "#b4bdc8" },
];

/** Lines beyond the hues differ by their dashes. */
const dashes = ["", "6 3", "2 3"] as const;

/** What a line of this number looks like: the names of its classes. */
export function lineClass(at: number): string {
  return `c${at % hues.length} d${Math.floor(at / hues.length)}`;
}

const ground = { light: "#ffffff", dark: "#0d1117" };
const ink = { light: "#1f2328", dark: "#e6edf3" };
const faint = { light: "#d8dee4", dark: "#30363d" };

/** The style sheet of a figure: it follows the reader's colour scheme. */
export function styleSheet(): string {
  const colours = (scheme: "light" | "dark"): string =>
    [
      `.ground{fill:${ground[scheme]}}`,
      `text{fill:${ink[scheme]}}`,
      `.grid{stroke:${faint[scheme]}}`,
      `.axis{stroke:${ink[scheme]}}`,
      ...hues.map((hue, at) => `.c${at}{stroke:${hue[scheme]};fill:${hue[scheme]}}`),
    ].join("");
  const marks = dashes.map((dash, at) => (dash === "" ? "" : `.line.d${at}{stroke-dasharray:${dash}}`)).join("");
  return [
    "text{font:12px system-ui,sans-serif}.title{font-size:15px;font-weight:600}.panel{font-weight:600}",
    colours("light"),
    "path.line{fill:none;stroke-width:2;stroke-linejoin:round}path.band{stroke:none;fill-opacity:.15}",
    marks,
    `@media(prefers-color-scheme:dark){${colours("dark")}}`,
  ].join("");
}
