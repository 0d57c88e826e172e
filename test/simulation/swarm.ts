import { createSeededRandom, type Random } from "@espalier/core";
import { type EngineParameters, enginePresets } from "@espalier/engine-model";
import type { SimTiming } from "@espalier/simulator";
import { type FaultKind, faultKindNames } from "./fault-kinds.ts";
import { between, pick } from "./repeat.ts";

/** One run, drawn from a seed: a fleet, its work, and what goes wrong in it how often. */
export interface Swarm {
  readonly seed: number;
  readonly kinds: readonly FaultKind[];
  readonly paceMs: Readonly<Record<FaultKind, number>>;
  readonly routers: number;
  /** Routers that may come in place of others. */
  readonly spareRouters: number;
  readonly engines: number;
  readonly parameters: EngineParameters;
  readonly policy: string;
  readonly timing: SimTiming;
  readonly requestsPerS: number;
  readonly conversations: number;
  /** In which things go wrong. */
  readonly durationMs: number;
}

const policies = [
  "predicted_latency",
  "least_work",
  "epp_weighted",
  "cache_aware",
  "least_tokens",
  "prefix_hash",
  "power_of_two",
];

/** @param only kinds of faults that may be on; the rest of the run is as without this */
export function drawSwarm(seed: number, only: readonly FaultKind[] = faultKindNames): Swarm {
  const random = createSeededRandom(seed);
  const share = between(random, 0.1, 0.7);
  const drawn = faultKindNames.filter(() => random.float() < share);
  const paces = faultKindNames.map((kind) => [kind, 400 * 20 ** random.float()] as const);
  const routers = 2 + random.integer(4);
  const engines = 2 + random.integer(5);
  return {
    seed,
    kinds: drawn.filter((kind) => only.includes(kind)),
    paceMs: Object.fromEntries(paces) as Record<FaultKind, number>,
    routers,
    spareRouters: 2,
    engines,
    parameters: drawEngine(random),
    policy: pick(random, policies),
    timing: {
      eventDelayMs: between(random, 0.5, 30),
      linkDelayMs: between(random, 0.05, 2),
      hopDelayMs: between(random, 0.1, 1),
      scrapeMs: 1_000,
      sharedFactsMs: 20,
      sharedLoadMs: 10,
    },
    requestsPerS: engines * between(random, 1, 8),
    conversations: 4 + random.integer(30),
    durationMs: between(random, 3_000, 14_000),
  };
}

/** An engine of few blocks, so that it drops some all the time. */
function drawEngine(random: Random): EngineParameters {
  const { parameters } = enginePresets["smg-generic"];
  const isVllm = random.integer(3) > 0;
  return {
    ...parameters,
    flavour: isVllm ? "vllm" : "sglang",
    blockCount: 48 + random.integer(200),
    maxBatchedTokens: 512,
    maxRunning: 8,
    maxModelLength: 48 * 16,
    stepBaseMs: between(random, 8, 25),
  };
}
