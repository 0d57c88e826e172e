import { createZipf, ownRandom } from "../clients/draws.ts";
import { createOpenLoop } from "../clients/loops.ts";
import { prefixGroupScripts } from "../clients/scripts.ts";
import type { Topology } from "../topology.ts";
import { limitsOf, type Scenario } from "./scenario.ts";

/**
 * Peers with anti-entropy (arXiv 2606.17059): "decentralized routing improves latency under low communication delay and skewed
 * prefix distributions, while high network latency and affinity-induced hotspots limit its benefits", in simulated questions of
 * MMLU. Only the abstract was read, which has no figures; all numbers here but the 57 subjects are assumed.
 */
const p2pParameters = {
  nodes: 8,
  questions: {
    /** Subjects of MMLU, and five examples of a subject before each of its questions. */
    groups: 57,
    prefixTokens: 750,
    ownTokens: 100,
    outputTokens: 8,
  },
  zipf: 1.2,
  /** Each node keeps about a third of the subjects. */
  blockCount: 1_000,
  perS: 24,
  /** One way between two nodes. */
  delaysMs: { near: 1, far: 200 },
  insideMs: 0.25,
  durationS: 120,
} as const;

const { nodes, questions, zipf, blockCount, perS, delaysMs, insideMs, durationS } = p2pParameters;

/** Every node is a region of its own, with as many clients. */
const peersAt = (delayMs: number): Topology => {
  const numbers = Array.from({ length: nodes }, (_, node) => node);
  return {
    regions: numbers.map((node) => ({ name: `node-${node}`, engines: 1, routers: 1 })),
    delaysMs: numbers.map((node) => numbers.map((other) => (node === other ? insideMs : delayMs))),
    clientDelayMs: insideMs,
    clients: [{ atS: 0, shares: numbers.map(() => 1) }],
  };
};

/** @param exponent of the subjects' popularity: 0 for subjects that are asked about alike */
const questionsBy =
  (exponent: number): Scenario["createWorkload"] =>
  (options) => {
    const { seed, scale } = options;
    const subjects = createZipf({ count: questions.groups, exponent });
    return createOpenLoop({
      seed,
      startsPerS: perS * scale,
      meanTurns: 1,
      scriptOf: prefixGroupScripts(questions, seed, (request) => subjects.draw(ownRandom(seed, request))),
      limits: limitsOf(options, durationS),
    });
  };

const far = peersAt(delaysMs.far);

export const p2p: Scenario = {
  name: "p2p-anti-entropy",
  summary: "Questions of 57 subjects at eight nodes, each with an engine that keeps a third of the subjects.",
  fleet: {
    ...{ preset: "a10g-7b", parameters: { blockCount }, engines: nodes, routers: nodes },
    topology: peersAt(delaysMs.near),
  },
  policies: ["p2p_local", "p2p_anti_entropy", "predicted_latency"],
  variants: [
    { name: "near-even", createWorkload: questionsBy(0) },
    { name: "near-skewed" },
    { name: "near-hotspot", scale: 2, createWorkload: questionsBy(2) },
    { name: "far-even", topology: far, createWorkload: questionsBy(0) },
    { name: "far-skewed", topology: far },
  ],
  // Published without figures.
  published: [],
  durationS,
  isOpenLoop: true,
  createWorkload: questionsBy(zipf),
};
