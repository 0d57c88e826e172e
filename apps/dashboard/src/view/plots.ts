/// <reference lib="dom" />
import uPlot from "uplot";
import { formatCount, formatMs, formatRate, formatShare, unknown } from "../model/format.ts";
import type { Series } from "../model/history.ts";
import { element, type Part, panel, setAttribute, setText } from "./dom.ts";

interface Line {
  readonly label: string;
  readonly variable: string;
  readonly values: (series: Series) => readonly (number | null)[];
}

interface PlotKind {
  readonly title: string;
  readonly format: (value: number) => string;
  /** Least top of the scale. */
  readonly top: number;
  readonly isShare?: boolean;
  readonly lines: readonly Line[];
}

const kinds: readonly PlotKind[] = [
  {
    title: "Requests per second",
    format: formatRate,
    top: 5,
    lines: [{ label: "", variable: "--leaf", values: ({ requestsPerS }) => requestsPerS }],
  },
  {
    title: "Errors per second",
    format: formatRate,
    top: 1,
    lines: [
      { label: "failed", variable: "--alarm", values: ({ failedPerS }) => failedPerS },
      { label: "cut", variable: "--hue-2", values: ({ cutPerS }) => cutPerS },
      { label: "refused", variable: "--bark", values: ({ refusedPerS }) => refusedPerS },
    ],
  },
  {
    title: "TTFT",
    format: formatMs,
    top: 100,
    lines: [
      { label: "p50", variable: "--leaf", values: ({ firstByteP50Ms }) => firstByteP50Ms },
      { label: "p99", variable: "--bark", values: ({ firstByteP99Ms }) => firstByteP99Ms },
    ],
  },
  {
    title: "Cached share of prompts",
    format: formatShare,
    top: 1,
    isShare: true,
    lines: [{ label: "", variable: "--leaf", values: ({ cachedShare }) => cachedShare }],
  },
  {
    title: "Requests that wait",
    format: formatCount,
    top: 5,
    lines: [{ label: "", variable: "--bark", values: ({ waiting }) => waiting }],
  },
  {
    title: "Event lag, slowest feed",
    format: formatMs,
    top: 20,
    lines: [{ label: "", variable: "--hue-2", values: ({ eventLagMs }) => eventLagMs }],
  },
];

/** How old a value may be that is shown as the present one, in points. */
const nowPoints = 10;

/** All plots, side by side. */
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
  const values = kind.lines.map(({ label, variable }) => {
    const value = element("span", { class: "figure" });
    const key = element("span", { class: `key-line key${variable}`, "aria-hidden": "true" });
    aside.append(element("span", { class: "line-now" }, ...(label === "" ? [] : [key, label]), value));
    return value;
  });
  let shown: uPlot | undefined;
  let latest: Series | undefined;
  const draw = (series: Series): void => {
    latest = series;
    const lines = kind.lines.map(({ values: of }) => of(series));
    const data = [series.timesS, ...lines] as unknown as uPlot.AlignedData;
    if (shown) shown.setData(data);
    else if (canvas.clientWidth > 0) shown = new uPlot(optionsOf(kind, canvas), data, canvas);
    const now = lines.map((line) => line.slice(-nowPoints).findLast((one) => one !== null));
    const texts = now.map((value) => (value === undefined || value === null ? unknown : kind.format(value)));
    for (const [at, value] of values.entries()) setText(value, texts[at] ?? "");
    const spoken = kind.lines.map(({ label }, at) => `${label} ${texts[at]}`.trim()).join(", ");
    setAttribute(canvas, "aria-label", `${kind.title} over the last fifteen minutes; now ${spoken}`);
  };
  new ResizeObserver(() => {
    shown?.setSize({ width: canvas.clientWidth, height: canvas.clientHeight });
  }).observe(canvas);
  // Colours are read when it is made.
  document.documentElement.addEventListener("themechange", () => {
    shown?.destroy();
    shown = undefined;
    if (latest) draw(latest);
  });
  return { node, update: draw };
}

function optionsOf({ format, top, isShare = false, lines }: PlotKind, canvas: HTMLElement): uPlot.Options {
  /** As the theme in use has it: a canvas does not know variables. */
  const colour = (value: string): string => {
    canvas.style.color = value;
    const { color } = getComputedStyle(canvas);
    canvas.style.removeProperty("color");
    return color;
  };
  const axis = {
    stroke: colour("var(--soft)"),
    grid: { stroke: colour("var(--line)"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  const seconds = new Intl.DateTimeFormat("en-GB", { timeStyle: "short" });
  return {
    width: canvas.clientWidth,
    height: canvas.clientHeight,
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 8, 0, 0],
    scales: { x: { time: true }, y: { range: (_, __, max) => [0, isShare ? 1 : Math.max(top, (max ?? 0) * 1.15)] } },
    axes: [
      { ...axis, size: 24, values: (_, splits) => splits.map((at) => seconds.format(at * 1_000)), space: 80 },
      { ...axis, size: 48, values: (_, splits) => splits.map((value) => format(value)), space: 34 },
    ],
    series: [
      {},
      ...lines.map(({ label, variable }, at) => ({
        label,
        stroke: colour(`var(${variable})`),
        width: 1.5,
        ...(at === 0 && { fill: colour(`color-mix(in srgb, var(${variable}) 11%, transparent)`) }),
        points: { show: false },
        spanGaps: false,
      })),
    ],
  };
}
