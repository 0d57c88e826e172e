import { type PolicyName, policyCatalogue } from "@espalier/policies";
import type { SimTiming } from "./run-options.ts";

/** How often a router reads engines' metrics unless its policy is made for another pace. */
const defaultScrapeMs = 1_000;

/** How often a router of this policy reads engines' metrics. */
export function scrapeMsOf({ scrapeMs }: Pick<SimTiming, "scrapeMs">, policy: PolicyName): number {
  return scrapeMs ?? policyCatalogue[policy].metricsEveryMs ?? defaultScrapeMs;
}

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
  sharedFactsMs: 8,
  sharedLoadMs: 6,
};
