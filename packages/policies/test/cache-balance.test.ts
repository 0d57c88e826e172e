/**
 * What the policies that look at caches are for: conversations of growing prompts over engines whose caches are
 * bounded, with a queue of prefill at each. A share of the prompt is computed, the rest is found; what counts is how
 * long the answer takes to begin.
 */
import { createSeededRandom } from "@espalier/core";
import { type CandidateSet, createPolicy, hashString, type PolicyName } from "@espalier/policies";
import { expect, test } from "vitest";
import { candidatesOf, idleRows } from "./helpers.ts";

const engines = 8;
const cacheTokens = 60_000;
const sessions = 160;
const systemTokens = 512;
const tokensPerTick = 500;
const answerTicks = 40;

/** Tokens of each session's prompt that an engine holds, the least recently used session first. */
type Cache = Map<number, number>;

interface Outcome {
  /** Share of all prompt tokens that was found in the cache. */
  readonly found: number;
  /** Mean ticks until the prompt is computed, those in the queue included. */
  readonly waitTicks: number;
}

function remember(cache: Cache, session: number, tokens: number): number {
  cache.delete(session);
  cache.set(session, tokens);
  let held = [...cache.values()].reduce((sum, one) => sum + one, 0);
  for (const [oldest, oldTokens] of cache) {
    if (held <= cacheTokens) break;
    cache.delete(oldest);
    held -= oldTokens;
  }
  return held;
}

/** Each tick one session takes its next turn; the request is charged with what it has to compute until that is done. */
function run(name: PolicyName, options: Readonly<Record<string, number>> = {}, turns = 3_000): Outcome {
  const policy = createPolicy(name, options);
  const random = createSeededRandom(6);
  const candidates = candidatesOf(idleRows(engines));
  const caches: Cache[] = Array.from({ length: engines }, () => new Map());
  const prompts = Array.from({ length: sessions }, () => systemTokens + random.integer(400));
  let running: { readonly index: number; readonly endsAt: number }[] = [];
  let asked = 0;
  let found = 0;
  let waited = 0;
  for (let tick = 0; tick < turns; tick++) {
    for (const one of running.filter(({ endsAt }) => endsAt <= tick)) candidates.inFlight[one.index]! -= 1;
    running = running.filter(({ endsAt }) => endsAt > tick);
    for (let index = 0; index < engines; index++) {
      candidates.pendingPrefillTokens[index] = Math.max(0, candidates.pendingPrefillTokens[index]! - tokensPerTick);
    }
    const session = random.integer(sessions);
    const promptTokens = prompts[session]!;
    tell(candidates, caches, session, promptTokens);
    const request = {
      promptTokens,
      expectedOutputTokens: 200,
      sessionKey: `session ${session}`,
      prefixKey: hashString(`session ${session}`, 1),
    };
    const { index } = policy.choose(request, candidates, random);
    asked += promptTokens;
    found += candidates.matchedTokens[index]!;
    candidates.pendingPrefillTokens[index]! += promptTokens - candidates.matchedTokens[index]!;
    candidates.inFlight[index]! += 1;
    const wait = Math.ceil(candidates.pendingPrefillTokens[index]! / tokensPerTick);
    waited += wait;
    running.push({ index, endsAt: tick + wait + answerTicks });
    candidates.heldTokens[index] = remember(caches[index]!, session, promptTokens);
    prompts[session] = promptTokens > 6_000 ? systemTokens : promptTokens + 300 + random.integer(300);
  }
  return { found: found / asked, waitTicks: waited / turns };
}

/** Every engine that has seen anything holds the system prompt; beyond it only what it keeps of the session. */
function tell(candidates: CandidateSet, caches: readonly Cache[], session: number, promptTokens: number): void {
  for (let index = 0; index < engines; index++) {
    const cache = caches[index]!;
    const shared = cache.size > 0 ? systemTokens : 0;
    const matched = Math.min(promptTokens - 1, Math.max(shared, cache.get(session) ?? 0));
    candidates.matchedTokens[index] = matched;
    candidates.running[index] = candidates.inFlight[index]!;
    candidates.waiting[index] = Math.ceil(candidates.pendingPrefillTokens[index]! / 2_000);
    candidates.inFlightAtSignal[index] = candidates.inFlight[index]!;
    candidates.signalAgeMs[index] = 0;
    candidates.kvUse[index] = Math.min(1, (candidates.inFlight[index]! * 3_000) / cacheTokens);
  }
}

const names = [
  "random",
  "least_tokens",
  "consistent_hashing",
  "prefix_hash",
  "cache_aware",
  "epp_weighted",
  "affinity_filter",
  "dynamo",
  "lmetric",
  "least_work",
] as const;
const outcomes = Object.fromEntries(names.map((name) => [name, run(name)])) as Record<(typeof names)[number], Outcome>;

test("who looks at caches finds most of a prompt there, who hashes half, who does neither a quarter", () => {
  for (const name of ["random", "least_tokens"] as const) expect(outcomes[name].found).toBeLessThan(0.3);
  for (const name of ["consistent_hashing", "prefix_hash"] as const) {
    expect(outcomes[name].found).toBeGreaterThan(0.45);
    expect(outcomes[name].found).toBeLessThan(0.58);
  }
  for (const name of ["cache_aware", "epp_weighted", "affinity_filter", "lmetric", "least_work"] as const) {
    expect(outcomes[name].found).toBeGreaterThan(0.6);
  }
  // At its default scale a block of decode weighs as much as one of prefill.
  expect(outcomes.dynamo.found).toBeGreaterThan(0.57);
});

test("the wait is shortest where both the cache and the queue count", () => {
  for (const name of ["epp_weighted", "affinity_filter", "dynamo", "lmetric", "least_work"] as const) {
    expect(outcomes[name].waitTicks).toBeLessThan(0.8 * outcomes.consistent_hashing.waitTicks);
    expect(outcomes[name].waitTicks).toBeLessThan(0.65 * outcomes.least_tokens.waitTicks);
  }
});

test("a threshold of 64 requests lets queues grow long before the cache_aware of SGLang 0.4 leaves a match", () => {
  const { waitTicks } = run("cache_aware", { "miss-to-free-cache": 1 });
  expect(waitTicks).toBeGreaterThan(2 * outcomes.least_work.waitTicks);
});
