import { expect, test } from "vitest";
import { temporaryFile } from "../e2e/files.ts";
import { type CalibratedFleet, type Figures, replayed, simulated } from "./both-ways.ts";
import { conversationTrace } from "./trace.ts";

/** Routers draw among near equals, in processes otherwise each time, so a policy that does is simulated under several. */
const seeds = [1, 2, 3, 4, 5];
/** Other work on the machine slows replays down and never speeds one up: further ones are made when one is too slow. */
const maxReplays = 3;
const timeoutMs = 240_000;

const ttftP50Bound = 0.1;
const ttftMeanBound = 0.15;
const cachedShareBound = 0.01;

const fleets: readonly CalibratedFleet[] = [
  { policy: "round_robin", routers: 1 },
  { policy: "least_work", routers: 1 },
  { policy: "least_work", routers: 3 },
];

/** The runs' values of a figure, ascending. */
function sorted(runs: readonly Figures[], figure: keyof Figures): readonly number[] {
  return runs.map((run) => run[figure]).toSorted((one, other) => one - other);
}

test.each(fleets)(
  "$policy, $routers routers: what processes do over HTTP is what they do in virtual time",
  async (fleet) => {
    const path = temporaryFile("trace.jsonl", conversationTrace(11));
    const runs: Figures[] = [];
    for (const seed of fleet.policy === "round_robin" ? seeds.slice(0, 1) : seeds) {
      runs.push(await simulated(path, fleet, seed));
    }
    const middle = (figure: keyof Figures): number => sorted(runs, figure)[Math.floor(runs.length / 2)]!;
    const shares = sorted(runs, "cachedShare");
    const slower = { p50: Number.POSITIVE_INFINITY, mean: Number.POSITIVE_INFINITY };
    // Three routers, engines and a client on two cores wait for each other: there only what was cached tells anything.
    const isTimed = fleet.routers === 1;
    for (let at = 0; at < maxReplays && (slower.p50 >= ttftP50Bound || slower.mean >= ttftMeanBound); at++) {
      const real = await replayed(path, fleet);
      expect(real.infiniteCache).toBeCloseTo(middle("infiniteCache"), 9);
      expect(real.cachedShare).toBeGreaterThan(shares[0]! - cachedShareBound);
      expect(real.cachedShare).toBeLessThan(shares.at(-1)! + cachedShareBound);
      if (fleet.policy === "round_robin") expect(real.loadCov).toBe(middle("loadCov"));
      if (!isTimed) break;
      slower.p50 = Math.min(slower.p50, real.ttftP50S / middle("ttftP50S") - 1);
      slower.mean = Math.min(slower.mean, real.ttftMeanS / middle("ttftMeanS") - 1);
    }
    if (!isTimed) return;
    expect(Math.abs(slower.p50)).toBeLessThan(ttftP50Bound);
    expect(Math.abs(slower.mean)).toBeLessThan(ttftMeanBound);
  },
  timeoutMs,
);
