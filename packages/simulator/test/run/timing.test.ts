import { policyCatalogue } from "@espalier/policies";
import { expect, test } from "vitest";
import { defaultTiming, scrapeMsOf } from "../../src/run.ts";

test("metrics are read as often as the policy is made for, each second for others, and as a run says", () => {
  expect(scrapeMsOf(defaultTiming, policyCatalogue.epp_weighted)).toBe(50);
  expect(scrapeMsOf(defaultTiming, policyCatalogue.least_work)).toBe(1_000);
  expect(scrapeMsOf({ scrapeMs: 200 }, policyCatalogue.epp_weighted)).toBe(200);
});
