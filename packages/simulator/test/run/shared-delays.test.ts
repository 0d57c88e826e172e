import { beforeAll, expect, test, vi } from "vitest";
import { defaultTiming } from "../../src/run.ts";
import { type MeasuredDelays, measureDelays } from "./measured-delays.ts";

// Takes a few seconds of a core, which busy machines make a minute of.
vi.setConfig({ hookTimeout: 240_000 });

/** As many requests a second and engines for each router as `smg-240` has: both ways batch what comes together. */
const fleet = { routers: 2, engines: 60, startsPerS: 100, durationS: 4 } as const;
const seeds = [1, 2];

let measured: readonly MeasuredDelays[] = [];

beforeAll(async () => {
  const runs: MeasuredDelays[] = [];
  for (const seed of seeds) runs.push(await measureDelays({ seed, ...fleet }));
  measured = runs;
});

function medianMs(of: (delays: MeasuredDelays) => readonly number[]): number {
  const sorted = measured.flatMap(of).sort((one, other) => one - other);
  expect(sorted.length).toBeGreaterThan(100);
  return sorted[Math.floor(sorted.length / 2)]!;
}

/** Within a quarter, or a millisecond. */
function expectClose(delayMs: number, assumedMs: number): void {
  expect(Math.abs(delayMs - assumedMs)).toBeLessThan(Math.max(1, assumedMs / 4));
}

test("facts take as long from their reader to another router as the fixed delay says", () => {
  expectClose(
    medianMs(({ facts }) => facts),
    defaultTiming.sharedFactsMs,
  );
});

test("placements take as long from the decision to another router as the fixed delay says", () => {
  expectClose(
    medianMs(({ placements }) => placements),
    defaultTiming.sharedFactsMs,
  );
});

test("load takes as long from the decision to another router as the fixed delay says", () => {
  expectClose(
    medianMs(({ load }) => load),
    defaultTiming.sharedLoadMs,
  );
});

test("nothing waits longer than two batches of facts", () => {
  for (const { facts, placements, load } of measured) {
    for (const delayMs of [...facts, ...placements, ...load]) expect(delayMs > 0 && delayMs < 35).toBe(true);
  }
});
