import { createOpenLoop } from "../clients/loops.ts";
import { type DocumentParameters, documentScripts } from "../clients/scripts.ts";
import { limitsOf, type Scenario, type ScenarioVariant } from "./scenario.ts";

/** Independent questions at a rate, in an open loop. */
function questionsAt(
  ratePerS: number,
  { questions, durationS }: { readonly questions: DocumentParameters; readonly durationS: number },
): Scenario["createWorkload"] {
  return (options) => {
    const { seed, scale } = options;
    return createOpenLoop({
      seed,
      startsPerS: ratePerS * scale,
      meanTurns: 1,
      scriptOf: documentScripts(questions, seed),
      limits: limitsOf(options, durationS),
    });
  };
}

/** Retrieval: about 45 input tokens per output token, at the prefill-heavy end of the reported range (19:1 to 47:1). */
const ragQuestions = {
  /** Instruction lengths are not published. */
  systemTokens: 500,
  documents: 500,
  zipf: 1,
  documentTokens: { least: 1_000, most: 6_000 },
  perPrompt: { least: 2, most: 4 },
  questionTokens: { least: 50, most: 200 },
  outputTokens: { least: 100, most: 300 },
} satisfies DocumentParameters;

export const ragParameters = {
  questions: ragQuestions,
  /**
   * Below the fleet's prefill rate with empty caches: 8 engines / (9,000 tokens x 0.0793 ms + attention of 60 ms) are
   * 10.
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
  createWorkload: questionsAt(ragParameters.ratePerS, ragParameters),
};

/** One document per question. An engine holds 17 of the 50; 30 % of all questions are about the first one. */
const hotQuestions = {
  systemTokens: 0,
  documents: 50,
  zipf: 1.2,
  documentTokens: { least: 16_000, most: 16_000 },
  perPrompt: { least: 1, most: 1 },
  questionTokens: { least: 50, most: 200 },
  outputTokens: { least: 100, most: 300 },
} satisfies DocumentParameters;

export const hotDocumentsParameters = {
  questions: hotQuestions,
  /**
   * The rate that least_connections sustains, by `espalier simulate hot-documents --knee-of least_connections --load
   * 0.8 --links delays`. Policies that divide the documents among engines sustain more.
   */
  kneePerS: 14.3,
  loads: [0.5, 1.2],
  /** Of the scenario itself. */
  load: 0.8,
  durationS: 240,
} as const;

export const hotDocuments: Scenario = {
  name: "hot-documents",
  summary: "Questions about 50 documents of 16,000 tokens, of which a few are asked about most (Zipf 1.2).",
  fleet: { preset: "h100-32b-tp2", parameters: {}, engines: 8, routers: 1 },
  policies: ["round_robin", "least_connections", "lmetric", "predicted_latency"],
  variants: hotDocumentsParameters.loads.map((share) => ({
    name: `load-${share}`,
    scale: share / hotDocumentsParameters.load,
  })),
  published: [],
  admission: true,
  durationS: hotDocumentsParameters.durationS,
  isOpenLoop: true,
  createWorkload: questionsAt(hotDocumentsParameters.kneePerS * hotDocumentsParameters.load, hotDocumentsParameters),
};

/** One document per question, so that the working set is documents x tokens and only documents are reused. */
const evictQuestions = {
  systemTokens: 0,
  documents: 400,
  /** Flatter than real popularity: evicted documents are requested again. */
  zipf: 0.6,
  documentTokens: { least: 8_000, most: 8_000 },
  perPrompt: { least: 1, most: 1 },
  questionTokens: { least: 200, most: 200 },
  outputTokens: { least: 100, most: 100 },
} satisfies DocumentParameters;

export const evictParameters = {
  questions: evictQuestions,
  engines: 8,
  /**
   * Working set divided by the KV memory of the whole fleet. All variants have the same set; the engines' capacity
   * differs.
   */
  workingSets: [0.5, 1, 1.5, 2, 3],
  /**
   * The fleet's rate with two of three documents evicted: 8 engines / (5,400 tokens x 0.0793 ms + attention of 40 ms +
   * decode of 50 ms) are 15.
   */
  ratePerS: 10,
  durationS: 600,
} as const;

const setTokens = evictQuestions.documents * evictQuestions.documentTokens.most;

const holding = (workingSet: number): ScenarioVariant["parameters"] => ({
  blockCount: Math.round(setTokens / workingSet / evictParameters.engines / 16),
});

export const evict: Scenario = {
  name: "evict",
  summary: "400 documents of 8,000 tokens asked about again and again; they are 0.5 to 3 times what the engines hold.",
  fleet: { preset: "h100-70b-tp4", parameters: { ...holding(1) }, engines: evictParameters.engines, routers: 2 },
  policies: ["round_robin", "cache_aware", "least_work", "predicted_latency"],
  variants: evictParameters.workingSets.map((workingSet) => ({
    name: `${workingSet}x`,
    parameters: { ...holding(workingSet) },
  })),
  published: [],
  durationS: evictParameters.durationS,
  isOpenLoop: true,
  createWorkload: questionsAt(evictParameters.ratePerS, evictParameters),
};

/** One document per question, as in `evict`, so the tokens that a cache can save are known exactly. */
const tiersQuestions = {
  systemTokens: 0,
  documents: 400,
  zipf: 0.6,
  documentTokens: { least: 8_000, most: 8_000 },
  perPrompt: { least: 1, most: 1 },
  questionTokens: { least: 200, most: 200 },
  outputTokens: { least: 100, most: 100 },
} satisfies DocumentParameters;

export const tiersParameters = {
  questions: tiersQuestions,
  engines: 8,
  /** All documents divided by the KV memory of the whole fleet. */
  workingSet: 4,
  /** CPU memory divided by KV memory. Together they hold every document once, if each document stays at one engine. */
  cpuShare: 3,
  /**
   * A block is 16 x 327,680 bytes on four GPUs, each with its own link of 64 GB/s (PCIe 5.0 x16). Pieces of that size
   * reach an estimated 40 % of it. Computing a block takes 25 times as long.
   */
  loadMsPerBlock: 0.05,
  /** The fleet's rate with three of four documents evicted: 8 engines / (6,200 x 0.0793 ms + attention + decode). */
  ratePerS: 10,
  durationS: 600,
} as const;

const blockCount = Math.round(
  (tiersQuestions.documents * tiersQuestions.documentTokens.most) /
    tiersParameters.workingSet /
    tiersParameters.engines /
    16,
);

const cpuBlocks = tiersParameters.cpuShare * blockCount;

export const tiers: Scenario = {
  name: "tiers",
  summary: "400 documents of 8,000 tokens, four times what GPU memory holds; CPU memory holds the rest, once.",
  fleet: {
    preset: "h100-70b-tp4",
    parameters: { blockCount, cpuBlocks, cpuLoadMsPerBlock: tiersParameters.loadMsPerBlock },
    engines: tiersParameters.engines,
    routers: 2,
  },
  policies: ["round_robin", "cache_aware", "dynamo", "least_work", "predicted_latency"],
  variants: [
    { name: "cpu-credit" },
    // Routers that look only at GPU memory use this; routers that learn the value of CPU memory start with it.
    { name: "gpu-credit", policyOptions: { "cpu-credit": 0 } },
    { name: "full-credit", policyOptions: { "cpu-credit": 1 } },
    { name: "no-cpu", parameters: { blockCount, cpuBlocks: 0 } },
    { name: "slow-link", parameters: { blockCount, cpuBlocks, cpuLoadMsPerBlock: 0.5 } },
    // 1.3 GB/s, as from a disk or over a network: three times as slow as computing. Engines fetch nevertheless.
    {
      name: "slower-than-computing",
      parameters: { blockCount, cpuBlocks, cpuLoadMsPerBlock: 4 },
    },
  ],
  published: [],
  durationS: tiersParameters.durationS,
  isOpenLoop: true,
  createWorkload: questionsAt(tiersParameters.ratePerS, tiersParameters),
};
