import { createOpenLoop } from "../clients/loops.ts";
import { type ChatParameters, chatScripts } from "../clients/scripts.ts";
import type { FaultName } from "../faults.ts";
import { limitsOf, type PublishedResult, type Scenario } from "./scenario.ts";

/** The simulation in which the SMG mesh was measured; the source gives every figure. */
const sessions = {
  /** Number of system prompts; 70 % of the sessions use one. */
  groups: 200,
  sharedTokens: 2_000,
  sharedShare: 0.7,
  firstTokens: 1_500,
  newTokens: 400,
  outputTokens: 150,
  followups: { mean: 0.35 },
  thinkMeanMs: 2_000,
  thinksFirst: false,
} satisfies ChatParameters;

export const smg240Parameters = { sessions, startsPerS: 611, durationS: 180 } as const;

/** Engines of the source's fleet. */
const sourceEngines = 240;

/** Scenarios with the same clients. */
interface Smg240Plan extends Pick<Scenario, "name" | "summary" | "policies" | "published" | "fault"> {
  /**
   * Sessions start in proportion to the engines of the run, so that each engine has as much load as in the source's
   * fleet.
   */
  readonly isPerEngine: boolean;
  /** Duration unless the run sets another. */
  readonly engines: number;
}

/** A fleet of the source's engines, with a fault in the middle if one is named. */
function smg240With({ isPerEngine, engines: fleetEngines, ...plan }: Smg240Plan): Scenario {
  return {
    ...plan,
    // The preset is this simulation's engine.
    fleet: { preset: "smg-generic", parameters: {}, engines: fleetEngines, routers: 8 },
    variants: [],
    durationS: smg240Parameters.durationS,
    isOpenLoop: true,
    createWorkload(options) {
      const { seed, scale } = options;
      return createOpenLoop({
        seed,
        startsPerS: smg240Parameters.startsPerS * scale * (isPerEngine ? options.engines / sourceEngines : 1),
        meanTurns: 1 + sessions.followups.mean,
        scriptOf: chatScripts(sessions, { seed }),
        limits: limitsOf(options, smg240Parameters.durationS),
      });
    },
  };
}

const ofOneIndex = { source: "SMG mesh", policy: "cache_aware", sharing: "oracle", baseline: "cache_aware" } as const;

const published: readonly PublishedResult[] = [
  // A tree in each of eight routers that sees only its own requests; the middle of the published 0.873 to 0.878.
  {
    ...ofOneIndex,
    metric: "followup_cached_share",
    policyValue: 0.8755,
    baselineValue: 0.727,
    baselineSharing: "none",
  },
  // The middle of the published 0.43 to 0.46.
  { ...ofOneIndex, metric: "load_cov", policyValue: 0.045, baselineValue: 0.445, baselineSharing: "none" },
];

export const smg240: Scenario = smg240With({
  name: "smg-240",
  ...{ engines: sourceEngines, isPerEngine: false },
  summary: "240 engines behind 8 routers, 611 sessions a second with few follow-ups and 200 system prompts.",
  policies: ["random", "cache_aware", "least_work", "predicted_latency"],
  published,
});

/** As many routers as one mesh supports, with as many engines per cell as smg-240 has per router. */
const cell = { routers: 64, engines: 2_500 } as const;
const cells = 4;

/** Virtual seconds: enough for about 700,000 conversations. */
const megaDurationS = 20;

const megaClients = smg240With({
  name: "mega",
  summary: "Four cells of 64 routers and 2,500 engines each behind one name, with the clients of smg-240.",
  policies: ["random", "predicted_latency"],
  published: [],
  ...{ engines: cells * cell.engines, isPerEngine: true },
});

export const mega: Scenario = {
  ...megaClients,
  fleet: { ...megaClients.fleet, routers: cells * cell.routers, cells: { count: cells, balancer: "hash" } },
  durationS: megaDurationS,
  variants: [
    { name: "dns", cells: { count: cells, balancer: "dns" } },
    { name: "one-mesh", ...cell, cells: { count: 1, balancer: "hash" } },
  ],
  createWorkload: (options) =>
    megaClients.createWorkload(
      options.requests === undefined ? { ...options, durationS: options.durationS ?? megaDurationS } : options,
    ),
};

/** A quarter of the source's fleet, small enough to simulate the real links of eight routers. */
const faultEngines = 60;

/** The fault in the middle of the run; the scenario has its name. */
const faultSummaries = {
  partition: "A quarter of smg-240 while its routers are cut into two halves.",
  "router-loss": "A quarter of smg-240 while one of its routers is killed and comes back.",
  "join-under-load": "A quarter of smg-240 while a router joins.",
  "rolling-restart": "A quarter of smg-240 while its routers restart one after the other.",
  "engine-churn": "A quarter of smg-240 while engines go and come back empty.",
} as const satisfies Partial<Record<FaultName, string>>;

const faults = Object.keys(faultSummaries) as readonly (keyof typeof faultSummaries)[];

export const faultScenarios: readonly Scenario[] = faults.map((fault) =>
  smg240With({
    ...{ name: fault, summary: faultSummaries[fault], fault, policies: ["predicted_latency"], published: [] },
    ...{ engines: faultEngines, isPerEngine: true },
  }),
);
