import type { RequestOutcome, SimRequest } from "../clients/workload.ts";

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
