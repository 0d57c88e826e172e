/** What each policy says about one worked example. Commands and pages show these objects as they are. */
import { createSeededRandom } from "@espalier/core";
import { createPolicy, type ExplainedCandidate, policyNames } from "@espalier/policies";
import { expect, test } from "vitest";
import { anyRequest, candidatesOf, inSession, withPrefix } from "./helpers.ts";

/** `west` serves other clients too, `east` does not report, `spare` takes nothing unless it must. */
const example = () =>
  candidatesOf([
    {
      key: "west",
      inFlight: 2,
      pendingPrefillTokens: 1_000,
      decodeTokens: 3_000,
      activeTokens: 3_200,
      newActiveTokens: 176,
      running: 5,
      waiting: 1,
      kvUse: 0.25,
      kvCapacityTokens: 40_000,
      signalAgeMs: 400,
      inFlightAtSignal: 2,
      matchedTokens: 320,
      matchedCpuTokens: 80,
      matchAgeMs: 9_000,
      heldTokens: 24_000,
    },
    { key: "east", inFlight: 4, pendingPrefillTokens: 500, decodeTokens: 2_000, activeTokens: 2_400, weight: 2 },
    { key: "spare", weight: 0 },
  ]);

const said = (one: ExplainedCandidate) => ({ probability: one.probability, cost: one.cost, terms: one.terms });
const explain = (name: string, request = anyRequest) => {
  const explanation = createPolicy(name).explain(request, example());
  return { reason: explanation.reason, candidates: explanation.candidates.map(said) };
};
const unjudged = { probability: 0, cost: null, terms: {} };

test("every signal is there, unknown ones as null", () => {
  const { policy, candidates } = createPolicy("random").explain(anyRequest, example());
  expect(policy).toBe("random");
  expect(candidates[0]).toMatchObject({
    key: "west",
    target: 100,
    eligible: true,
    signals: {
      weight: 1,
      inFlight: 2,
      pendingPrefillTokens: 1_000,
      decodeTokens: 3_000,
      running: 5,
      waiting: 1,
      kvUse: 0.25,
      kvCapacityTokens: 40_000,
      signalAgeMs: 400,
      inFlightAtSignal: 2,
      matchedTokens: 320,
      matchedCpuTokens: 80,
      matchedDiskTokens: 0,
      matchedExternalTokens: 0,
      matchedPoolTokens: 0,
      matchAgeMs: 9_000,
      heldTokens: 24_000,
    },
  });
  expect(candidates[1]!.signals).toEqual({
    weight: 2,
    inFlight: 4,
    pendingPrefillTokens: 500,
    decodeTokens: 2_000,
    answers: 0,
    activeTokens: 2_400,
    newActiveTokens: null,
    sessions: 0,
    running: null,
    waiting: null,
    kvUse: null,
    kvCapacityTokens: null,
    signalAgeMs: null,
    inFlightAtSignal: null,
    matchedTokens: 0,
    matchedCpuTokens: 0,
    matchedDiskTokens: 0,
    matchedExternalTokens: 0,
    matchedPoolTokens: 0,
    matchAgeMs: null,
    heldTokens: null,
    lendableTokens: 0,
    lendingTokens: 0,
    lendTrust: 1,
    pullProtocol: 0,
    pullMsPerToken: null,
    pulledTokens: 0,
    pullMs: 0,
    pullFrom: null,
    own: 0,
    networkMs: null,
    backlogMs: null,
    prefillMsPerToken: null,
    prefillMsPerTokenPair: null,
    cpuFetchMsPerToken: null,
    diskFetchMsPerToken: null,
    externalFetchMsPerToken: null,
    adapterState: null,
  });
  expect(candidates[2]).toMatchObject({ key: "spare", target: 102, eligible: false });
});

test("random: the shares of the weights, no cost", () => {
  expect(explain("random")).toEqual({
    reason: "random",
    candidates: [
      { probability: 1 / 3, cost: null, terms: {} },
      { probability: 2 / 3, cost: null, terms: {} },
      unjudged,
    ],
  });
});

test("round_robin: the credit of each with this turn's earnings", () => {
  expect(explain("round_robin")).toEqual({
    reason: "rotation",
    candidates: [
      { probability: 0, cost: null, terms: { credit: 1 } },
      { probability: 1, cost: null, terms: { credit: 2 } },
      unjudged,
    ],
  });
});

