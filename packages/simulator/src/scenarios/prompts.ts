import { logNormalOfMean, ownRandom } from "../clients/draws.ts";
import { createOpenLoop } from "../clients/loops.ts";
import { type PromptParameters, promptScripts } from "../clients/scripts.ts";
import { limitsOf, type Scenario } from "./scenario.ts";

/** A burst uses all system prompts at once, as if many users had waited for the same event. */
const burstRequests = {
  prompts: 16,
  sharedTokens: 2_000,
  ownTokens: logNormalOfMean(300, 0.6),
  outputTokens: logNormalOfMean(200, 0.6),
} satisfies PromptParameters;

export const burstsParameters = {
  requests: burstRequests,
  burst: 50,
  /**
   * Seven tenths of the fleet's rate. With 300 concurrent requests, one takes an engine 20 ms of prefill, with its
   * system prompt cached, and 200 steps of 61 ms shared with the others. Eight engines complete 130 a second.
   */
  ratePerS: 90,
  /** Multiples of the rate. */
  loads: [0.5],
  durationS: 240,
} as const;

export const bursts: Scenario = {
  name: "bursts",
  summary: "Requests that come 50 at a time, behind 16 system prompts of 2,000 tokens.",
  fleet: { preset: "h100-32b-tp2", parameters: {}, engines: 8, routers: 1 },
  policies: ["round_robin", "least_connections", "lmetric", "predicted_latency"],
  variants: burstsParameters.loads.map((share) => ({ name: `load-${share}`, scale: share })),
  published: [],
  admission: true,
  durationS: burstsParameters.durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    return createOpenLoop({
      seed,
      startsPerS: burstsParameters.ratePerS * scale,
      burst: burstsParameters.burst,
      meanTurns: 1,
      scriptOf: promptScripts(burstRequests, seed),
      limits: limitsOf(options, burstsParameters.durationS),
    });
  },
};

/** Requests share nothing, so load is the only criterion. */
const decodeRequests = {
  prompts: 1,
  sharedTokens: 0,
  ownTokens: logNormalOfMean(100, 0.6),
  outputTokens: logNormalOfMean(1_500, 0.6),
} satisfies PromptParameters;

export const decodeBoundParameters = {
  requests: decodeRequests,
  /**
   * Four fifths of the fleet's rate. An engine holds 300 such answers at 850 tokens and more on average, and its steps
   * take 37 ms: eight times 300 / (1,500 x 37 ms) are 43 a second.
   */
  ratePerS: 34,
  /** Multiples of the rate. */
  loads: [0.5],
  durationS: 240,
} as const;

export const decodeBound: Scenario = {
  name: "decode-bound",
  summary: "Prompts of 100 tokens, answers of 1,500 with a long tail.",
  fleet: { preset: "h100-32b-tp2", parameters: {}, engines: 8, routers: 1 },
  policies: ["round_robin", "least_connections", "lmetric", "predicted_latency"],
  variants: decodeBoundParameters.loads.map((share) => ({ name: `load-${share}`, scale: share })),
  published: [],
  admission: true,
  durationS: decodeBoundParameters.durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    return createOpenLoop({
      seed,
      startsPerS: decodeBoundParameters.ratePerS * scale,
      meanTurns: 1,
      scriptOf: promptScripts(decodeRequests, seed),
      limits: limitsOf(options, decodeBoundParameters.durationS),
    });
  },
};

const outputTokens = logNormalOfMean(300, 0.6);

const chats = {
  prompts: 1,
  sharedTokens: 1_000,
  ownTokens: logNormalOfMean(300, 0.6),
  outputTokens,
} satisfies PromptParameters;

/** 19 s of prefill each, with nothing shared. */
const longTokens = 128_000;

const longs = {
  prompts: 1,
  sharedTokens: 0,
  ownTokens: { median: longTokens, sigma: 0, least: longTokens, most: longTokens },
  outputTokens,
} satisfies PromptParameters;

export const longAndShortParameters = {
  chats,
  longs,
  longShare: 0.1,
  /** 0.24 long prompts a second keep 4.7 of eight engines busy with prefill. */
  ratePerS: 2.4,
  /** Multiples of the rate. */
  loads: [0.5, 1.25],
  /** Long prompts are few. */
  durationS: 600,
} as const;

/** Objectives of `predicted_latency` besides its default; their results differ in this scenario. */
const objectives = ["ttft", "e2e", "throughput"] as const;

export const longAndShort: Scenario = {
  name: "long-and-short",
  summary: "Chats of 1,300 tokens, and for every nine of them a prompt of 128,000.",
  fleet: { preset: "h100-32b-tp2", parameters: {}, engines: 8, routers: 1 },
  policies: ["round_robin", "least_connections", "lmetric", "predicted_latency"],
  variants: [
    ...longAndShortParameters.loads.map((share) => ({ name: `load-${share}`, scale: share })),
    ...objectives.map((objective) => ({ name: objective, policyOptions: { objective } })),
  ],
  published: [],
  admission: true,
  durationS: longAndShortParameters.durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    const chat = promptScripts(chats, seed);
    const long = promptScripts(longs, seed);
    return createOpenLoop({
      seed,
      startsPerS: longAndShortParameters.ratePerS * scale,
      meanTurns: 1,
      scriptOf: (session) =>
        ownRandom(~seed, session).float() < longAndShortParameters.longShare ? long(session) : chat(session),
      limits: limitsOf(options, longAndShortParameters.durationS),
    });
  },
};
