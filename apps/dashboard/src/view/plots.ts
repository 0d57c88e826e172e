/// <reference lib="dom" />
import uPlot from "uplot";
import { formatAge, formatCount, formatMs, formatRate, formatShare, formatShort, unknown } from "../model/format.ts";
import { latestOf, objectivesText, type Series } from "../model/history.ts";
import { element, type Part, panel, setAttribute, setText } from "./dom.ts";

export interface PlotsState extends Series {
  /** KV event feeds of the router with the most of them; null where none says. */
  readonly feeds: number | null;
}

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
  /** A figure that is not drawn. */
  readonly also?: (series: PlotsState) => string;
}

const percentiles = (p50: "firstByteP50Ms" | "tpotP50Ms", p99: "firstByteP99Ms" | "tpotP99Ms"): readonly Line[] => [
  { label: "p50", variable: "--leaf", values: (series) => series[p50] },
  { label: "p99", variable: "--bark", values: (series) => series[p99] },
];

/** The key figures: the mean of the last five seconds as a number, fifteen minutes as a plot. */
const kinds: readonly PlotKind[] = [
  {
    title: "Requests per second",
    format: formatRate,
    top: 5,
    lines: [{ label: "", variable: "--leaf", values: ({ requestsPerS }) => requestsPerS }],
    also: ({ outputTokensPerS }) => `${textOf(formatShort, latestOf(outputTokensPerS).value)} output tokens/s`,
  },
  {
    title: "Errors per second",
    format: formatRate,
    top: 1,
    lines: [
      { label: "failed", variable: "--alarm", values: ({ failedPerS }) => failedPerS },
      { label: "cut off", variable: "--hue-2", values: ({ cutPerS }) => cutPerS },
      { label: "refused", variable: "--bark", values: ({ refusedPerS }) => refusedPerS },
    ],
  },
  {
    title: "Time to first token",
    format: formatMs,
    top: 100,
    lines: percentiles("firstByteP50Ms", "firstByteP99Ms"),
  },
  {
    title: "Time per output token",
    format: formatMs,
    top: 20,
    lines: percentiles("tpotP50Ms", "tpotP99Ms"),
  },
  {
    title: "Goodput",
    format: formatShare,
    top: 1,
    isShare: true,
    lines: [{ label: "", variable: "--leaf", values: ({ goodputShare }) => goodputShare }],
    also: ({ objectives }) => objectivesText(objectives),
  },
  {
    title: "Cached prompt tokens",
    format: formatShare,
    top: 1,
    isShare: true,
    lines: [{ label: "", variable: "--leaf", values: ({ cachedShare }) => cachedShare }],
  },
  {
    title: "Waiting requests",
    format: formatCount,
    top: 5,
    lines: [{ label: "", variable: "--bark", values: ({ waiting }) => waiting }],
  },
  {
    title: "KV event lag, slowest feed",
    format: formatMs,
    top: 20,
    lines: [{ label: "", variable: "--hue-2", values: ({ eventLagMs }) => eventLagMs }],
    also: ({ feeds, eventLagMs }) => {
      if (feeds === 0) return "no engine sends KV events";
      return feeds !== null && latestOf(eventLagMs).value === null ? "no event yet" : "";
    },
  },
];

const textOf = (format: (value: number) => string, value: number | null): string =>
  value === null ? unknown : format(value);

/** All plots, side by side. */
export function createPlots(): Part<PlotsState> {
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

function createPlot(kind: PlotKind): Part<PlotsState> {
  const canvas = element("div", { class: "plot", role: "img", "aria-label": `${kind.title}: no data yet` });
  const figures = element("p", { class: "figures" });
  const { node, aside } = panel(kind.title, "chart", figures, canvas);
  const values = kind.lines.map(({ label, variable }) => {
    const value = element("span", { class: "value" }, unknown);
    const key = element("span", { class: `key-line key${variable}`, "aria-hidden": "true" });
    figures.append(element("span", { class: "now" }, value, ...(label === "" ? [] : [key, label])));
    return value;
  });
  const also = element("span", { class: "now soft" });
  if (kind.also) figures.append(also);
  let shown: uPlot | undefined;
  let latest: PlotsState | undefined;
  const draw = (series: PlotsState): void => {
    latest = series;
    const lines = kind.lines.map(({ values: of }) => of(series));
    const data = [series.timesS, ...lines] as unknown as uPlot.AlignedData;
    if (shown) shown.setData(data);
    else if (canvas.clientWidth > 0) {
      shown = new uPlot(
        optionsOf(kind, canvas, () => shownS(latest!)),
        data,
        canvas,
      );
    }
    const latestValues = lines.map(latestOf);
    const texts = latestValues.map(({ value }) => textOf(kind.format, value));
    // A figure that is not the present one says so: in an outage nothing looks as if it still worked.
    const ageMs = Math.max(...latestValues.map((each) => each.ageMs));
    setAttribute(node, "data-old", ageMs > 0);
    setText(aside, ageMs > 0 ? formatAge(ageMs) : "");
    if (kind.also) setText(also, kind.also(series));
    for (const [at, value] of values.entries()) setText(value, texts[at] ?? "");
    const spoken = kind.lines.map(({ label }, at) => `${label} ${texts[at]}`.trim()).join(", ");
    setAttribute(
      canvas,
      "aria-label",
      `${kind.title} over the last ${spanText(series)}; ${ageMs > 0 ? formatAge(ageMs) : "now"} ${spoken}`,
    );
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

/** Shortest time that plots show. */
const leastShownS = 60;

/** From the first point on: what is not there yet takes no room. */
function shownS({ timesS, requestsPerS }: Series): [number, number] {
  const lastS = timesS.at(-1)!;
  const first = requestsPerS.findIndex((value) => value !== null);
  return [first < 0 ? timesS[0]! : Math.min(timesS[first]!, lastS - leastShownS), lastS];
}

function spanText(series: Series): string {
  const [firstS, lastS] = shownS(series);
  const minutes = Math.round((lastS - firstS) / 60);
  return minutes === 1 ? "minute" : `${minutes} minutes`;
}

/** A narrower plot has no room for axes: the figure above it is its scale. */
const leastAxesPx = 180;

function optionsOf(
  { format, top, isShare = false, lines }: PlotKind,
  canvas: HTMLElement,
  /** Seconds since the Unix epoch, at the left and at the right. */
  rangeS: () => [number, number],
): uPlot.Options {
  /** As the theme in use has it: a canvas does not know variables. */
  const colour = (value: string): string => {
    canvas.style.color = value;
    const { color } = getComputedStyle(canvas);
    canvas.style.removeProperty("color");
    return color;
  };
  const isWide = canvas.clientWidth >= leastAxesPx;
  const axis = {
    stroke: colour("var(--soft)"),
    grid: { stroke: colour("var(--line)"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  const minutes = new Intl.DateTimeFormat("en-GB", { timeStyle: "short" });
  const seconds = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
  return {
    width: canvas.clientWidth,
    height: canvas.clientHeight,
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 20, 0, 0],
    scales: {
      x: { time: true, range: () => rangeS() },
      y: { range: (_, __, max) => [0, isShare ? 1 : Math.max(top, (max ?? 0) * 1.15)] },
    },
    axes: [
      {
        ...axis,
        show: isWide,
        size: 24,
        values: (_, splits) => {
          const style = splits.some((at) => at % 60 !== 0) ? seconds : minutes;
          return splits.map((at) => style.format(at * 1_000));
        },
        space: 80,
      },
      { ...axis, show: isWide, size: 48, values: (_, splits) => splits.map((value) => format(value)), space: 34 },
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
