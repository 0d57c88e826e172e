/** A position in a panel, in the panel's own units. */
interface PlotPoint {
  readonly x: number;
  readonly y: number;
  /** How far the value spreads there, drawn as a band around the line. */
  readonly low?: number;
  readonly high?: number;
}

/** One line. Lines with the same name look the same in all panels. */
export interface PlotLine {
  readonly name: string;
  /** In order of x. Points with no position on the axes, such as NaN, break the line. */
  readonly points: readonly PlotPoint[];
}

export interface PlotAxis {
  /** Includes the unit. */
  readonly label: string;
  /** Linear unless given. */
  readonly kind?: ScaleKind;
  /** Start of a linear axis; its lowest value by default. */
  readonly from?: number;
  /** Values to mark, instead of round ones. */
  readonly marks?: readonly number[];
}

/** One chart of a figure. */
export interface PlotPanel {
  readonly title: string;
  readonly x: PlotAxis;
  readonly y: PlotAxis;
  readonly lines: readonly PlotLine[];
}

/** Small multiples with one legend. */
export interface Figure {
  readonly title: string;
  /** Text alternative. */
  readonly description: string;
  readonly panels: readonly PlotPanel[];
  /** Panels per row; 2 by default. */
  readonly columns?: number;
}

/** Panels of a figure. */
export const maxPanels = 24;

/** As many as there are line styles. */
export const maxLineNames = 24;

/** Points of a line. */
export const maxLinePoints = 2_000;

const margin = 16;

const titleHeight = 34;

const legendRowHeight = 20;

const legendSwatch = 26;

/** Width of a letter of the legend at 12 px: a guess on the wide side. */
const letterWidth = 7;

const defaultColumns = 2;

/**
 * Renders a figure as an SVG document. It needs no script and no font of its own, and follows the reader's light or
 * dark colour scheme.
 *
 * @throws RangeError for more than 24 panels, 24 line names or 2,000 points of a line, or without a panel
 */
export function renderFigure(figure: Figure): string {
  checkBounds(figure);
  const { title, description, panels } = figure;
  const columns = Math.min(figure.columns ?? defaultColumns, panels.length);
  const rows = Math.ceil(panels.length / columns);
  const names = [...new Set(panels.flatMap((panel) => panel.lines.map((line) => line.name)))];
  const width = columns * panelWidth + 2 * margin;
  const legend = layOutLegend(names, width - 2 * margin);
  const panelsTop = margin + titleHeight + legend.rows * legendRowHeight;
  const height = panelsTop + rows * panelHeight + margin;
  const styleOf = (name: string): number => names.indexOf(name);
  const content = [
    svgElement("title", { id: "figure-title" }, [escapeText(title)]),
    svgElement("desc", { id: "figure-desc" }, [escapeText(description)]),
    svgElement("style", {}, [styleSheet()]),
    svgElement("rect", { class: "ground", width, height }),
    svgElement("text", { class: "title", x: margin, y: margin + 16 }, [escapeText(title)]),
    ...legend.entries.map(({ name, x, y }) => {
      const top = margin + titleHeight + y;
      return svgElement("g", {}, [
        svgElement("path", { class: `line ${lineClass(styleOf(name))}`, d: `M${margin + x} ${top}h20` }),
        svgElement("text", { x: margin + x + legendSwatch, y: top + 4 }, [escapeText(name)]),
      ]);
    }),
    ...panels.map((panel, at) => {
      const x = margin + (at % columns) * panelWidth;
      const y = panelsTop + Math.floor(at / columns) * panelHeight;
      return svgElement("g", { transform: `translate(${x} ${y})` }, [renderPanel(panel, styleOf)]);
    }),
  ];
  const attributes = {
    xmlns: "http://www.w3.org/2000/svg",
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: "img",
    "aria-labelledby": "figure-title figure-desc",
  };
  return `${svgElement("svg", attributes, content)}\n`;
}

