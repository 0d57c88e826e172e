import { geometric, logNormal, ownRandom } from "../clients/draws.ts";
import type { ScriptOf } from "../clients/session.ts";
import { createTreeUsers, createUsers, regionOfUser, type TreeScript } from "../clients/users.ts";
import type { Topology } from "../topology.ts";
import { limitsOf, type PublishedResult, type Scenario, type WorkloadOptions } from "./scenario.ts";

/**
 * SkyWalker (arXiv 2505.24095, EuroSys 2026): balancers in three regions of AWS with twelve L4, four in each. The workloads
 * are built like its benchmark's (skypilot-org/skypilot, bbbe983, `sky/lbbench`), with the users of `gen_cmd.sh`; the texts
 * of WildChat and of grade-school questions were not read, so lengths are drawn.
 */
const skywalkerParameters = {
  /** `wildchat_multi_turn`: 12.5 users an engine there, with fewer engines. */
  chatUsers: [60, 45, 45],
  /** `wildchat_cross_region_us`: as many requests as the fleet can take, most of them in one region. */
  unevenUsers: [60, 20, 20],
  /** `tot_single`, two branches. */
  treeUsers: [40, 20, 20],
  /** `tot_single_mixed`: users of the first region think in four branches. */
  mixedUsers: [3, 20, 20],
  mixedBranches: [4, 2, 2],
  chats: {
    /** By WildChat's published means of 295 and 441 tokens a turn; answers are cut at 512. Turns are assumed. */
    meanFollowups: 2.5,
    firstTokens: { median: 120, sigma: 1.2, least: 5, most: 4_000 },
    newTokens: { median: 60, sigma: 1.2, least: 5, most: 2_000 },
    outputTokens: { median: 330, sigma: 0.7, least: 10, most: 512 },
  },
  trees: {
    /** The instruction that all questions begin with, then a question, and three more instructions. */
    sharedTokens: 80,
    promptTokens: [60, 45, 35, 30],
    outputTokens: { median: 140, sigma: 0.5, least: 20, most: 512 },
  },
  durationS: 200,
} as const;

const { chats, trees, durationS, ...users } = skywalkerParameters;

const chatsOf =
  (seed: number): ScriptOf =>
  (session) => {
    const random = ownRandom(seed, session);
    const turns = 2 + geometric(chats.meanFollowups, random);
    return {
      turns,
      expectedTokens: turns * (chats.newTokens.median + chats.outputTokens.median),
      pauseMs: () => 0,
      write(turn, conversation) {
        conversation.own(Math.round(logNormal(turn === 0 ? chats.firstTokens : chats.newTokens, random)));
        return Math.round(logNormal(chats.outputTokens, random));
      },
    };
  };

/** Answers to the same question differ, though the source asks for a temperature of almost 0. */
const treesOf =
  (seed: number, branchesOf: (session: number) => number) =>
  (session: number): TreeScript => {
    const random = ownRandom(seed, session);
    const { sharedTokens, promptTokens } = trees;
    return {
      ...{ branches: branchesOf(session), sharedTokens, promptTokens },
      outputTokens: () => Math.round(logNormal(trees.outputTokens, random)),
    };
  };

const scaled = (counts: readonly number[], { scale }: WorkloadOptions): readonly number[] =>
  counts.map((count) => Math.max(1, Math.round(count * scale)));

const chatting =
  (counts: readonly number[]): Scenario["createWorkload"] =>
  (options) =>
    createUsers({
      ...{ seed: options.seed, users: scaled(counts, options) },
      ...{ scriptOf: chatsOf(options.seed), limits: limitsOf(options, durationS) },
    });

const thinking =
  (counts: readonly number[], branches: readonly number[]): Scenario["createWorkload"] =>
  (options) => {
    const users = scaled(counts, options);
    return createTreeUsers({
      ...{ seed: options.seed, users, limits: limitsOf(options, durationS) },
      scriptOf: treesOf(options.seed, (session) => branches[regionOfUser(session, users)]!),
    });
  };

/** One way between us-east-2, ap-northeast-1 and eu-central-1: half of about 158, 102 and 225 ms that AWS takes. Assumed. */
const [usToAsiaMs, usToEuMs, asiaToEuMs, insideMs] = [79, 51, 112, 0.5];

const threeBalancers: Topology = {
  regions: ["us-east-2", "ap-northeast-1", "eu-central-1"].map((name) => ({ name, engines: 4, routers: 1 })),
  delaysMs: [
    [insideMs, usToAsiaMs, usToEuMs],
    [usToAsiaMs, insideMs, asiaToEuMs],
    [usToEuMs, asiaToEuMs, insideMs],
  ],
  clientDelayMs: insideMs,
  // The users of the workloads say where they are.
  clients: [{ atS: 0, shares: [1, 1, 1] }],
};

const fewerEngines: Topology = {
  ...threeBalancers,
  regions: threeBalancers.regions.map((region) => ({ ...region, engines: 3 })),
};

const baselines = ["skywalker_round_robin", "skywalker_least_load", "skywalker_hash", "skywalker_sglang"] as const;

/** One range for all baselines and workloads. */
const ranges: readonly PublishedResult[] = ["chats", "trees", "mixed-trees"].flatMap((variant) =>
  baselines.flatMap((baseline): PublishedResult[] => {
    const pair = { source: "SkyWalker", policy: "skywalker", baseline, baselineValue: 1, variant };
    return [
      { ...pair, metric: "total_tokens_per_s", policyValue: 1.12, policyUpTo: 2.06 },
      { ...pair, metric: "ttft_p50_s", policyValue: 1 / 6.3, policyUpTo: 1 / 1.74 },
    ];
  }),
);

export const skywalker: Scenario = {
  name: "skywalker",
  summary: "Chats and trees of thoughts in three regions, whose users do not come alike, behind a balancer for each.",
  fleet: { preset: "l4-llama-8b", parameters: {}, engines: 12, routers: 3, topology: threeBalancers },
  policies: [...baselines, "skywalker_region_local", "skywalker", "predicted_latency"],
  variants: [
    { name: "chats" },
    { name: "trees", createWorkload: thinking(users.treeUsers, [2, 2, 2]) },
    { name: "mixed-trees", createWorkload: thinking(users.mixedUsers, users.mixedBranches) },
    { name: "uneven-chats", createWorkload: chatting(users.unevenUsers) },
    {
      name: "uneven-chats-9",
      engines: 9,
      topology: fewerEngines,
      createWorkload: chatting(users.unevenUsers),
    },
  ],
  published: [
    ...ranges,
    {
      ...{ source: "SkyWalker", metric: "total_tokens_per_s", policy: "skywalker", policyValue: 1 },
      ...{ baseline: "skywalker_region_local", baselineValue: 1 },
      ...{ variant: "uneven-chats-9", baselineVariant: "uneven-chats" },
      note: "a quarter fewer engines with the throughput of twelve whose regions keep to themselves",
    },
  ],
  durationS,
  isOpenLoop: false,
  createWorkload: chatting(users.chatUsers),
};
