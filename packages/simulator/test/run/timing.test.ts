import { policyCatalogue } from "@espalier/policies";
import { expect, test } from "vitest";
import { defaultTiming, scrapeMsOf, timingOf } from "../../src/run.ts";
import { smallRun } from "./small-scenario.ts";

test("metrics are read as often as the policy is made for, each second for others, and as a run says", () => {
  expect(scrapeMsOf(defaultTiming, policyCatalogue.epp_weighted)).toBe(50);
  expect(scrapeMsOf(defaultTiming, policyCatalogue.least_work)).toBe(1_000);
  expect(scrapeMsOf({ scrapeMs: 200 }, policyCatalogue.epp_weighted)).toBe(200);
});

test("what routers share takes the longer by the way between them", () => {
  const timing = (linkDelayMs: number) => timingOf({ ...smallRun(), linkDelayMs });
  expect(timing(50)).toEqual({ ...defaultTiming, linkDelayMs: 50, sharedFactsMs: 57.5, sharedLoadMs: 55.5 });
  expect(timing(defaultTiming.linkDelayMs)).toEqual(timingOf(smallRun()));
  expect(timing(0).sharedLoadMs).toBe(5.5);
});