function checkBounds({ panels }: Figure): void {
  if (panels.length === 0 || panels.length > maxPanels)
    throw new RangeError(`a figure has 1 to ${maxPanels} panels, not ${panels.length}`);
  const lines = panels.flatMap((panel) => panel.lines);
  const names = new Set(lines.map((line) => line.name)).size;
  if (names > maxLineNames) throw new RangeError(`a figure has up to ${maxLineNames} names of lines, not ${names}`);
  const long = lines.find((line) => line.points.length > maxLinePoints);
  if (long) throw new RangeError(`a line has up to ${maxLinePoints} points, ${long.name} has ${long.points.length}`);
}

interface LegendEntry {
  readonly name: string;
  readonly x: number;
  readonly y: number;
}

/** Lays out names in rows, wrapped at the width. */
function layOutLegend(
  names: readonly string[],
  width: number,
): { readonly entries: readonly LegendEntry[]; readonly rows: number } {
  const entries: LegendEntry[] = [];
  let x = 0;
  let row = 0;
  for (const name of names) {
    const needed = legendSwatch + name.length * letterWidth + margin;
    if (x > 0 && x + needed > width) {
      x = 0;
      row++;
    }
    entries.push({ name, x, y: row * legendRowHeight });
    x += needed;
  }
  return { entries, rows: names.length === 0 ? 0 : row + 1 };
}

/** Pixels of a panel, including everything around the chart. */
const panelWidth = 400;

const panelHeight = 260;

const chart = { left: 62, right: panelWidth - 14, top: 30, bottom: panelHeight - 46 };

/** A panel draws markers when no line has more points than this. */
const maxMarkers = 16;

const wantedTicks = { x: 6, y: 5 };

/**
 * One chart as the content of a group whose corner is at 0, 0.
 *
 * @param styleOf number of a line's style
 */
function renderPanel({ title, x, y, lines }: PlotPanel, styleOf: (name: string) => number): string {
  const points = lines.flatMap((line) => line.points);
  const scaleX = createScale({
    kind: x.kind ?? "linear",
    values: points.map((point) => point.x),
    range: [chart.left, chart.right],
    wantedTicks: wantedTicks.x,
    ...(x.from === undefined ? {} : { from: x.from }),
    ...(x.marks === undefined ? {} : { marks: x.marks }),
  });
  const scaleY = createScale({
    kind: y.kind ?? "linear",
    values: points.flatMap((point) => [point.y, point.low ?? point.y, point.high ?? point.y]),
    range: [chart.bottom, chart.top],
    wantedTicks: wantedTicks.y,
    ...(y.from === undefined ? {} : { from: y.from }),
    ...(y.marks === undefined ? {} : { marks: y.marks }),
  });
  const hasMarkers = lines.every((line) => line.points.length <= maxMarkers);
  return [
    text(title, { class: "panel", x: chart.left, y: 18 }),
    ...scaleX.ticks.flatMap(({ value, label }) => {
      const at = scaleX.place(value);
      return [
        svgElement("line", { class: "grid", x1: at, x2: at, y1: chart.top, y2: chart.bottom }),
        text(label, { x: at, y: chart.bottom + 16, "text-anchor": "middle" }),
      ];
    }),
    ...scaleY.ticks.flatMap(({ value, label }) => {
      const at = scaleY.place(value);
      return [
        svgElement("line", { class: "grid", x1: chart.left, x2: chart.right, y1: at, y2: at }),
        text(label, { x: chart.left - 6, y: at + 4, "text-anchor": "end" }),
      ];
    }),
    svgElement("path", {
      class: "axis",
      fill: "none",
      d: `M${chart.left} ${chart.top}V${chart.bottom}H${chart.right}`,
    }),
    text(x.label, { x: (chart.left + chart.right) / 2, y: panelHeight - 10, "text-anchor": "middle" }),
    text(y.label, {
      transform: `translate(14 ${(chart.top + chart.bottom) / 2}) rotate(-90)`,
      "text-anchor": "middle",
    }),
    ...lines.map((line) => renderBand(line, scaleX, scaleY, styleOf(line.name))),
    ...lines.map((line) => renderLine(line, { scaleX, scaleY, style: styleOf(line.name), hasMarkers })),
  ].join("");
}

interface LineStyle {
  readonly scaleX: Scale;
  readonly scaleY: Scale;
  readonly style: number;
  readonly hasMarkers: boolean;
}

