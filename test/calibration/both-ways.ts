import { systemClock } from "@espalier/common";
import { type EngineParameters, enginePresets } from "@espalier/engine-model";
import { createRow, ownScenario, type RunOptions, type SimulateRow, simulate } from "@espalier/simulator";
import { type ReplayRow, readTrace } from "@espalier/workload";
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

/** Sends a trace through the simulator. The seed decides what routers draw. */
export async function simulated(path: string, fleet: CalibratedFleet, seed: number): Promise<Figures> {
  const options: RunOptions = {
    ...fleet,
    scenario: ownScenario({
      name: "calibration",
      fleet: { engines, routers: fleet.routers, preset, parameters: { blockCount } },
    }),
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
