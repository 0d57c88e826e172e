import { createOpenLoop } from "../clients/open-loop.ts";
import { type ChatParameters, chatScripts } from "../clients/scripts/chat-script.ts";
import { limitsOf } from "./limits-of.ts";
import type { PublishedResult, Scenario } from "./scenario.ts";

/** The simulation that the SMG mesh was measured with; every figure is given. */
const sessions = {
  /** System prompts; 70 % of the sessions have one. */
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
const engines = 240;

/** Scenarios with the same clients. */
export interface Smg240Plan extends Pick<Scenario, "name" | "summary" | "policies" | "published" | "fault"> {
  /** Sessions start in proportion to the engines of the run, so that each has as much to do as in the source's fleet. */
  readonly isPerEngine: boolean;
  /** Unless the run says otherwise. */
  readonly engines: number;
}

/** A fleet of the source's engines, with a fault in the middle where one is named. */
export function smg240With({ isPerEngine, engines: fleetEngines, ...plan }: Smg240Plan): Scenario {
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
        startsPerS: smg240Parameters.startsPerS * scale * (isPerEngine ? options.engines / engines : 1),
        meanTurns: 1 + sessions.followups.mean,
        scriptOf: chatScripts(sessions, { seed }),
        limits: limitsOf(options, smg240Parameters.durationS),
      });
    },
  };
}

const ofOneIndex = { source: "SMG mesh", policy: "cache_aware", sharing: "oracle", baseline: "cache_aware" } as const;

const published: readonly PublishedResult[] = [
  // A tree in each of eight routers that hears of nothing but its own requests; the middle of 0.873 to 0.878.
  {
    ...ofOneIndex,
    metric: "followup_cached_share",
    policyValue: 0.8755,
    baselineValue: 0.727,
    baselineSharing: "none",
  },
  // The middle of 0.43 to 0.46.
  { ...ofOneIndex, metric: "load_cov", policyValue: 0.045, baselineValue: 0.445, baselineSharing: "none" },
];

export const smg240: Scenario = smg240With({
  name: "smg-240",
  ...{ engines, isPerEngine: false },
  summary: "240 engines behind 8 routers, 611 sessions a second with few follow-ups and 200 system prompts.",
  policies: ["random", "cache_aware", "least_work", "predicted_latency"],
  published,
});
