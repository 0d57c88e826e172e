import { createClosedLoop, createOpenLoop } from "../clients/loops.ts";
import { prefixGroupScripts } from "../clients/scripts.ts";
import type { ScriptOf } from "../clients/session.ts";
import type { LlmdRule } from "../fleet/llm-d-pulls.ts";
import { limitsOf, type PublishedResult, type Scenario, scaledClients } from "./scenario.ts";

/**
 * llm-d's measurements of P2P KV cache sharing: its blog of 2026-08-15, and the reports in its guide
 * (llm-d/llm-d, guides/p2p-kv-cache-sharing), which give the memory of the engines, the configurations of the router and most
 * of the clients. Both arms are `epp_weighted` with llm-d's weights; one that computes what its engine lacks is a variant of its
 * own. What the sources leave open is said where it is assumed.
 */
const llmd = { source: "llm-d", policy: "epp_weighted", baseline: "epp_weighted" } as const;

/** Load-aware placement (`epp-load.yaml`): queues and memory, and no prefixes. */
const loadWeights = { "queue-weight": 3, "kv-cache-utilization-weight": 2, "prefix-cache-weight": 0 } as const;

/** With pulls (`epp-load-p2p.yaml`), and without. */
const pulling: LlmdRule = { minPullTokens: 2_048, draws: true };
const computing: LlmdRule = { draws: true };

/**
 * - `frontMs`: hits of the same fleet take 184 to 207 ms to the first token in the guide's uniform pool, of which an engine
 *   takes about 40.
 * - `scrapeMs`: llm-d reads metrics every 50 ms, but vLLM changes its gauges only when a step ends, and a step with 8,192 tokens
 *   of a long prompt takes 300 ms. Fitted between the two, to the published p99 of affinity.
 */
const timing = { frontMs: 150, scrapeMs: 250 } as const;

const pullLadderParameters = {
  /** By tokens in thousands: milliseconds to the first token, computed and pulled. */
  published: [
    [2, 78.3, 34.6],
    [8, 249.9, 56.5],
    [16, 510.3, 85.9],
    [32, 1_173.2, 165.2],
    [48, 1_987.7, 235],
  ],
  prompts: 5,
  /** Of each prompt, one after the other: the first one is computed, and the others find it at another engine. */
  requests: 8,
  /** So many that a request hardly meets one of its own prompt. The source has two and sends to them itself. */
  engines: 64,
  /** Between two requests; routers know by then what was computed. */
  pauseMs: 1_000,
} as const;

const {
  published: ladder,
  prompts,
  requests: requestsPerPrompt,
  engines: ladderEngines,
  pauseMs,
} = pullLadderParameters;

/** One client whose prompts come back `requestsPerPrompt` times. */
function ladderClients(tokens: number): Scenario["createWorkload"] {
  return (options) =>
    createClosedLoop({
      seed: options.seed,
      sessions: prompts * requestsPerPrompt,
      clients: 1,
      scriptOf: (session) => ({
        turns: 1,
        expectedTokens: tokens + 1,
        pauseMs: () => pauseMs,
        write(_, conversation) {
          conversation.share(Math.floor(session / requestsPerPrompt), tokens);
          return 1;
        },
      }),
      limits: limitsOf(options),
    });
}

export const pullLadder: Scenario = {
  name: "pull-ladder",
  summary: "One prompt at a time, of 2,000 to 48,000 tokens, that another engine has: computed, or pulled from there.",
  fleet: { preset: "h200-gpt-oss-120b", parameters: {}, engines: ladderEngines, routers: 1 },
  policies: ["epp_weighted", "predicted_latency"],
  variants: ladder.flatMap(([size]) => {
    const variant = { policyOptions: loadWeights, createWorkload: ladderClients(1_024 * size) };
    return [
      { name: `${size}k`, llmdRule: { minPullTokens: 1 }, ...variant },
      { name: `${size}k-computed`, llmdRule: {}, ...variant },
    ];
  }),
  published: ladder.map(([size, computedMs, pulledMs]) => ({
    ...{ ...llmd, variant: `${size}k`, baselineVariant: `${size}k-computed`, metric: "ttft_p50_s" },
    ...{ policyValue: pulledMs / 1_000, baselineValue: computedMs / 1_000 },
    note: "llm-d has no router here; ours finds the prompt where it is",
  })),
  isOpenLoop: false,
  createWorkload: ladderClients(1_024 * 48),
};

