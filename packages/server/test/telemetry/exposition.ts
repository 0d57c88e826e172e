import type { Metrics } from "../../src/telemetry/index.ts";

/** The value of one line of the exposition, such as `espalier_x_total{engine="a"}`; undefined when it is absent. */
export async function sampleOf(metrics: Metrics, series: string): Promise<number | undefined> {
  const { body } = await metrics.render();
  const line = body.split("\n").find((candidate) => candidate.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
}

/** How many lines the exposition has for a metric, its HELP and TYPE aside. */
export async function seriesCountOf(metrics: Metrics, name: string): Promise<number> {
  const { body } = await metrics.render();
  return body.split("\n").filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `)).length;
}
