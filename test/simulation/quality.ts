import { createSeededRandom } from "@espalier/common";
import { SimFleet, type SimRequest } from "@espalier/simulator";
import { Conversations } from "./conversations.ts";
import { pick } from "./repeat.ts";
import type { Swarm } from "./swarm.ts";

/** Conversations of the probe, each of several turns, one request after the other. */
const probeConversations = 5;
const probeRequests = 30;
/** The cached share may be so much less than with one router that knows everything. */
const toleratedShare = 0.05;
/**
 * What one router comes to with so few requests depends on which of equal engines its policy draws, by up to 18 points. So
 * it is given so many tries, each with other draws, and the worst of them is the measure.
 */
const oracleTries = 8;
/** Numbers of requests and conversations of probes; those of runs stay below. */
const firstOfProbe = 1_000_000;
const requestTimeoutMs = 30_000;

/**
 * Sends conversations through a fleet that has healed, and the same ones through fleets with one router that nothing has
 * happened to.
 *
 * @returns what is wrong, in words
 */
export async function probeQuality(fleet: SimFleet, swarm: Swarm): Promise<string | undefined> {
  const reached = await cachedShare(fleet, swarm);
  let least = 1;
  for (let attempt = 0; attempt < oracleTries; attempt++) {
    least = Math.min(least, await oracleShare(swarm, swarm.seed + attempt));
    if (reached >= least - toleratedShare) return undefined;
  }
  return `after all has healed ${reached.toFixed(3)} of prompts is cached; with one router it is ${least.toFixed(3)} at least`;
}

async function oracleShare(swarm: Swarm, seed: number): Promise<number> {
  const { engines, parameters, policy, timing } = swarm;
  const oracle = new SimFleet({
    ...{ engines, parameters, policy, timing, seed },
    ...{ routers: 1, sharing: "mesh", links: "real" },
  });
  await oracle.start();
  const share = await cachedShare(oracle, swarm);
  await oracle.stop();
  return share;
}

async function cachedShare(fleet: SimFleet, { seed, parameters }: Swarm): Promise<number> {
  const random = createSeededRandom(seed * 31 + 3);
  const maxTokens = Math.min(parameters.maxModelLength, Math.floor(parameters.blockCount / 2) * parameters.blockSize);
  const conversations = new Conversations({ random, count: probeConversations, maxTokens, first: firstOfProbe });
  let cached = 0;
  let prompts = 0;
  for (let sent = 0; sent < probeRequests; sent++) {
    const request = conversations.next();
    if (!request) break;
    cached += await answered(fleet, request);
    prompts += request.promptTokens;
    conversations.ended(request, true);
    await fleet.run(fleet.time.clock.nowMs() + pick(random, [0, 50, 200]));
  }
  return cached / prompts;
}

/** @returns cached tokens */
async function answered(fleet: SimFleet, request: SimRequest): Promise<number> {
  let cached: number | undefined;
  fleet.send(request, ({ cachedTokens, error }) => {
    if (error !== undefined) throw new Error(`a request of the probe failed: ${error}`);
    cached = cachedTokens;
  });
  const endMs = fleet.time.clock.nowMs() + requestTimeoutMs;
  while (cached === undefined) {
    if (fleet.time.clock.nowMs() > endMs) throw new Error("a request of the probe was not answered");
    await fleet.run(fleet.time.clock.nowMs() + 20);
  }
  return cached;
}