function renderLine({ name, points }: PlotLine, { scaleX, scaleY, style, hasMarkers }: LineStyle): string {
  const placed = points.map((point) => ({ x: scaleX.place(point.x), y: scaleY.place(point.y) }));
  let path = "";
  let isDown = false;
  for (const { x, y } of placed) {
    const hasPlace = Number.isFinite(x) && Number.isFinite(y);
    if (hasPlace) path += `${isDown ? "L" : "M"}${round(x)} ${round(y)}`;
    isDown = hasPlace;
  }
  if (path === "") return "";
  const markers = hasMarkers ? placed.filter(({ x, y }) => Number.isFinite(x + y)) : [];
  return svgElement("g", {}, [
    svgElement("title", {}, [escapeText(name)]),
    svgElement("path", { class: `line ${lineClass(style)}`, d: path }),
    ...markers.map(({ x, y }) => svgElement("circle", { class: lineClass(style), cx: x, cy: y, r: 3 })),
  ]);
}

function renderBand({ points }: PlotLine, scaleX: Scale, scaleY: Scale, style: number): string {
  const edge = (value: (point: PlotPoint) => number | undefined): readonly string[] =>
    points.flatMap((point) => {
      const x = scaleX.place(point.x);
      const y = scaleY.place(value(point) ?? Number.NaN);
      return Number.isFinite(x + y) ? [`${round(x)} ${round(y)}`] : [];
    });
  const high = edge((point) => (point.low === undefined ? undefined : point.high));
  const low = edge((point) => (point.high === undefined ? undefined : point.low));
  if (high.length < 2 || high.length !== low.length) return "";
  const outline = [...high, ...[...low].reverse()];
  return svgElement("path", { class: `band ${lineClass(style)}`, d: `M${outline.join("L")}Z` });
}

function text(content: string, attributes: Readonly<Record<string, string | number>>): string {
  return svgElement("text", attributes, [escapeText(content)]);
}

const round = (pixels: number): number => Math.round(pixels * 10) / 10;

/**
 * Hues that people with common colour blindness can distinguish, after Okabe and Ito, for light and dark backgrounds.
 */
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

/** Lines beyond the number of hues differ by their dashes. */
const dashes = ["", "6 3", "2 3"] as const;

/** Class names of a numbered style. */
function lineClass(at: number): string {
  return `c${at % hues.length} d${Math.floor(at / hues.length)}`;
}

const ground = { light: "#ffffff", dark: "#0d1117" };

const ink = { light: "#1f2328", dark: "#e6edf3" };

const faint = { light: "#d8dee4", dark: "#30363d" };

