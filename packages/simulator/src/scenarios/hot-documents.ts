import { createOpenLoop } from "../clients/open-loop.ts";
import { type DocumentParameters, documentScripts } from "../clients/scripts/document-script.ts";
import { limitsOf } from "./limits-of.ts";
import type { Scenario } from "./scenario.ts";

/** One document for each question. An engine holds 17 of the 50; the first one is asked for in 30 % of all questions. */
const questions = {
  systemTokens: 0,
  documents: 50,
  zipf: 1.2,
  documentTokens: { least: 16_000, most: 16_000 },
  perPrompt: { least: 1, most: 1 },
  questionTokens: { least: 50, most: 200 },
  outputTokens: { least: 100, most: 300 },
} satisfies DocumentParameters;

export const hotDocumentsParameters = {
  questions,
  /**
   * What least_connections sustains, by `espalier simulate hot-documents --knee-of least_connections --load 0.8 --links
   * delays`. Policies that divide the documents sustain more.
   */
  kneePerS: 14.3,
  loads: [0.5, 1.2],
  /** Of the scenario itself. */
  load: 0.8,
  durationS: 240,
} as const;

const { kneePerS, loads, load, durationS } = hotDocumentsParameters;

export const hotDocuments: Scenario = {
  name: "hot-documents",
  summary: "Questions about 50 documents of 16,000 tokens, of which a few are asked about most (Zipf 1.2).",
  fleet: { preset: "h100-32b-tp2", parameters: {}, engines: 8, routers: 1 },
  policies: ["round_robin", "least_connections", "lmetric", "predicted_latency"],
  variants: loads.map((share) => ({ name: `load-${share}`, scale: share / load })),
  published: [],
  admission: true,
  durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    return createOpenLoop({
      seed,
      startsPerS: kneePerS * load * scale,
      meanTurns: 1,
      scriptOf: documentScripts(questions, seed),
      limits: limitsOf(options, durationS),
    });
  },
};