const pull64x16kParameters = {
  requests: {
    groups: 64,
    prefixTokens: 16_384,
    /** Assumed, as in the guide's pool of 128 prefixes. The blog's throughput in tokens would be four times as many answers. */
    ownTokens: 256,
    outputTokens: 64,
  },
  /** By requests per second: seconds of the median request, computed and pulled. */
  published: [
    [4, 1.12, 0.93],
    [8, 2.49, 1.41],
    [12, 12.2, 2.1],
    [16, 21.3, 7.8],
  ],
  /** Assumed: by the published backlog of the computing fleet at 16 a second. Stages follow each other there. */
  durationS: 75,
} as const;

const { requests: poolRequests, published: pool, durationS: poolS } = pull64x16kParameters;
const poolPerS = pool[0][0];

export const pull64x16k: Scenario = {
  name: "pull-64x16k",
  summary: "Questions behind 64 prefixes of 16,000 tokens, twice what the GPU memory of one of four engines holds.",
  fleet: { preset: "h200-llama-8b", parameters: {}, engines: 4, routers: 1 },
  policies: ["epp_weighted", "predicted_latency"],
  variants: pool.flatMap(([perS]) => {
    const variant = { scale: perS / poolPerS, policyOptions: loadWeights };
    return [
      { name: `${perS}-per-s`, llmdRule: pulling, ...variant },
      { name: `${perS}-per-s-computed`, llmdRule: computing, ...variant },
    ];
  }),
  published: pool.map(([perS, computedS, pulledS]) => ({
    ...{ ...llmd, variant: `${perS}-per-s`, baselineVariant: `${perS}-per-s-computed`, metric: "e2e_p50_s" },
    ...{ policyValue: pulledS, baselineValue: computedS },
    ...(perS >= 12 && { note: "more than the fleet can compute: the backlog depends on arrivals" }),
  })),
  durationS: poolS,
  isOpenLoop: true,
  timing,
  createWorkload: (options) =>
    createOpenLoop({
      seed: options.seed,
      startsPerS: poolPerS * options.scale,
      meanTurns: 1,
      scriptOf: prefixGroupScripts(poolRequests, options.seed),
      limits: limitsOf(options, poolS),
    }),
};

const pull192x48kParameters = {
  sessions: 192,
  /** Conversations at once, without pauses. */
  clients: 128,
  systemTokens: 256,
  documentTokens: 49_152,
  questionTokens: 256,
  outputTokens: 256,
  turns: 6,
  /** Conversations that begin in a second: six tokenizers, each of which the guide found to do 10 such prompts a second. */
  startsPerS: 60,
} as const;

const { sessions, clients, systemTokens, documentTokens, questionTokens, outputTokens, turns, startsPerS } =
  pull192x48kParameters;

/** Six questions about a document of one's own. */
const documentChat: ScriptOf = (session) => ({
  turns,
  expectedTokens: systemTokens + documentTokens + turns * (questionTokens + outputTokens),
  // A later conversation begins when another one ends.
  pauseMs: (turn) => (turn === 0 && session < clients ? (1_000 * session) / startsPerS : 0),
  write(turn, conversation) {
    if (turn === 0) {
      conversation.share(0, systemTokens);
      conversation.own(documentTokens);
    }
    conversation.own(questionTokens);
    return outputTokens;
  },
});

/**
 * Of the runs on warm fleets. Documents are new in both runs, or they would not take the prefill of eight of them to the first
 * token; so the fleet here starts empty.
 */
const documentResults: readonly PublishedResult[] = [
  { metric: "ttft_p50_s", policyValue: 0.6, baselineValue: 0.3 },
  { metric: "ttft_p99_s", policyValue: 16.6, baselineValue: 25.2 },
  { metric: "requests_per_s", policyValue: 13.66, baselineValue: 10.15 },
].map((result) => ({ ...llmd, variant: "load-aware-pull", baselineVariant: "affinity", ...result }));

export const pull192x48k: Scenario = {
  name: "pull-192x48k",
  summary: "Six questions each about 192 documents of 48,000 tokens, 128 conversations at a time.",
  fleet: { preset: "h200-gpt-oss-120b", parameters: { cpuWrites: "all" }, engines: 16, routers: 1 },
  policies: ["epp_weighted", "predicted_latency"],
  variants: [
    // `epp-affinity.yaml`.
    { name: "affinity", llmdRule: {}, policyOptions: { "no-hit-lru-weight": 2 } },
    { name: "load-aware-pull", llmdRule: pulling, policyOptions: loadWeights },
  ],
  published: documentResults,
  isOpenLoop: false,
  timing,
  createWorkload: (options) =>
    createClosedLoop({
      seed: options.seed,
      sessions,
      clients: scaledClients(clients, options),
      scriptOf: documentChat,
      limits: limitsOf(options),
    }),
};
