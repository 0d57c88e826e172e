import { expect, test } from "vitest";
import { temporaryFile } from "../e2e/files.ts";
import {
  type CalibratedFleet,
  expectSameShares,
  type Figures,
  middleOf,
  replayed,
  simulatedRuns,
} from "./http-and-simulation.ts";
import { conversationTrace } from "./trace.ts";

/** Other work on the machine slows replays down and never speeds one up: further ones are made when one is too slow. */
const maxReplays = 3;

const ttftP50Bound = 0.1;
const ttftMeanBound = 0.15;

const fleets: readonly CalibratedFleet[] = [
  { policy: "round_robin", routers: 1 },
  { policy: "least_work", routers: 1 },
];

test("round robin and least work, one router each: what processes do over HTTP is what they do in virtual time", async () => {
  const path = temporaryFile("trace.jsonl", conversationTrace(11));
  const runs: Figures[][] = [];
  // Before the replays, from which they would take the processor.
  for (const fleet of fleets) runs.push(await simulatedRuns(path, fleet));
  // A fleet waits for its engines' steps most of the time.
  await Promise.all(fleets.map((fleet, at) => expectSameFigures(path, fleet, runs[at]!)));
}, 240_000);

async function expectSameFigures(path: string, fleet: CalibratedFleet, runs: readonly Figures[]): Promise<void> {
  const replays: Figures[] = [];
  const slower = { p50: Number.POSITIVE_INFINITY, mean: Number.POSITIVE_INFINITY };
  for (let at = 0; at < maxReplays && (slower.p50 >= ttftP50Bound || slower.mean >= ttftMeanBound); at++) {
    const real = await replayed(path, fleet);
    replays.push(real);
    expect(real.infiniteCache).toBeCloseTo(middleOf(runs, "infiniteCache"), 9);
    if (fleet.policy === "round_robin") expect(real.loadCov).toBe(middleOf(runs, "loadCov"));
    slower.p50 = Math.min(slower.p50, real.ttftP50S / middleOf(runs, "ttftP50S") - 1);
    slower.mean = Math.min(slower.mean, real.ttftMeanS / middleOf(runs, "ttftMeanS") - 1);
  }
  expectSameShares(replays, runs);
  expect(Math.abs(slower.p50), fleet.policy).toBeLessThan(ttftP50Bound);
  expect(Math.abs(slower.mean), fleet.policy).toBeLessThan(ttftMeanBound);
}
