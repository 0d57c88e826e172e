import type { EngineParameters } from "@espalier/engine-model";
import { type PolicyName, policyCatalogue } from "@espalier/policies";
import type { TraceRequest } from "@espalier/workload";
import type { RequestOutcome, SimRequest } from "./clients/workload.ts";
import type { Scenario } from "./scenarios/scenario.ts";

/**
 * What routers share. `mesh`: everything, as they do. `none`: nothing, and engines tell nothing. `events-only`: every
 * router reads the events of all engines, but knows only its own load. `gossip-1s`: everything, once a second. `oracle`:
 * one router that sees everything.
 */
export type Sharing = "mesh" | "none" | "events-only" | "gossip-1s" | "oracle";

export const sharings: readonly Sharing[] = ["mesh", "none", "events-only", "gossip-1s", "oracle"];

/**
 * How the mesh is carried. `real`: journals, codec, links, membership and ownership of every router run. `delays`: one
 * copy of the index serves all routers, and what one of them says reaches the others after the delays that the real code
 * was measured with.
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
  /** How often a router reads engines' metrics; as its policy needs it, or each second, when left out. */
  readonly scrapeMs?: number;
  /** What `delays` has for facts and placements on their way to another router, and for load. */
  readonly sharedFactsMs: number;
  readonly sharedLoadMs: number;
}

/** One run: one scenario, policy, fleet, seed. */
export interface RunOptions {
  readonly scenario: Scenario;
  /** Name of the variant, for rows. */
  readonly variant?: string;
  readonly policy: string;
  readonly policyOptions?: Readonly<Record<string, number | string>>;
  readonly routers: number;
  readonly engines: number;
  readonly sharing: Sharing;
  readonly links: LinkModel;
  readonly seed: number;
  readonly scale: number;
  readonly requests?: number;
  readonly durationS?: number;
  readonly trace?: readonly TraceRequest[];
  readonly parameters?: Partial<EngineParameters>;
  /** Whether requests wait in routers, by class, while engines are busy; as the scenario or its variant says when left out. */
  readonly admission?: boolean;
  readonly timing?: Partial<SimTiming>;
}

/** How often a router reads engines' metrics unless its policy is made for another pace. */
const defaultScrapeMs = 1_000;

/** How often a router of this policy reads engines' metrics. */
export function scrapeMsOf({ scrapeMs }: Pick<SimTiming, "scrapeMs">, policy: PolicyName): number {
  return scrapeMs ?? policyCatalogue[policy].metricsEveryMs ?? defaultScrapeMs;
}

/**
 * What the simulated world takes its time for unless told otherwise. The shared delays are the medians of the real code
 * over links of the simulated kind, at a hundred requests a second for each router: facts and placements go in batches of
 * 15 ms, load in batches of 10 ms. With fewer requests they are shorter, for what comes after quiet goes at once.
 * `test/run/shared-delays.test.ts` measures them anew.
 */
export const defaultTiming: SimTiming = {
  eventDelayMs: 5,
  linkDelayMs: 0.5,
  hopDelayMs: 0.25,
  sharedFactsMs: 8,
  sharedLoadMs: 6,
};

/** What became of one request. Times are virtual milliseconds from the start of the run. */
export interface SimResult extends RequestOutcome {
  /** With its chain left out, so that memory does not grow with the prompts. */
  readonly request: Omit<SimRequest, "chain">;
  readonly sentMs: number;
  /** The router that took it. */
  readonly router: number;
  /** The engine that answered; -1 for none. */
  readonly engine: number;
  /** The engine that computed the prompt for it, where that was another one. */
  readonly prefillEngine?: number;
  /** Prompt tokens that the router thought the engine held. */
  readonly predictedTokens: number;
  /** It went elsewhere because its first choice was overloaded or gone. */
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

/** All that was seen of one run. */
export interface RunRecord {
  readonly results: readonly SimResult[];
  /** One a virtual second. */
  readonly samples: readonly FleetSample[];
  /** Virtual duration, from the first request to the last end. */
  readonly durationMs: number;
  /** LoRA adapters that engines have loaded, in all; NaN where no request was for one. */
  readonly adapterLoads: number;
  /** Sent over links of routers, in all; NaN where nothing is carried. */
  readonly linkBytes: number;
  /** Moments of the fault, where there was one: it began, it was over. */
  readonly faultMs: { readonly fromMs: number; readonly toMs: number } | undefined;
  /** Upper bounds of the cached share, over the requests of the run in order of sending. */
  readonly bounds: {
    readonly infiniteCache: number;
    readonly infiniteCacheFollowup: number;
    readonly pooledLru: number;
  };
  /** Seconds of a real core that the run took. */
  readonly wallS: number;
}
