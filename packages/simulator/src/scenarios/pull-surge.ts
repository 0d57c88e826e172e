import { createZipf, ownRandom } from "../clients/draws.ts";
import { createOpenLoop } from "../clients/loops.ts";
import { prefixGroupScripts } from "../clients/scripts.ts";
import { limitsOf, type Scenario } from "./scenario.ts";

/** Ours: nobody has published how pulls do when interest moves. */
const pullSurgeParameters = {
  requests: { groups: 20, prefixTokens: 49_152, ownTokens: 128, outputTokens: 200 },
  /** Of the questions on all documents, popular ones first. */
  zipf: 0.6,
  othersPerS: 5,
  /** Questions per second on the one document that is the topic, and seconds that they last: quiet, then a surge. */
  quiet: { perS: 5, durationS: 10 },
  surge: { perS: 60, durationS: 8 },
  durationS: 120,
} as const;

const { requests, zipf, othersPerS, quiet, surge, durationS } = pullSurgeParameters;

/** Sessions in so much time at this scale. */
const sessionsOf = (
  { perS, durationS: lastsS }: { readonly perS: number; readonly durationS: number },
  scale: number,
) => (perS + othersPerS) * scale * lastsS;

export const pullSurge: Scenario = {
  name: "pull-surge",
  summary:
    "Questions on 20 documents of 48,000 tokens. Every 18 s another one is the topic: 5 a second, and suddenly 60.",
  fleet: { preset: "h200-gpt-oss-120b", parameters: {}, engines: 16, routers: 1 },
  policies: ["epp_weighted", "least_work", "predicted_latency"],
  variants: [],
  published: [],
  durationS,
  isOpenLoop: true,
  createWorkload: (options) => {
    const { seed, scale } = options;
    const popular = createZipf({ count: requests.groups, exponent: zipf });
    const quietSessions = sessionsOf(quiet, scale);
    const topicSessions = quietSessions + sessionsOf(surge, scale);
    /** Questions per second on the topic around the start of a session, at scale 1. */
    const topicPerS = (session: number): number => (session % topicSessions < quietSessions ? quiet : surge).perS;
    const documentOf = (session: number): number => {
      const random = ownRandom(seed, session);
      const perS = topicPerS(session);
      const isTopic = random.float() * (perS + othersPerS) < perS;
      return isTopic ? Math.floor(session / topicSessions) % requests.groups : popular.draw(random);
    };
    return createOpenLoop({
      seed,
      startsPerS: (session) => (topicPerS(session) + othersPerS) * scale,
      meanTurns: 1,
      scriptOf: prefixGroupScripts(requests, seed, documentOf),
      limits: limitsOf(options, durationS),
    });
  },
};
