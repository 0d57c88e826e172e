import { createOpenLoop } from "../clients/open-loop.ts";
import { type DocumentParameters, documentScripts } from "../clients/scripts/document-script.ts";
import { limitsOf } from "./limits-of.ts";
import type { Scenario } from "./scenario.ts";

/** Retrieval: about 45 tokens in for each one out, at the prefill-heavy end of what is reported (19:1 to 47:1). */
const questions = {
  /** Not given: instructions of a page. */
  systemTokens: 500,
  documents: 500,
  zipf: 1,
  documentTokens: { least: 1_000, most: 6_000 },
  perPrompt: { least: 2, most: 4 },
  questionTokens: { least: 50, most: 200 },
  outputTokens: { least: 100, most: 300 },
} satisfies DocumentParameters;

export const ragParameters = {
  questions,
  /**
   * Below what the fleet prefills with empty caches: 8 engines / (9,000 tokens x 0.0793 ms + attention of 60 ms) are 10.
   */
  ratePerS: 8,
  durationS: 600,
} as const;

export const rag: Scenario = {
  name: "rag",
  summary: "Questions about 2 to 4 of 500 documents of 1,000 to 6,000 tokens, popular ones first.",
  fleet: { preset: "h100-70b-tp4", parameters: {}, engines: 8, routers: 2 },
  policies: ["round_robin", "cache_aware", "least_work", "predicted_latency"],
  variants: [],
  published: [],
  durationS: ragParameters.durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    return createOpenLoop({
      seed,
      startsPerS: ragParameters.ratePerS * scale,
      meanTurns: 1,
      scriptOf: documentScripts(questions, seed),
      limits: limitsOf(options, ragParameters.durationS),
    });
  },
};
