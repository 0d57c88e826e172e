import { type Figure, type PlotPanel, renderFigure } from "@espalier/simulator";
import type { RouterSample } from "./samples.ts";

/** Maximum points per line: more could not be distinguished. */
const maxPoints = 480;
const msPerMinute = 60_000;

/** Renders samples over time as an SVG document, one line per router. @param samples at least one */
export function plotSoak(samples: readonly RouterSample[]): string {
  const names = [...new Set(samples.map(({ router }) => router))].sort();
  const panel = (title: string, label: string, value: (sample: RouterSample) => number): PlotPanel => ({
    title,
    x: { label: "minutes", from: 0 },
    y: { label, from: 0 },
    lines: names.map((name) => {
      const own = samples.filter(({ router }) => router === name);
      const step = Math.ceil(own.length / maxPoints);
      const points = own.filter((_, at) => at % step === 0);
      return { name, points: points.map((sample) => ({ x: sample.atMs / msPerMinute, y: value(sample) })) };
    }),
  });
  const figure: Figure = {
    title: "Routers under churn",
    description:
      "Resident memory, used heap, open files, the longest delays of the event loop, and journals of each router over " +
      "time. The last router is restarted and killed in turn.",
    panels: [
      panel("Resident memory", "MB", ({ rssMb }) => rssMb),
      panel("Used heap", "MB", ({ heapMb }) => heapMb),
      panel("Open files and sockets", "count", ({ handles }) => handles),
      panel("Event loop's longest delay", "ms", ({ loopMaxMs }) => loopMaxMs),
      panel("Journals", "MB", ({ journalMb }) => journalMb),
    ],
  };
  return renderFigure(figure);
}
