import type { EngineParameters } from "@espalier/engine-model";
import type { CustomPolicies, Objectives, PolicyNeeds } from "@espalier/policies";
import type { RequestOutcome, SimRequest } from "./clients/workload.ts";
import type { Scenario } from "./scenarios/scenario.ts";
import type { TraceRequest } from "./workload/index.ts";

/**
 * What routers share. `mesh`: everything, as in production. `none`: nothing, and engines publish no events.
 * `events-only`: every router reads the events of all engines, but knows only its own load. `gossip-1s`: everything,
 * once a second. `oracle`: one router that sees everything.
 */
export type Sharing = "mesh" | "none" | "events-only" | "gossip-1s" | "oracle";

export const sharings: readonly Sharing[] = ["mesh", "none", "events-only", "gossip-1s", "oracle"];

/**
 * How the mesh is simulated. `real`: every router runs the journals, codec, links, membership and ownership. `delays`:
 * one copy of the index serves all routers, and their updates reach the others after the delays measured for the real
 * code.
 */
export type LinkModel = "real" | "delays";

export const linkModels: readonly LinkModel[] = ["real", "delays"];

/** Delays of the simulated world, in milliseconds. */
export interface SimTiming {
  /** From a step's end until a reader has its KV events. */
  readonly eventDelayMs: number;
  /** One way between two routers. */
  readonly linkDelayMs: number;
  /** One way between router and engine, and between client and router. */
  readonly hopDelayMs: number;
  /** What a gateway and a tokenizer take before a router decides; 0 by default. */
  readonly frontMs?: number;
  /** How often a router reads engines' metrics; by default as its policy requires, or every second. */
  readonly scrapeMs?: number;
  /** Delays to another router in `delays` mode: of facts and placements, and of load. */
  readonly sharedFactsMs: number;
  readonly sharedLoadMs: number;
}

/** One run: one scenario, policy, fleet and seed. */
export interface RunOptions {
  readonly scenario: Scenario;
  /** Variant name, for rows. */
  readonly variant?: string;
  readonly policy: string;
  readonly policyOptions?: Readonly<Record<string, number>>;
  /** What routers go by, and rows are judged by; `defaultObjectives`, or the variant's for routers, unless given. */
  readonly objectives?: Objectives;
  /** Policies that are not in the catalogue, by name. What one throws ends the run. */
  readonly customPolicies?: CustomPolicies;
  /** The part of `predicted_latency`, the policy, that is left out. */
  readonly without?: string;
  readonly routers: number;
  readonly engines: number;
  readonly sharing: Sharing;
  readonly links: LinkModel;
  readonly seed: number;
  readonly scale: number;
  /** Users of a closed loop, if their number was chosen, for rows. `scale` makes them that many. */
  readonly users?: number;
  readonly requests?: number;
  readonly durationS?: number;
  readonly trace?: readonly TraceRequest[];
  readonly parameters?: Partial<EngineParameters>;
  /** Whether routers have admission control; by default as the scenario or its variant says. */
  readonly admission?: boolean;
  /** One way between two routers, if it was chosen. All that routers share takes the longer by it. */
  readonly linkDelayMs?: number;
  readonly timing?: Partial<SimTiming>;
}

/** How often a router reads engines' metrics unless its policy needs another interval. */
const defaultScrapeMs = 1_000;

/** How often a router with this policy reads engines' metrics. */
export function scrapeMsOf({ scrapeMs }: Pick<SimTiming, "scrapeMs">, policy: PolicyNeeds): number {
  return scrapeMs ?? policy.metricsEveryMs ?? defaultScrapeMs;
}

/**
 * Default delays of the simulated world. The shared delays are the medians of the real code over links of the simulated
 * kind, at a hundred requests a second per router: facts and placements go in batches of 15 ms, load in batches of 10
 * ms. With fewer requests they are shorter, because the first message after a pause is sent at once.
 * `test/run/shared-delays.test.ts` measures them.
 */
export const defaultTiming: SimTiming = {
  eventDelayMs: 5,
  linkDelayMs: 0.5,
  hopDelayMs: 0.25,
  sharedFactsMs: 8,
  sharedLoadMs: 6,
};

/** The timing of a run. The shared delays have the time that batches take, and the way between routers. */
export function timingOf({ scenario, linkDelayMs, timing }: RunOptions): SimTiming {
  const usual = { ...defaultTiming, ...scenario.timing };
  const fartherMs = (linkDelayMs ?? usual.linkDelayMs) - usual.linkDelayMs;
  return {
    ...usual,
    linkDelayMs: usual.linkDelayMs + fartherMs,
    sharedFactsMs: Math.max(0, usual.sharedFactsMs + fartherMs),
    sharedLoadMs: Math.max(0, usual.sharedLoadMs + fartherMs),
    ...timing,
  };
}

/** The outcome of one request. Times are virtual milliseconds since the start of the run. */
export interface SimResult extends RequestOutcome {
  /** Without its chain, so that memory does not grow with the prompts. */
  readonly request: Omit<SimRequest, "chain">;
  readonly sentMs: number;
  /** The router that took it. */
  readonly router: number;
  /** The engine that answered; -1 for none. */
  readonly engine: number;
  /** The engine that computed the prompt, if it was another one. */
  readonly prefillEngine?: number;
  /** Prompt tokens that the router predicted in the engine's cache. */
  readonly predictedTokens: number;
  /** Prompt tokens that the engine pulled from another one; none when absent. */
  readonly pulledTokens?: number;
  /** The way from the client by its router to its engine and back, and whether the engine is in another region. */
  readonly networkMs?: number;
  readonly isCrossed?: boolean;
  /** The request was rerouted because its first choice was overloaded or gone. */
  readonly isSpill: boolean;
}

/** The state of the fleet at one moment. */
export interface FleetSample {
  readonly atMs: number;
  /** Running and waiting requests of every engine. */
  readonly load: Float64Array;
  /** Share of KV blocks in use of every engine. */
  readonly kvUse: Float64Array;
}

/** The record of one run. */
export interface RunRecord {
  readonly results: readonly SimResult[];
  /** One per virtual second. */
  readonly samples: readonly FleetSample[];
  /** Virtual duration, from the first request to the last end. */
  readonly durationMs: number;
  /** Total of LoRA adapters that engines loaded; NaN when no request used one. */
  readonly adapterLoads: number;
  /** Time that engines spent computing, all together. */
  readonly engineBusyMs: number;
  /** Total bytes sent over links between routers; NaN without real links. */
  readonly linkBytes: number;
  /** Begin and end of the fault, if any. */
  readonly faultMs: { readonly fromMs: number; readonly toMs: number } | undefined;
  /** Upper bounds of the cached share, over the run's requests in order of sending. */
  readonly bounds: {
    readonly infiniteCache: number;
    readonly infiniteCacheFollowup: number;
    readonly pooledLru: number;
  };
  /** Seconds on a real core. */
  readonly wallS: number;
}