test("least_connections: 4 requests of others at west, so 8 for the silent one of twice the weight", () => {
  expect(explain("least_connections")).toEqual({
    reason: "least_load",
    candidates: [
      { probability: 0, cost: 7, terms: { requests: 7 } },
      { probability: 1, cost: 6.5, terms: { requests: 6.5 } },
      unjudged,
    ],
  });
});

test("power_of_two: of two candidates the better one", () => {
  expect(explain("power_of_two")).toEqual({
    reason: "better_of_two",
    candidates: [
      { probability: 0, cost: 7, terms: { requests: 7 } },
      { probability: 1, cost: 6.5, terms: { requests: 6.5 } },
      unjudged,
    ],
  });
});

test("least_tokens: KV blocks of others and one queued request of theirs", () => {
  // West holds 10,000 tokens, 3,000 of them ours; 1 of its 4 foreign requests waits.
  const foreign = 7_000 + 1_024;
  const east = (2 * foreign + 2_500 + 600) / 2;
  expect(explain("least_tokens")).toEqual({
    reason: "least_load",
    candidates: [
      { probability: 0, cost: 4_600 + foreign, terms: { tokens: 4_600 + foreign } },
      { probability: 1, cost: east, terms: { tokens: east } },
      unjudged,
    ],
  });
});

test("consistent_hashing: load, bound and the order of the walk", () => {
  // 6 requests at west and 12 at east, so the bounds are shares of 1.25 x 19.
  const { reason, candidates } = explain("consistent_hashing", inSession("example"));
  expect(candidates.map((one) => [one.terms.load, one.terms.load_bound])).toEqual([
    [6, 8],
    [12, 16],
    [undefined, undefined],
  ]);
  expect(candidates.map((one) => one.terms.walk_order)).toEqual(
    candidates[0]!.probability === 1 ? [0, 1, undefined] : [1, 0, undefined],
  );
  expect(candidates[0]!.probability + candidates[1]!.probability).toBe(1);
  expect(reason).toBe("hash");
});

test("consistent_hashing without a bound explains it as null", () => {
  const policy = createPolicy("consistent_hashing", { "load-factor": 0 });
  const { candidates } = policy.explain(inSession("example"), example());
  expect(candidates[0]!.terms.load_bound).toBeNull();
});

test("prefix_hash: as consistent_hashing, for the key of the prefix", () => {
  const { reason, candidates } = explain("prefix_hash", withPrefix(1));
  expect(candidates.map((one) => [one.terms.requests, one.terms.load, one.terms.load_bound])).toEqual([
    [7, 6, 8],
    [6.5, 12, 16],
    [undefined, undefined, undefined],
  ]);
  expect(candidates[0]!.probability + candidates[1]!.probability).toBe(1);
  expect(reason).toBe("hash");
});

test("cache_aware: the match, the loads for the weight, and what the caches hold", () => {
  // 320 tokens and three quarters of 80 are 0.76 of the prompt; silent east is taken to hold as much for its weight.
  expect(explain("cache_aware")).toEqual({
    reason: "prefix_match",
    candidates: [
      { probability: 1, cost: 6, terms: { load: 6, match_share: 0.76, held_tokens: 24_000 } },
      { probability: 0, cost: 6, terms: { load: 6, match_share: 0, held_tokens: 24_000 } },
      unjudged,
    ],
  });
});

test("epp_weighted: scores with a minus, of which the highest sum wins", () => {
  // Only west reports, so its queue and its KV use stand for both.
  expect(explain("epp_weighted")).toEqual({
    reason: "best_score",
    candidates: [
      {
        probability: 1,
        cost: expect.closeTo(-5.78, 9),
        terms: { queue: -2, kv_cache_utilization: -1.5, prefix_cache: expect.closeTo(-2.28, 9) },
      },
      { probability: 0, cost: -3.5, terms: { queue: -2, kv_cache_utilization: -1.5, prefix_cache: 0 } },
      unjudged,
    ],
  });
});

