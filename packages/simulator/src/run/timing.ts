import type { SimTiming } from "./run-options.ts";

/**
 * What the simulated world takes its time for unless told otherwise. The shared delays are the medians of the real code
 * over links of the simulated kind, which `test/shared-delays.test.ts` measures anew.
 */
export const defaultTiming: SimTiming = {
  eventDelayMs: 5,
  linkDelayMs: 0.5,
  hopDelayMs: 0.25,
  scrapeMs: 1_000,
  sharedFactsMs: 12,
  sharedLoadMs: 2,
};
