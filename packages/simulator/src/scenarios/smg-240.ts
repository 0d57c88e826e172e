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

/** Scenarios with the same fleet and clients. */
export type Smg240Plan = Pick<Scenario, "name" | "summary" | "policies" | "published" | "fault">;

/** The fleet of 240 engines, with a fault in the middle where one is named. */
export function smg240With(plan: Smg240Plan): Scenario {
  return {
    ...plan,
    // The preset is this simulation's engine.
    fleet: { preset: "smg-generic", parameters: {}, engines: 240, routers: 8 },
    variants: [],
    durationS: smg240Parameters.durationS,
    isOpenLoop: true,
    createWorkload(options) {
      const { seed, scale } = options;
      return createOpenLoop({
        seed,
        startsPerS: smg240Parameters.startsPerS * scale,
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
  summary: "240 engines behind 8 routers, 611 sessions a second with few follow-ups and 200 system prompts.",
  policies: ["random", "cache_aware", "least_work"],
  published,
});
