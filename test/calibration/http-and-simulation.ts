import { systemClock } from "@espalier/core";
import { type EngineParameters, enginePresets } from "@espalier/engine-model";
import {
  createRow,
  type ReplayRow,
  type RunOptions,
  readTrace,
  type SimulateRow,
  simulate,
  traceScenario,
} from "@espalier/simulator";
import { expect } from "vitest";
import { run } from "../e2e/program.ts";
import { traceRequests } from "./trace.ts";

/** A fleet, as `espalier replay` starts it in processes and the simulator in virtual time. */
export interface CalibratedFleet {
  readonly policy: "round_robin" | "least_work";
  readonly routers: number;
}

/** The figures of a run that must agree. Seconds are those of the engines. */
export interface Figures {
  readonly ttftP50S: number;
  readonly ttftMeanS: number;
  readonly cachedShare: number;
  /** Variation of the requests dispatched to each engine. */
  readonly loadCov: number;
  /** Share of the prompts that an infinite shared cache would hold. */
  readonly infiniteCache: number;
}

const engines = 4;
const preset = "a10g-7b";
/** KV blocks of an engine: too few for the conversations that it serves, so that some are evicted. */
const blockCount = 3_000;
/** Engine milliseconds in a real one: few enough that the milliseconds of a busy machine are small beside an engine's. */
const speed = 4;

/** What takes its time on this side of the wire, in real milliseconds: loopback sockets between three busy processes. */
const timing = { hopDelayMs: 0.5, eventDelayMs: 2 };

/** Routers draw among near equals, in processes otherwise each time, so a policy that does is simulated under several. */
const seeds = Array.from({ length: 12 }, (_, index) => index + 1);

/** Sends a trace over HTTP through routers in processes of their own to simulated engines. */
export async function replayed(path: string, { policy, routers }: CalibratedFleet): Promise<Figures> {
  const args = [
    ...["--trace", path, "--policy", policy, "--routers", routers, "--engines", engines, "--sharing", "mesh"],
    ...["--preset", preset, "--blocks", blockCount, "--speed", speed, "--prompts", "tokens", "--kv-events", "on"],
  ].map(String);
  const { code, stdout, stderr } = await run(["replay", ...args, "--json"]);
  expect({ code, failures: /requests failed:.*/s.exec(stderr)?.[0] }).toEqual({ code: 0, failures: undefined });
  const { rows, bounds } = JSON.parse(stdout) as {
    readonly rows: readonly [ReplayRow];
    readonly bounds: { readonly infinite_cache: number };
  };
  return figuresOf(rows[0], bounds.infinite_cache, 1);
}

/** Sends a trace through the simulator, under as many seeds as the policy draws for. */
export async function simulatedRuns(path: string, fleet: CalibratedFleet): Promise<Figures[]> {
  const runs: Figures[] = [];
  for (const seed of fleet.policy === "round_robin" ? seeds.slice(0, 1) : seeds) {
    runs.push(await simulated(path, fleet, seed));
  }
  return runs;
}

/** Sends a trace through the simulator. The seed decides what routers draw. */
async function simulated(path: string, fleet: CalibratedFleet, seed: number): Promise<Figures> {
  const options: RunOptions = {
    ...fleet,
    scenario: traceScenario("calibration", { engines, routers: fleet.routers, preset, parameters: { blockCount } }),
    ...{ engines, sharing: "mesh", links: "real", seed, timing },
    trace: await readTrace(path),
    scale: speed,
    parameters: atSpeed(enginePresets[preset].parameters),
  };
  const row = createRow(await simulate(options, systemClock.nowMs), options);
  return figuresOf(row, row.bounds?.infinite_cache, speed);
}

/**
 * The engines in real milliseconds, as routers see them in a replay at a speed: their own delays and intervals are in
 * real ones.
 */
function atSpeed(parameters: EngineParameters): Partial<EngineParameters> {
  const { stepBaseMs, prefillMsPerToken, attentionMsPerTokenPair, decodeMsPerSequence, decodeMsPerContextToken } =
    parameters;
  return {
    blockCount,
    stepBaseMs: stepBaseMs / speed,
    prefillMsPerToken: prefillMsPerToken / speed,
    attentionMsPerTokenPair: attentionMsPerTokenPair / speed,
    decodeMsPerSequence: decodeMsPerSequence / speed,
    decodeMsPerContextToken: decodeMsPerContextToken / speed,
  };
}

function figuresOf(row: ReplayRow | SimulateRow, infiniteCache = Number.NaN, times: number): Figures {
  const { ttft_p50_s: p50 = Number.NaN, ttft_mean_s: mean = Number.NaN, cached_share = Number.NaN } = row;
  expect(row).toMatchObject({ requests: traceRequests, errors: 0 });
  return {
    ttftP50S: p50 * times,
    ttftMeanS: mean * times,
    cachedShare: cached_share,
    loadCov: row.load_cov ?? Number.NaN,
    infiniteCache,
  };
}

/** The middle of the runs' values of a figure. */
export function middleOf(runs: readonly Figures[], figure: keyof Figures): number {
  return runs.map((run) => run[figure]).toSorted((one, other) => one - other)[Math.floor(runs.length / 2)]!;
}

function meanOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Standard errors that what draws alone decides may lie apart: further in one of 15,000 runs. */
const maxStandardErrors = 4;
const cachedShareBound = 0.01;

/** The cached shares must be as if drawn from one distribution, whose spread that of the simulated runs tells. */
export function expectSameShares(real: readonly Figures[], inVirtualTime: readonly Figures[]): void {
  const shares = inVirtualTime.map((run) => run.cachedShare);
  const mean = meanOf(shares);
  const variance = shares.reduce((sum, share) => sum + (share - mean) ** 2, 0) / Math.max(1, shares.length - 1);
  const standardError = Math.sqrt(variance * (1 / shares.length + 1 / real.length));
  const apart = Math.abs(meanOf(real.map((run) => run.cachedShare)) - mean);
  expect(apart).toBeLessThan(Math.max(cachedShareBound, maxStandardErrors * standardError));
}
