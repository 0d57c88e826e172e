import { createSeededRandom } from "@espalier/core";
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
/** Between the numbers of one probe and the next. */
const roundStride = 1_000;
const requestTimeoutMs = 30_000;

/** Chance that goes against the fleet once goes for it another time: a probe that comes out badly is made so often more. */
const furtherProbes = 3;

/**
 * Sends conversations through a fleet that has healed, and the same ones through fleets with one router that nothing has
 * happened to.
 *
 * @returns what is wrong, in words
 */
export async function probeQuality(fleet: SimFleet, swarm: Swarm): Promise<string | undefined> {
  const first = await probe(fleet, swarm, 0);
  if (isGood(first)) return undefined;
  const probes = [first];
  for (let round = 1; round <= furtherProbes; round++) probes.push(await probe(fleet, swarm, round));
  const all = {
    reached: probes.reduce((sum, { reached }) => sum + reached, 0) / probes.length,
    least: probes.reduce((sum, { least }) => sum + least, 0) / probes.length,
  };
  if (isGood(all)) return undefined;
  const shares = probes.map(({ reached, least }) => `${reached.toFixed(3)} of ${least.toFixed(3)}`).join(", ");
  return `after all has healed less of prompts is cached than with one router at least: ${shares}`;
}

interface Probe {
  readonly reached: number;
  readonly least: number;
}

const isGood = ({ reached, least }: Probe): boolean => reached >= least - toleratedShare;

async function probe(fleet: SimFleet, swarm: Swarm, round: number): Promise<Probe> {
  const reached = await cachedShare(fleet, swarm, round);
  let least = 1;
  for (let attempt = 0; attempt < oracleTries && !isGood({ reached, least }); attempt++) {
    least = Math.min(least, await oracleShare(swarm, { seed: swarm.seed + attempt, round }));
  }
  return { reached, least };
}

async function oracleShare(
  swarm: Swarm,
  { seed, round }: { readonly seed: number; readonly round: number },
): Promise<number> {
  const { engines, parameters, policy, timing } = swarm;
  const oracle = new SimFleet({
    ...{ engines, parameters, policy, timing, seed },
    ...{ routers: 1, sharing: "mesh", links: "real" },
  });
  await oracle.start();
  const share = await cachedShare(oracle, swarm, round);
  await oracle.stop();
  return share;
}

async function cachedShare(fleet: SimFleet, { seed, parameters }: Swarm, round: number): Promise<number> {
  const random = createSeededRandom(seed * 31 + 3 + round * roundStride);
  const maxTokens = Math.min(parameters.maxModelLength, Math.floor(parameters.blockCount / 2) * parameters.blockSize);
  const first = firstOfProbe + round * roundStride;
  const conversations = new Conversations({ random, count: probeConversations, maxTokens, first });
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
