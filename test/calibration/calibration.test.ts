import { expect, test } from "vitest";
import { temporaryFile } from "../e2e/files.ts";
import { type CalibratedFleet, type Figures, replayed, simulated } from "./both-ways.ts";
import { conversationTrace } from "./trace.ts";

/** Routers draw among near equals, in processes otherwise each time, so a policy that does is simulated under several. */
const seeds = Array.from({ length: 12 }, (_, index) => index + 1);
/** Other work on the machine slows replays down and never speeds one up: further ones are made when one is too slow. */
const maxReplays = 3;
/** Replays whose cached shares are averaged, where time tells nothing. */
const untimedReplays = 2;
/** Standard errors that what draws alone decides may lie apart: further in one of 15,000 runs. */
const maxStandardErrors = 4;
const timeoutMs = 240_000;

const ttftP50Bound = 0.1;
const ttftMeanBound = 0.15;
const cachedShareBound = 0.01;

const fleets: readonly CalibratedFleet[] = [
  { policy: "round_robin", routers: 1 },
  { policy: "least_work", routers: 1 },
  { policy: "least_work", routers: 3 },
];

/** The middle of the runs' values of a figure. */
function middleOf(runs: readonly Figures[], figure: keyof Figures): number {
  return runs.map((run) => run[figure]).toSorted((one, other) => one - other)[Math.floor(runs.length / 2)]!;
}

function meanOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** The cached shares must be as if drawn from one distribution, whose spread that of the simulated runs tells. */
function expectSameShares(real: readonly Figures[], inVirtualTime: readonly Figures[]): void {
  const shares = inVirtualTime.map((run) => run.cachedShare);
  const mean = meanOf(shares);
  const variance = shares.reduce((sum, share) => sum + (share - mean) ** 2, 0) / Math.max(1, shares.length - 1);
  const standardError = Math.sqrt(variance * (1 / shares.length + 1 / real.length));
  const apart = Math.abs(meanOf(real.map((run) => run.cachedShare)) - mean);
  expect(apart).toBeLessThan(Math.max(cachedShareBound, maxStandardErrors * standardError));
}

test.each(fleets)(
  "$policy, $routers routers: what processes do over HTTP is what they do in virtual time",
  async (fleet) => {
    const path = temporaryFile("trace.jsonl", conversationTrace(11));
    const runs: Figures[] = [];
    for (const seed of fleet.policy === "round_robin" ? seeds.slice(0, 1) : seeds) {
      runs.push(await simulated(path, fleet, seed));
    }
    const replays: Figures[] = [];
    const slower = { p50: Number.POSITIVE_INFINITY, mean: Number.POSITIVE_INFINITY };
    // Three routers, engines and a client on two cores wait for each other: there only what was cached tells anything.
    const isTimed = fleet.routers === 1;
    const most = isTimed ? maxReplays : untimedReplays;
    for (let at = 0; at < most && (slower.p50 >= ttftP50Bound || slower.mean >= ttftMeanBound); at++) {
      const real = await replayed(path, fleet);
      replays.push(real);
      expect(real.infiniteCache).toBeCloseTo(middleOf(runs, "infiniteCache"), 9);
      if (fleet.policy === "round_robin") expect(real.loadCov).toBe(middleOf(runs, "loadCov"));
      if (!isTimed) continue;
      slower.p50 = Math.min(slower.p50, real.ttftP50S / middleOf(runs, "ttftP50S") - 1);
      slower.mean = Math.min(slower.mean, real.ttftMeanS / middleOf(runs, "ttftMeanS") - 1);
    }
    expectSameShares(replays, runs);
    if (!isTimed) return;
    expect(Math.abs(slower.p50)).toBeLessThan(ttftP50Bound);
    expect(Math.abs(slower.mean)).toBeLessThan(ttftMeanBound);
  },
  timeoutMs,
);
