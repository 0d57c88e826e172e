import type { PlotLine, PlotPanel, PlotPoint } from "./figure.ts";
import { lineClass } from "./line-styles.ts";
import { createScale, type Scale } from "./scale.ts";
import { escapeText, svgElement } from "./svg-element.ts";

/** Pixels of a panel, everything around the chart included. */
export const panelWidth = 400;
export const panelHeight = 260;

const chart = { left: 62, right: panelWidth - 14, top: 30, bottom: panelHeight - 46 };
/** A panel whose lines have no more points than this shows them. */
const maxMarkers = 16;
const wantedTicks = { x: 6, y: 5 };

/**
 * One chart as the content of a group whose corner is at 0, 0.
 *
 * @param styleOf number of the look of a line
 */
export function renderPanel({ title, x, y, lines }: PlotPanel, styleOf: (name: string) => number): string {
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

interface LineLook {
  readonly scaleX: Scale;
  readonly scaleY: Scale;
  readonly style: number;
  readonly hasMarkers: boolean;
}

function renderLine({ name, points }: PlotLine, { scaleX, scaleY, style, hasMarkers }: LineLook): string {
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
