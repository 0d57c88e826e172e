import type { RunJob, RunOutcome } from "../../src/simulate/run-job.ts";

/** A run of a plan, where only what matters to a test need be said. */
export function jobOf(part: Partial<RunJob> = {}): RunJob {
  return {
    kind: "run",
    source: { name: "rag", trace: undefined, format: undefined, fleet: undefined },
    variant: undefined,
    policy: "least_work",
    routers: 2,
    engines: 8,
    sharing: "mesh",
    links: "real",
    seed: 1,
    requests: undefined,
    durationS: undefined,
    admission: undefined,
    load: undefined,
    scale: 1,
    users: undefined,
    linkDelayMs: undefined,
    objectives: undefined,
    ...part,
  };
}

/** What a run might come to. Its TTFT is a second for each router, and a tenth for the seed. */
export function outcomeOf(job: RunJob, figures: Partial<RunOutcome["row"]> = {}): RunOutcome {
  const { policy, routers, engines, sharing, links, seed, variant, load } = job;
  const ttftS = routers + seed / 10;
  return {
    row: {
      scenario: job.source.name ?? "own",
      ...(variant === undefined ? {} : { variant }),
      ...(load === undefined ? {} : { load }),
      ...{ policy, routers, engines, sharing, links, seed },
      ...{ requests: 100, errors: 0, duration_s: 50, sessions: 40, spills: 0, wall_s: 2, realtime_factor: 25 },
      ...{ ttft_mean_s: ttftS, ttft_p50_s: ttftS, ttft_p90_s: ttftS * 2, ttft_p99_s: ttftS * 3, e2e_mean_s: 9 },
      ...{ cached_share: 0.5, followup_cached_share: 1 / routers, load_cov: 0.1, load_cov_time: 0.2 },
      bounds: { infinite_cache: 0.75, infinite_cache_followup: 0.9, pooled_lru: 0.6 },
      ...figures,
    },
    ttft: [0, 0.5, 0.99, 1].map((share) => ({ share, seconds: ttftS * (0.5 + share) })),
    load: [1, 2, 3].map((atS) => ({ atS, mean: 4, min: 2, max: 4 + atS })),
    cached: [1, 2, 3].map((atS) => ({ atS, share: 0.5, followupShare: 0.9 })),
    phases: undefined,
  };
}
