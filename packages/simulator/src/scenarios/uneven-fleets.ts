import { enginePresets, slowedSteps } from "@espalier/engine-model";
import { createOpenLoop } from "../clients/loops.ts";
import { type ChatParameters, chatScripts } from "../clients/scripts.ts";
import { limitsOf, type Scenario } from "./scenario.ts";

/** Conversations with a few system prompts: cache hits are valuable, and engines have to evict. */
const chats = {
  groups: 20,
  sharedTokens: 2_000,
  sharedShare: 1,
  firstTokens: 400,
  newTokens: 200,
  outputTokens: 250,
  followups: { mean: 4 },
  thinkMeanMs: 8_000,
  thinksFirst: false,
} satisfies ChatParameters;

const preset = "h100-32b-tp2";
const { parameters } = enginePresets[preset];

export const unevenFleetParameters = {
  chats,
  /** Every second engine. */
  slowFactor: 3,
  memoryShare: 0.25,
  /**
   * Chats that start per second, with five turns each. A turn takes an engine about 165 ms (30 of prefill with its chat
   * cached, 135 of decode with 50 others). Eight engines complete 48 a second, or 32 when half of them are three times
   * slower.
   */
  startsPerS: { "mixed-engines": 6, "slow-engines": 6, "quarter-memory": 8 },
  durationS: 180,
} as const;

const { slowFactor, memoryShare, startsPerS, durationS } = unevenFleetParameters;

const unevenFleet = (
  name: keyof typeof startsPerS,
  { perEngine, ...plan }: Pick<Scenario, "summary" | "fault"> & Pick<Scenario["fleet"], "perEngine">,
): Scenario => ({
  ...{ name, ...plan },
  fleet: { preset, parameters: {}, ...(perEngine && { perEngine }), engines: 8, routers: 1 },
  policies: ["round_robin", "least_connections", "lmetric", "predicted_latency"],
  variants: [],
  published: [],
  admission: true,
  durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    return createOpenLoop({
      seed,
      startsPerS: startsPerS[name] * scale,
      meanTurns: 1 + chats.followups.mean,
      scriptOf: chatScripts(chats, { seed }),
      limits: limitsOf(options, durationS),
    });
  },
});

/** Fleets whose engines differ from the start, or become different. */
export const unevenFleets: readonly Scenario[] = [
  unevenFleet("mixed-engines", {
    summary: "Chats of a few turns on engines of which every second one takes three times as long.",
    perEngine: [{}, slowedSteps(parameters, slowFactor)],
  }),
  unevenFleet("slow-engines", {
    summary: "Chats of a few turns on engines of which two in eight take five times as long from the middle on.",
    fault: "slow-engines",
  }),
  unevenFleet("quarter-memory", {
    summary: "Chats of a few turns on engines of which every second one has a quarter of the KV memory.",
    perEngine: [{}, { blockCount: parameters.blockCount * memoryShare }],
  }),
];
