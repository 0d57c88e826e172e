export interface HealthOptions {
  /** Path of the probe, appended to the engine's address. Any 2xx answer is healthy. */
  readonly path: string;
  /** From the start of one probe to the start of the next, while the engine is up and healthy. */
  readonly intervalMs: number;
  /** First delay between probes of an engine that is not up; doubles to `intervalMs`. */
  readonly firstRetryMs: number;
  readonly timeoutMs: number;
  /** Consecutive failures that take an engine down. */
  readonly downAfter: number;
  /** Consecutive successes that bring a down engine up. A new engine needs one. */
  readonly upAfter: number;
  /** Share of a model's engines, 0 to 1, that must be up. Below it, engines that are down are tried. 0 is off. */
  readonly panicThreshold: number;
}

export interface BreakerOptions {
  /** Consecutive failures that open the breaker. */
  readonly consecutiveFailures: number;
  /** Share of failures within the window that opens it, 0 to 1. */
  readonly failureShare: number;
  /** The share counts only from this many results on. */
  readonly windowRequests: number;
  readonly windowMs: number;
  /** How long the breaker stays open the first time; doubles with each failed trial up to `maxOpenMs`. */
  readonly openMs: number;
  readonly maxOpenMs: number;
  /** Successful trials that close it again. */
  readonly successesToClose: number;
  /** Largest share of a model's engines, 0 to 1, that breakers may exclude. Beyond it, they are overruled. */
  readonly maxEjectedShare: number;
}

interface ScrapeOptions {
  /** Where the metrics page is. Where it has no known name, trtllm-serve's `/prometheus/metrics` is tried as well. */
  readonly path: string;
  readonly intervalMs: number;
  /** Interval for an engine that has no page with known names. */
  readonly absentIntervalMs: number;
  readonly timeoutMs: number;
  /** A longer page is a failed scrape. */
  readonly maxBytes: number;
  /** Consecutive failed scrapes after which the signals are unknown. */
  readonly forgetAfterFailures: number;
  /** Age at which the signals are unknown. */
  readonly forgetAfterMs: number;
}

interface ModelsOptions {
  /** How often the list of models of an engine is fetched again while it is up. */
  readonly intervalMs: number;
  /** First delay after a failed fetch; doubles to `intervalMs`. */
  readonly firstRetryMs: number;
  readonly timeoutMs: number;
}

export interface FleetOptions {
  readonly health: HealthOptions;
  readonly breaker: BreakerOptions;
  readonly scrape: ScrapeOptions;
  readonly models: ModelsOptions;
}

type Given<Section> = { readonly [Option in keyof Section]?: Section[Option] | undefined };

/** Options as written. Missing ones are taken from `defaultFleetOptions`. */
export type FleetOptionsInput = { readonly [Section in keyof FleetOptions]?: Given<FleetOptions[Section]> };

export const defaultFleetOptions: FleetOptions = {
  health: {
    path: "/health",
    intervalMs: 2_000,
    firstRetryMs: 250,
    // SGLang looks after each full second whether a token came, so an idle one answers after one or two.
    timeoutMs: 3_000,
    downAfter: 3,
    upAfter: 2,
    panicThreshold: 0.5,
  },
  breaker: {
    consecutiveFailures: 5,
    failureShare: 0.5,
    windowRequests: 20,
    windowMs: 10_000,
    openMs: 2_000,
    maxOpenMs: 30_000,
    successesToClose: 2,
    maxEjectedShare: 0.5,
  },
  scrape: {
    path: "/metrics",
    intervalMs: 1_000,
    absentIntervalMs: 30_000,
    timeoutMs: 1_000,
    maxBytes: 4 * 1024 * 1024,
    forgetAfterFailures: 3,
    forgetAfterMs: 5_000,
  },
  models: { intervalMs: 30_000, firstRetryMs: 250, timeoutMs: 2_000 },
};

export function completeFleetOptions(input: FleetOptionsInput): FleetOptions {
  return {
    health: complete(defaultFleetOptions.health, input.health),
    breaker: complete(defaultFleetOptions.breaker, input.breaker),
    scrape: complete(defaultFleetOptions.scrape, input.scrape),
    models: complete(defaultFleetOptions.models, input.models),
  };
}

function complete<Section extends object>(standard: Section, input: Given<Section> = {}): Section {
  return { ...standard, ...Object.fromEntries(Object.entries(input).filter(([, value]) => value !== undefined)) };
}
