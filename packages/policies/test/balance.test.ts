/**
 * What the policies are for: requests come and go over a simulated pool, and the spread of load is that which theory
 * and experience give each policy.
 */
import { createSeededRandom } from "@espalier/core";
import { type CandidateSet, createPolicy, type PolicyName } from "@espalier/policies";
import { expect, test } from "vitest";
import { candidatesOf, idleRows, ofTokens } from "./helpers.ts";

const engines = 16;

interface Job {
  readonly index: number;
  readonly tokens: number;
  readonly endsAt: number;
}

interface Outcome {
  /** Mean over time of the highest load of any engine, in requests and in tokens. */
  readonly peakRequests: number;
  readonly peakTokens: number;
  /** Share of requests of a session that went where its first one went. */
  readonly stayed: number;
}

/** One request per tick for `ticks` ticks, each holding its engine for a time that grows with its heavy-tailed tokens. */
function run(name: PolicyName, ticks = 4_000): Outcome {
  const policy = createPolicy(name);
  const random = createSeededRandom(21);
  const candidates = candidatesOf(idleRows(engines));
  const homes = new Map<string, number>();
  let jobs: Job[] = [];
  let peakRequests = 0;
  let peakTokens = 0;
  let repeats = 0;
  let stayed = 0;
  for (let tick = 0; tick < ticks; tick++) {
    const ended = jobs.filter((job) => job.endsAt <= tick);
    for (const job of ended) charge(candidates, job, -1);
    jobs = jobs.filter((job) => job.endsAt > tick);
    const tokens = Math.ceil(200 * (1 - random.float()) ** -0.7);
    const sessionKey = `session-${random.integer(200)}`;
    const request = { promptTokens: tokens, expectedOutputTokens: 0, sessionKey, prefixKey: undefined };
    const { index } = policy.choose(request, candidates, random);
    const job = { index, tokens, endsAt: tick + 20 + Math.min(500, tokens / 10) };
    charge(candidates, job, 1);
    jobs.push(job);
    const home = homes.get(sessionKey);
    if (home === undefined) homes.set(sessionKey, index);
    else {
      repeats += 1;
      if (home === index) stayed += 1;
    }
    peakRequests += Math.max(...candidates.inFlight.subarray(0, engines)) / ticks;
    peakTokens += Math.max(...candidates.pendingPrefillTokens.subarray(0, engines)) / ticks;
  }
  for (const job of jobs) charge(candidates, job, -1);
  expect([...candidates.inFlight.subarray(0, engines)]).toEqual(Array.from({ length: engines }, () => 0));
  return { peakRequests, peakTokens, stayed: stayed / repeats };
}

function charge(candidates: CandidateSet, job: Job, sign: 1 | -1): void {
  candidates.inFlight[job.index]! += sign;
  candidates.pendingPrefillTokens[job.index]! += sign * job.tokens;
}

const outcomes = Object.fromEntries(
  (["random", "round_robin", "power_of_two", "least_connections", "least_tokens", "consistent_hashing"] as const).map(
    (name) => [name, run(name)],
  ),
) as Record<PolicyName, Outcome>;

test("requests: the least loaded is best, two choices are near it, random is far from it", () => {
  const { random, power_of_two: two, least_connections: least, round_robin: rotation } = outcomes;
  expect(least.peakRequests).toBeLessThan(two.peakRequests);
  expect(two.peakRequests).toBeLessThan(rotation.peakRequests);
  expect(rotation.peakRequests).toBeLessThan(random.peakRequests);
  expect(random.peakRequests / least.peakRequests).toBeGreaterThan(1.5);
});

test("tokens: a policy that counts tokens spreads them best", () => {
  const rest = Object.entries(outcomes).filter(([name]) => name !== "least_tokens");
  for (const [, outcome] of rest) expect(outcomes.least_tokens.peakTokens).toBeLessThan(outcome.peakTokens);
});

test("sessions: hashing keeps several times more than chance, and its bound keeps it more even than random", () => {
  expect(outcomes.consistent_hashing.stayed).toBeGreaterThan(0.4);
  for (const name of ["random", "round_robin", "least_connections", "least_tokens"] as const) {
    expect(outcomes[name].stayed).toBeLessThan(0.15);
  }
  expect(outcomes.consistent_hashing.peakRequests).toBeLessThan(outcomes.random.peakRequests);
});

test("an even load: with equal requests that never end, the least loaded differ by one at most", () => {
  const policy = createPolicy("least_connections");
  const random = createSeededRandom(2);
  const candidates = candidatesOf(idleRows(7));
  for (let request = 0; request < 500; request++) {
    const { index } = policy.choose(ofTokens(1), candidates, random);
    candidates.inFlight[index]! += 1;
    const loads = candidates.inFlight.subarray(0, 7);
    expect(Math.max(...loads) - Math.min(...loads)).toBeLessThanOrEqual(1);
  }
});

test("weights: requests that never end settle in proportion to them", () => {
  const policy = createPolicy("least_connections");
  const random = createSeededRandom(2);
  const candidates = candidatesOf([{ key: "a", weight: 0.5 }, { key: "b" }, { key: "c", weight: 2.5 }]);
  for (let request = 0; request < 400; request++) {
    const { index } = policy.choose(ofTokens(1), candidates, random);
    candidates.inFlight[index]! += 1;
  }
  const expected = [50, 100, 250];
  for (const [i, share] of expected.entries()) expect(Math.abs(candidates.inFlight[i]! - share)).toBeLessThanOrEqual(1);
});
