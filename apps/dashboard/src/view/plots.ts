/// <reference lib="dom" />
import uPlot from "uplot";
import { formatRate, formatShare } from "../model/format.ts";
import { maxPoints, type Series } from "../model/rates.ts";
import { element, type Part, panel, setText } from "./dom.ts";

interface PlotKind {
  readonly title: string;
  readonly variable: string;
  readonly format: (value: number) => string;
  /** Least top of the scale. */
  readonly top: number;
  readonly isShare: boolean;
  readonly values: (series: Series) => readonly (number | null)[];
}

const kinds: readonly PlotKind[] = [
  {
    title: "Cached share",
    variable: "--leaf",
    format: formatShare,
    top: 1,
    isShare: true,
    values: ({ cachedShare }) => cachedShare,
  },
  {
    title: "Requests per second",
    variable: "--bark",
    format: formatRate,
    top: 5,
    isShare: false,
    values: ({ requestsPerS }) => requestsPerS,
  },
];

const heightPx = 150;

/** Both plots, side by side. */
export function createPlots(): Part<Series> {
  const node = element("div", { class: "plots" });
  const plots = kinds.map(createPlot);
  node.append(...plots.map((plot) => plot.node));
  return {
    node,
    update(series) {
      for (const plot of plots) plot.update(series);
    },
  };
}

function createPlot(kind: PlotKind): Part<Series> {
  const canvas = element("div", { class: "plot", role: "img" });
  const { node, aside } = panel(kind.title, "chart", canvas);
  let shown: uPlot | undefined;
  let latest: Series | undefined;
  const draw = (series: Series): void => {
    latest = series;
    const data = dataOf(kind, series);
    if (shown) shown.setData(data);
    else if (canvas.clientWidth > 0) shown = new uPlot(optionsOf(kind, canvas), data, canvas);
    const value = kind.values(series).findLast((one) => one !== null);
    const text = value === undefined || value === null ? "" : `now ${kind.format(value)}`;
    setText(aside, text);
    canvas.setAttribute("aria-label", `${kind.title} over the last five minutes: ${text || "nothing yet"}`);
  };
  new ResizeObserver(() => shown?.setSize({ width: canvas.clientWidth, height: heightPx })).observe(canvas);
  // Colours are read when it is made.
  document.documentElement.addEventListener("themechange", () => {
    shown?.destroy();
    shown = undefined;
    if (latest) draw(latest);
  });
  return { node, update: draw };
}

/** The axis always spans all points, so that the line grows from the right and nothing is stretched. */
function dataOf(kind: PlotKind, series: Series): uPlot.AlignedData {
  const times = [...series.timesS];
  const values = [...kind.values(series)];
  const first = times[0] ?? 0;
  const missing = maxPoints - times.length;
  for (let back = 1; back <= missing; back++) {
    times.unshift(first - back);
    values.unshift(null);
  }
  return [times, values];
}

function optionsOf({ title, variable, format, top, isShare }: PlotKind, canvas: HTMLElement): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string): string => style.getPropertyValue(name).trim();
  const axis = {
    stroke: colour("--soft"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  const seconds = new Intl.DateTimeFormat("en-GB", { timeStyle: "short" });
  return {
    width: canvas.clientWidth,
    height: heightPx,
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 8, 0, 0],
    scales: { x: { time: true }, y: { range: (_, __, max) => [0, isShare ? 1 : Math.max(top, max * 1.15)] } },
    axes: [
      { ...axis, size: 24, values: (_, splits) => splits.map((at) => seconds.format(at * 1_000)), space: 80 },
      { ...axis, size: 48, values: (_, splits) => splits.map((value) => format(value)), space: 34 },
    ],
    series: [
      {},
      {
        label: title,
        stroke: colour(variable),
        width: 2,
        fill: `${colour(variable)}22`,
        points: { show: false },
        spanGaps: false,
      },
    ],
  };
}
