import { createZipf, exponential, geometric, logNormal, ownRandom } from "../clients/draws.ts";
import { createOpenLoop } from "../clients/loops.ts";
import type { ScriptOf } from "../clients/session.ts";
import type { Topology } from "../topology.ts";
import { limitsOf, type PublishedResult, type Scenario } from "./scenario.ts";

/**
 * GORGO (arXiv 2602.11688 v2, June 2026): one engine in each of three regions and a proxy in the first of them, where the clients
 * are as well. The held-out window of April 6th, stretched to twice its time. Its data set was not read: the workload here
 * is drawn from the window's published statistics (its appendix A, and the notes of its repository).
 */
const gorgoParameters = {
  /** 7,630 requests in twice 30 minutes, of 1,501 conversations. */
  conversationsPerS: 1_501 / 3_600,
  /** Requests of a conversation within the window, 5.1 in the mean. */
  singleShare: 0.265,
  meanFollowups: 4.55,
  /** Published: 606 users, one of whom sends 20 % of the requests. */
  users: 606,
  zipf: 1.15,
  /** Of all prompts of one user. Assumed: some beginning that `simple-session-affinity` hashes. */
  userTokens: 1_000,
  /** Published: 5,787 in the median, 7,008 in the mean, 20,974 at p95, and none above 24,000. */
  promptTokens: { median: 5_800, sigma: 0.78, least: 1_100, most: 24_000 },
  /** Assumed by the published 77.6 % of blocks that were there before, of which first prompts leave so much. */
  newTokens: 180,
  /** The traces have answers of their own, so those of the engine are not in the next prompt. */
  outputTokens: 128,
  /** Assumed. */
  pauseMeanMs: 60_000,
  durationS: 1_200,
} as const;

const { users, zipf, userTokens, promptTokens, newTokens, outputTokens, pauseMeanMs, durationS, ...counts } =
  gorgoParameters;

function gorgoScripts(seed: number): ScriptOf {
  const popularity = createZipf({ count: users, exponent: zipf });
  return (session) => {
    const random = ownRandom(seed, session);
    const turns = random.float() < counts.singleShare ? 1 : 2 + geometric(counts.meanFollowups, random);
    const user = popularity.draw(random);
    const first = Math.round(logNormal(promptTokens, random));
    return {
      turns,
      expectedTokens: first + turns * newTokens + outputTokens,
      pauseMs: (turn) => (turn === 0 ? 0 : exponential(pauseMeanMs, random)),
      write(turn, conversation) {
        if (turn > 0) conversation.cut(conversation.tokens - outputTokens);
        else conversation.share(user, userTokens);
        conversation.own(turn === 0 ? first - userTokens : newTokens);
        return outputTokens;
      },
    };
  };
}

/** Half of the mean round trips that the source measured from its proxy, which reaches also the nearest engine through a tunnel. */
const [ashburnMs, frankfurtMs, seoulMs] = [37 / 2, 279 / 2, 456 / 2];
/** Nothing goes between Frankfurt and Seoul. */
const unusedMs = frankfurtMs + seoulMs;

const oneProxy: Topology = {
  regions: [
    { name: "ashburn", engines: 1, routers: 1 },
    { name: "frankfurt", engines: 1, routers: 0 },
    { name: "seoul", engines: 1, routers: 0 },
  ],
  delaysMs: [
    [ashburnMs, frankfurtMs, seoulMs],
    [frankfurtMs, ashburnMs, unusedMs],
    [seoulMs, unusedMs, ashburnMs],
  ],
  clientDelayMs: 0,
  clients: [{ atS: 0, shares: [1, 0, 0] }],
};

/** Seconds to the first token, median and p95, and to the last one, p95. */
type Row = readonly [ttftP50: number, ttftP95: number, e2eP95: number];

const own: Row = [0.491, 1.584, 3.28];

const baselines: readonly (readonly [baseline: string, row: Row])[] = [
  ["gorgo_session_affinity", [0.627, 1.875, 4.75]],
  ["gorgo_least_load", [0.616, 1.818, 4.06]],
  ["gorgo_least_request", [0.634, 1.852, 3.99]],
  ["gorgo_prefix_cache", [0.574, 1.798, 4.95]],
];

export const gorgo: Scenario = {
  name: "gorgo",
  summary: "Long chats of 606 users through one proxy, before engines 37, 279 and 456 ms of round trip away.",
  fleet: { preset: "l40s-35b-moe-tp2", parameters: {}, engines: 3, routers: 1, topology: oneProxy },
  policies: [...baselines.map(([baseline]) => baseline), "gorgo", "predicted_latency"],
  // The source looks at the time to the last token as well, which `predicted_latency` weighs by its objective.
  variants: [{ name: "e2e", policyOptions: { objective: "e2e" } }],
  published: baselines.flatMap(([baseline, row]) =>
    ["ttft_p50_s", "ttft_p95_s", "e2e_p95_s"].map(
      (metric, at): PublishedResult => ({
        ...{ source: "GORGO v2", metric, policy: "gorgo", policyValue: own[at]!, baseline, baselineValue: row[at]! },
      }),
    ),
  ),
  durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    const { conversationsPerS, singleShare, meanFollowups } = counts;
    return createOpenLoop({
      seed,
      startsPerS: conversationsPerS * scale,
      meanTurns: singleShare + (1 - singleShare) * (2 + meanFollowups),
      scriptOf: gorgoScripts(seed),
      limits: limitsOf(options, durationS),
    });
  },
};