test("affinity_filter: the match, the time that prompts in flight take, and prefill where nobody holds enough", () => {
  // 0.76 of the prompt is not 0.8. 15,928 tokens take a second.
  const foreign = { foreign_prefill_tokens: 1_024 };
  expect(explain("affinity_filter")).toEqual({
    reason: "least_load",
    candidates: [
      {
        probability: 0,
        cost: 2_144,
        terms: {
          ...{ queued_prefill_tokens: 2_024, pending_prefill_tokens: 1_000, ...foreign, uncached_tokens: 120 },
          ...{ match_share: 0.76, queued_prefill_ms: expect.closeTo(2_024 / 15.928, 9) },
        },
      },
      {
        probability: 1,
        cost: 1_524,
        terms: {
          ...{ queued_prefill_tokens: 1_274, pending_prefill_tokens: 250, ...foreign, uncached_tokens: 250 },
          ...{ match_share: 0, queued_prefill_ms: expect.closeTo(1_274 / 15.928, 9) },
        },
      },
      unjudged,
    ],
  });
});

test("dynamo: blocks of prefill less the credit, and blocks of decode, with what they are made of", () => {
  // (2,024 + 500) / 16 - 380 / 16, and (3,200 + 176) / 16; at east the same for its weight, without a credit, and with all 31
  // full blocks of the prompt new.
  expect(explain("dynamo")).toEqual({
    reason: "least_cost",
    candidates: [
      {
        probability: 0,
        cost: 345,
        terms: {
          prefill_blocks: 134,
          pending_prefill_tokens: 1_000,
          foreign_prefill_tokens: 1_024,
          credit_blocks: 23.75,
          decode_blocks: 211,
        },
      },
      {
        probability: 1,
        cost: 185.75,
        terms: {
          prefill_blocks: 95.25,
          pending_prefill_tokens: 250,
          foreign_prefill_tokens: 1_024,
          credit_blocks: 0,
          decode_blocks: 90.5,
        },
      },
      unjudged,
    ],
  });
});

test("lmetric: the product, and its factors", () => {
  expect(explain("lmetric")).toEqual({
    reason: "least_cost",
    candidates: [
      {
        probability: 0,
        cost: 2_144 * 7,
        terms: {
          prefill_times_batch: 2_144 * 7,
          pending_prefill_tokens: 1_000,
          foreign_prefill_tokens: 1_024,
          uncached_tokens: 120,
          requests: 7,
        },
      },
      {
        probability: 1,
        cost: 1_524 * 6.5,
        terms: {
          prefill_times_batch: 1_524 * 6.5,
          pending_prefill_tokens: 250,
          foreign_prefill_tokens: 1_024,
          uncached_tokens: 250,
          requests: 6.5,
        },
      },
      unjudged,
    ],
  });
});

test("least_work: prefill of ours, of others and of the prompt in hand, for the weight", () => {
  // One foreign request waits at west, so two at east; 380 of 500 tokens are matched.
  const noAdapter = { adapter_load_tokens: 0 };
  expect(explain("least_work")).toEqual({
    reason: "least_work",
    candidates: [
      {
        probability: 0,
        cost: 2_144,
        terms: {
          pending_prefill_tokens: 1_000,
          foreign_prefill_tokens: 1_024,
          ...noAdapter,
          uncached_tokens: 120,
          requests: 7,
        },
      },
      {
        probability: 1,
        cost: 1_524,
        terms: {
          pending_prefill_tokens: 250,
          foreign_prefill_tokens: 1_024,
          ...noAdapter,
          uncached_tokens: 250,
          requests: 6.5,
        },
      },
      unjudged,
    ],
  });
});

test.each(policyNames)("%s with one candidate left says so, and which filter left the other out", (name) => {
  const candidates = candidatesOf([{ key: "spare", weight: 0 }, { key: "only" }]);
  const explanation = createPolicy(name).explain(inSession("x"), candidates);
  expect(explanation.reason).toBe("only_candidate");
  expect(explanation.candidates.map((one) => one.probability)).toEqual([0, 1]);
  expect(explanation.candidates.map((one) => one.filteredBy)).toEqual(["weighted_only", null]);
  const { filteredBy, ...choice } = createPolicy(name).choose(inSession("x"), candidates, createSeededRandom(1));
  expect([0, 1].map((index) => filteredBy?.(index))).toEqual(["weighted_only", undefined]);
  expect(choice).toEqual({
    index: 1,
    target: 101,
    reason: "only_candidate",
    creditMs: 0,
  });
});
