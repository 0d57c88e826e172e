import { createPolicy } from "@espalier/policies";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { byKey, type CandidateRow, candidatesOf, ofTokens } from "./helpers.ts";

const shares = (rows: readonly CandidateRow[], request = ofTokens(8_000)) =>
  byKey(createPolicy("predicted_latency").explain(request, candidatesOf(rows)));
const others = (count: number, row: Omit<CandidateRow, "key"> = {}): CandidateRow[] =>
  Array.from({ length: count }, (_, at) => ({ key: `other-${at}`, ...row }));

describe("a hotspot", () => {
  const hot = { key: "hot", matchedTokens: 8_000, prefillMsPerToken: 1e6 };
  const cold = (inFlight: number) => others(7, { inFlight, prefillMsPerToken: 1e6 });

  test("ends at three times the mean and 16 more, whatever its cache is worth", () => {
    // Of eight with 80 among them in all the mean is 10, with the one in hand 10.125.
    const rows = (inFlight: number) => [{ ...hot, inFlight }, ...cold((80 - inFlight) / 7)];
    expect(shares(rows(46)).hot).toBe(1);
    expect(shares(rows(47)).hot).toBe(0);
  });

  test("grows with the fleet's load and with its own weight", () => {
    expect(shares([{ ...hot, inFlight: 400 }, ...cold(100)]).hot).toBe(1);
    expect(shares([{ ...hot, inFlight: 600 }, ...cold(100)]).hot).toBe(0);
    expect(shares([{ ...hot, inFlight: 600, weight: 2 }, ...cold(100)]).hot).toBe(1);
  });

  test("is never all there is: somebody is always open, and it is not the fullest of many", () => {
    const loads = fc.array(fc.integer({ min: 0, max: 2_000 }), { minLength: 2, maxLength: 12 });
    fc.assert(
      fc.property(loads, fc.nat(11), fc.constantFrom(0.01, 1, 1e6), (inFlight, holder, msPerToken) => {
        const rows = inFlight.map((requests, at) => ({
          key: `e${at}`,
          inFlight: requests,
          prefillMsPerToken: msPerToken,
          ...(at === holder ? { matchedTokens: 8_000 } : {}),
        }));
        const mean = inFlight.reduce((sum, one) => sum + one, 1) / inFlight.length;
        for (const [key, share] of Object.entries(shares(rows))) {
          if (share > 0) expect(inFlight[Number(key.slice(1))]!).toBeLessThanOrEqual(3 * mean + 16);
        }
      }),
    );
  });
});