/** The style sheet of a figure: it follows the reader's colour scheme. */
function styleSheet(): string {
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

/** Attributes of an element. Numbers have at most two decimals. */
type SvgAttributes = Readonly<Record<string, string | number>>;

/** One element as text; its children are already markup. */
function svgElement(name: string, attributes: SvgAttributes, children: readonly string[] = []): string {
  const written = Object.entries(attributes).map(([key, value]) => ` ${key}="${escapeText(show(value))}"`);
  const start = `<${name}${written.join("")}`;
  return children.length === 0 ? `${start}/>` : `${start}>${children.join("")}</${name}>`;
}

/** Escapes text for an element or an attribute. */
function escapeText(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;")
    .replaceAll("'", "&#39;");
}

function show(value: string | number): string {
  return typeof value === "string" ? value : String(Math.round(value * 100) / 100);
}

type ScaleKind = "linear" | "log";

/** Places values on an axis. */
interface Scale {
  readonly ticks: readonly Tick[];
  /** Pixels; NaN for values with no position, such as 0 on a logarithmic axis. */
  place(value: number): number;
}

interface ScaleOptions {
  readonly kind: ScaleKind;
  /** All values, or at least the extremes. Values with no position on the axis are ignored. */
  readonly values: Iterable<number>;
  /** Pixels of the lowest and the highest value. */
  readonly range: readonly [number, number];
  readonly wantedTicks: number;
  /** Start of a linear axis, regardless of the values. */
  readonly from?: number;
  /** Marks that replace round values. */
  readonly marks?: readonly number[];
}

/** Margin of a logarithmic axis around a lone value: this factor on both sides. */
const loneFactor = 2;

export function createScale({ kind, values, range, wantedTicks, from, marks }: ScaleOptions): Scale {
  const isLog = kind === "log";
  const hasPlace = (value: number): boolean => Number.isFinite(value) && (!isLog || value > 0);
  const [min, max] = domainOf([...values].filter(hasPlace), isLog, from);
  const toUnit = isLog
    ? (value: number) => Math.log(value / min) / Math.log(max / min)
    : (value: number) => (value - min) / (max - min);
  const ticks = marks
    ? marks.filter((mark) => hasPlace(mark) && mark >= min && mark <= max).map(asTick)
    : isLog
      ? logTicks(min, max, wantedTicks)
      : linearTicks(min, max, wantedTicks);
  return {
    ticks,
    place: (value) => (hasPlace(value) ? range[0] + (range[1] - range[0]) * toUnit(value) : Number.NaN),
  };
}

/** Never empty: a lone value gets a margin; without values it is the unit interval. */
function domainOf(values: readonly number[], isLog: boolean, from: number | undefined): readonly [number, number] {
  let min = from !== undefined && !isLog ? from : Number.POSITIVE_INFINITY;
  let max = min === Number.POSITIVE_INFINITY ? Number.NEGATIVE_INFINITY : min;
  for (const value of values) {
    min = Math.min(min, value);
    max = Math.max(max, value);
  }
  if (min > max) return isLog ? [0.1, 1] : [0, 1];
  if (max > min) return [min, max];
  if (isLog) return [min / loneFactor, max * loneFactor];
  const padding = Math.abs(min) / 2 || 1;
  return [from === undefined ? min - padding : min, max + padding];
}

const asTick = (value: number): Tick => ({ value, label: group(String(value)) });

/** A mark of an axis. */
interface Tick {
  readonly value: number;
  readonly label: string;
}

const steps = [1, 2, 5, 10] as const;

/** Accepts a value that misses a step only by rounding. */
const tolerance = 1e-9;

/**
 * Round values between two bounds, inclusive, at steps of 1, 2 or 5 times a power of ten.
 *
 * @param wanted at least 1; the result has at most one more
 */
export function linearTicks(min: number, max: number, wanted: number): readonly Tick[] {
  const raw = (max - min) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * (steps.find((one) => one * power >= raw * (1 - tolerance)) ?? 10);
  const from = Math.ceil(min / step - tolerance);
  const to = Math.floor(max / step + tolerance);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + tolerance));
  return Array.from({ length: to - from + 1 }, (_, at) => {
    const value = (from + at) * step;
    return { value, label: group(value.toFixed(digits)) };
  });
}

/**
 * Marks of a logarithmic axis: powers of ten, and 2 and 5 times those if they fit.
 *
 * @param min above 0
 * @param wanted powers of ten are skipped rather than giving many more than this
 */
export function logTicks(min: number, max: number, wanted: number): readonly Tick[] {
  const whole = Math.ceil(Math.log10(max) - tolerance) - Math.floor(Math.log10(min) + tolerance);
  const factors = whole * 3 <= wanted ? [1, 2, 5] : [1];
  const from = factors.length > 1 ? Math.floor(Math.log10(min) + tolerance) : Math.ceil(Math.log10(min) - tolerance);
  const to = Math.floor(Math.log10(max) + tolerance);
  const stride = Math.max(1, Math.ceil((to - from) / wanted));
  const ticks: Tick[] = [];
  for (let power = from; power <= to; power += stride) {
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value < min * (1 - tolerance) || value > max * (1 + tolerance)) continue;
      ticks.push({ value, label: group(value.toFixed(Math.max(0, -power))) });
    }
  }
  return ticks.length > 1 ? ticks : linearTicks(min, max, wanted);
}

/** Groups the digits of the integer part in threes. */
export function group(digits: string): string {
  const [whole = "", rest] = digits.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return rest === undefined ? grouped : `${grouped}.${rest}`;
}
