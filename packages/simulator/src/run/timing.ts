import type { SimTiming } from "./run-options.ts";

/**
 * What the simulated world takes its time for unless told otherwise. The shared delays are the medians of the real code
 * over links of the simulated kind, at a hundred requests a second for each router: facts and placements go in batches of
 * 15 ms, load in batches of 10 ms. With fewer requests they are shorter, for what comes after quiet goes at once.
 * `test/run/shared-delays.test.ts` measures them anew.
 */
export const defaultTiming: SimTiming = {
  eventDelayMs: 5,
  linkDelayMs: 0.5,
  hopDelayMs: 0.25,
  scrapeMs: 1_000,
  sharedFactsMs: 8,
  sharedLoadMs: 6,
};
