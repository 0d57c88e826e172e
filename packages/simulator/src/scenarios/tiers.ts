import { createOpenLoop } from "../clients/open-loop.ts";
import { type DocumentParameters, documentScripts } from "../clients/scripts/document-script.ts";
import { limitsOf } from "./limits-of.ts";
import type { Scenario } from "./scenario.ts";

/** One document for each question, as in `evict`: what is worth keeping is known to the token. */
const questions = {
  systemTokens: 0,
  documents: 400,
  zipf: 0.6,
  documentTokens: { least: 8_000, most: 8_000 },
  perPrompt: { least: 1, most: 1 },
  questionTokens: { least: 200, most: 200 },
  outputTokens: { least: 100, most: 100 },
} satisfies DocumentParameters;

export const tiersParameters = {
  questions,
  engines: 8,
  /** All documents over the KV memory of the whole fleet. */
  workingSet: 4,
  /** CPU memory over KV memory. With the KV memory it holds every document once, if each is with one engine only. */
  cpuShare: 3,
  /**
   * A block is 16 x 327,680 bytes on four GPUs, each with its own link of 64 GB/s (PCIe 5.0 x16), of which an estimated 40 %
   * is reached with pieces of that size. To compute a block takes 25 times as long.
   */
  loadMsPerBlock: 0.05,
  /** What the fleet can do when three of four documents are gone: 8 engines / (6,200 x 0.0793 ms + attention + decode). */
  ratePerS: 10,
  durationS: 600,
} as const;

const { engines, workingSet, cpuShare, loadMsPerBlock, ratePerS, durationS } = tiersParameters;
const blockCount = Math.round((questions.documents * questions.documentTokens.most) / workingSet / engines / 16);

export const tiers: Scenario = {
  name: "tiers",
  summary: "400 documents of 8,000 tokens, four times what GPU memory holds; CPU memory holds the rest, once.",
  fleet: {
    preset: "h100-70b-tp4",
    parameters: { blockCount, cpuBlocks: cpuShare * blockCount, cpuLoadMsPerBlock: loadMsPerBlock },
    engines,
    routers: 2,
  },
  policies: ["round_robin", "cache_aware", "dynamo", "least_work", "predicted_latency"],
  variants: [
    { name: "cpu-credit" },
    // What routers do that look at GPU memory only; those that learn what CPU memory is worth begin so.
    { name: "gpu-credit", policyOptions: { "cpu-credit": 0 } },
    { name: "full-credit", policyOptions: { "cpu-credit": 1 } },
    { name: "no-cpu", parameters: { blockCount, cpuBlocks: 0 } },
    { name: "slow-link", parameters: { blockCount, cpuBlocks: cpuShare * blockCount, cpuLoadMsPerBlock: 0.5 } },
    // 1.3 GB/s, as from a disk or over a network: three times as long as computing takes. Engines fetch all the same.
    {
      name: "slower-than-computing",
      parameters: { blockCount, cpuBlocks: cpuShare * blockCount, cpuLoadMsPerBlock: 4 },
    },
  ],
  published: [],
  durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    return createOpenLoop({
      seed,
      startsPerS: ratePerS * scale,
      meanTurns: 1,
      scriptOf: documentScripts(questions, seed),
      limits: limitsOf(options, durationS),
    });
  },
};
