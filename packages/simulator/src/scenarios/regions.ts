import { createOpenLoop } from "../clients/loops.ts";
import { type ChatParameters, chatScripts } from "../clients/scripts.ts";
import type { ClientShares, Topology } from "../topology.ts";
import { limitsOf, type Scenario } from "./scenario.ts";

/**
 * One way between AWS regions, half of the round trips of "Latency Between AWS Global Regions" (2017, in milliseconds:
 * us-east-1 to eu-central-1 88.6, to ap-northeast-1 145.3, eu-central-1 to ap-northeast-1 236.5). Within a region:
 * between availability zones, about half a millisecond.
 */
const awayMs = { usToEu: 44.3, usToAsia: 72.7, euToAsia: 118.3, inside: 0.25 } as const;

/** One way from a client to its nearest region, half of a round trip of 37 ms. */
const clientDelayMs = 18.5;

/** Shares of the region that is awake, the one where the day ends, and the one that sleeps. */
const [awake, evening, asleep] = [0.7, 0.2, 0.1];

/** Seconds of a day, in which every region is the busiest one for a while. */
const dayS = 240;
const busyS = dayS / 4;

const day: readonly ClientShares[] = [
  [awake, evening, asleep],
  [asleep, awake, evening],
  [evening, asleep, awake],
].flatMap((shares, at) => [
  { atS: (at * dayS) / 3, shares },
  { atS: (at * dayS) / 3 + busyS, shares },
]);

const regionOf = (name: string) => ({ name, engines: 4, routers: 1 });

/** Four engines and a router in each of three regions on three continents. */
const threeRegions: Topology = {
  regions: ["us-east", "eu-central", "ap-northeast"].map(regionOf),
  delaysMs: [
    [awayMs.inside, awayMs.usToEu, awayMs.usToAsia],
    [awayMs.usToEu, awayMs.inside, awayMs.euToAsia],
    [awayMs.usToAsia, awayMs.euToAsia, awayMs.inside],
  ],
  clientDelayMs,
  clients: day,
};

/** Chats and agents whose prompts begin with one of some long system prompts. */
const chats = {
  groups: 30,
  sharedTokens: 3_000,
  sharedShare: 1,
  firstTokens: 400,
  newTokens: 300,
  outputTokens: 250,
  followups: { mean: 5 },
  thinkMeanMs: 6_000,
  thinksFirst: false,
} satisfies ChatParameters;

/** Two thirds of what the twelve engines can do together, so that the busiest region has 1.4 times what its own can do. */
const startsPerS = 24;

export const regions3: Scenario = {
  name: "regions-3",
  summary: "Chats in three regions on three continents, where seven in ten begin in the one that is awake.",
  fleet: { preset: "h100-32b-tp2", parameters: {}, engines: 12, routers: 3, topology: threeRegions },
  policies: ["round_robin", "least_connections", "cache_aware", "predicted_latency"],
  sharing: ["mesh", "none"],
  variants: [{ name: "region-only", cells: { count: 3, balancer: "region" } }],
  published: [],
  admission: true,
  durationS: dayS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    return createOpenLoop({
      seed,
      startsPerS: startsPerS * scale,
      meanTurns: 1 + chats.followups.mean,
      scriptOf: chatScripts(chats, { seed }),
      limits: limitsOf(options, dayS),
    });
  },
};
