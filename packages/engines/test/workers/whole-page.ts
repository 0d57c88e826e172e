import { type MetricsReading, type RankReading, readMetricsPage } from "../../src/workers/index.ts";

/** The page of an engine whose data-parallel ranks are not told apart. */
export function readWholePage(page: string): Omit<MetricsReading, "ranks"> & RankReading {
  const { ranks, ...reading } = readMetricsPage(page);
  return { ...reading, ...ranks[0]! };
}
