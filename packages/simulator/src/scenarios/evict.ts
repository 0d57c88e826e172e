import { createOpenLoop } from "../clients/open-loop.ts";
import { type DocumentParameters, documentScripts } from "../clients/scripts/document-script.ts";
import { limitsOf } from "./limits-of.ts";
import type { Scenario, ScenarioVariant } from "./scenario.ts";

/** One document for each question, so that the working set is documents x tokens, and nothing but it is reused. */
const questions = {
  systemTokens: 0,
  documents: 400,
  /** Flatter than popularity is: what is evicted is asked for again. */
  zipf: 0.6,
  documentTokens: { least: 8_000, most: 8_000 },
  perPrompt: { least: 1, most: 1 },
  questionTokens: { least: 200, most: 200 },
  outputTokens: { least: 100, most: 100 },
} satisfies DocumentParameters;

export const evictParameters = {
  questions,
  engines: 8,
  /** Working set over KV of the whole fleet. The set is the same in all variants; what engines hold differs. */
  workingSets: [0.5, 1, 1.5, 2, 3],
  /**
   * What the fleet can do with two of three documents gone: 8 engines / (5,400 tokens x 0.0793 ms + attention of 40 ms +
   * decode of 50 ms) are 15.
   */
  ratePerS: 10,
  durationS: 600,
} as const;

const { workingSets, engines } = evictParameters;
const setTokens = questions.documents * questions.documentTokens.most;

const holding = (workingSet: number): ScenarioVariant["parameters"] => ({
  blockCount: Math.round(setTokens / workingSet / engines / 16),
});

export const evict: Scenario = {
  name: "evict",
  summary: "400 documents of 8,000 tokens asked about again and again; they are 0.5 to 3 times what the engines hold.",
  fleet: { preset: "h100-70b-tp4", parameters: { ...holding(1) }, engines, routers: 2 },
  policies: ["round_robin", "cache_aware", "least_work", "predicted_latency"],
  variants: workingSets.map((workingSet) => ({ name: `${workingSet}x`, parameters: { ...holding(workingSet) } })),
  published: [],
  durationS: evictParameters.durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    return createOpenLoop({
      seed,
      startsPerS: evictParameters.ratePerS * scale,
      meanTurns: 1,
      scriptOf: documentScripts(questions, seed),
      limits: limitsOf(options, evictParameters.durationS),
    });
  },
};
