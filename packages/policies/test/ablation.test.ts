import { createSeededRandom } from "@espalier/core";
import { createPolicy, createPolicyWithout, defaultPolicyParts, type RequestFeatures } from "@espalier/policies";
import { expect, test } from "vitest";
import { byKey, type CandidateRow, candidatesOf, ofTokens } from "./helpers.ts";

const learned = { backlogMs: 0, prefillMsPerToken: 0.1, prefillMsPerTokenPair: 0 };
const prompt: RequestFeatures = ofTokens(4_000);

function explain(part: string | undefined, rows: readonly CandidateRow[], request = prompt) {
  const known = candidatesOf(rows.map(({ key, ...row }) => ({ key, ...learned, ...row })));
  const policy = part === undefined ? createPolicy("predicted_latency") : createPolicyWithout(part);
  return policy.explain(request, known);
}

const shares = (...args: Parameters<typeof explain>) => byKey(explain(...args));
const costs = (...args: Parameters<typeof explain>) => explain(...args).candidates.map(({ cost }) => cost);

test("every term and every filter is a part, under the name that explanations have; an operator's weights are not", () => {
  const terms = Object.keys(explain(undefined, [{ key: "a" }, { key: "b" }]).candidates[0]!.scores);
  expect(defaultPolicyParts).toEqual(expect.arrayContaining([...terms, "below_hotspot"]));
  expect(defaultPolicyParts).not.toContain("weighted_only");
  expect(new Set(defaultPolicyParts).size).toBe(defaultPolicyParts.length);
});

/** Candidates, a request, and what they get from the whole policy and without the part. */
const engines: readonly CandidateRow[] = [{ key: "a" }, { key: "b" }];
test.each<[string, readonly CandidateRow[], Partial<RequestFeatures>, object, object]>([
  ["backlog_ms", [{ key: "a", backlogMs: 90 }, { key: "b" }], {}, { a: 0, b: 1 }, { a: 0.5, b: 0.5 }],
  ["own_work_ms", [{ key: "a" }, { key: "b", matchedTokens: 3_000 }], {}, { a: 0, b: 1 }, { a: 0.5, b: 0.5 }],
  [
    "network_ms",
    [
      { key: "a", networkMs: 90 },
      { key: "b", networkMs: 1 },
    ],
    {},
    { a: 0, b: 1 },
    { a: 0.5, b: 0.5 },
  ],
  [
    "cost_to_others",
    [{ key: "a", backlogMs: 500, matchedTokens: 4_000 }, { key: "b" }],
    { busyShare: 0.7 },
    { a: 1, b: 0 },
    { a: 0, b: 1 },
  ],
  ["stalled_answers", [{ key: "a", answers: 50 }, { key: "b" }], {}, { a: 0, b: 1 }, { a: 0.5, b: 0.5 }],
  [
    "long_stalls",
    [
      { key: "a", answers: 2 },
      { key: "b", backlogMs: 200 },
    ],
    { promptTokens: 64_000, busyShare: 0.9 },
    { a: 0, b: 1 },
    { a: 1, b: 0 },
  ],
  [
    "avoidable_stalls",
    [
      { key: "a", answers: 4 },
      { key: "b", backlogMs: 30 },
    ],
    {},
    { a: 0, b: 1 },
    { a: 1, b: 0 },
  ],
  [
    "dead_reckoning",
    [
      { key: "a", backlogMs: 10, pendingPrefillTokens: 9_000 },
      { key: "b", backlogMs: 90 },
    ],
    {},
    { a: 1, b: 0 },
    { a: 0, b: 1 },
  ],
  ["below_hotspot", [{ key: "a", inFlight: 100, backlogMs: -500 }, ...idle(9)], {}, { a: 0 }, { a: 1 }],
  [
    "second_copy",
    [{ key: "a", matchedTokens: 3_900, backlogMs: 100 }, { key: "b" }],
    { sharedTokens: 3_900, creditPaidMs: 9_000 },
    { a: 0, b: 1 },
    { a: 1, b: 0 },
  ],
  [
    "near_ties",
    [
      { key: "a", backlogMs: 5 },
      { key: "b", inFlight: 2 },
    ],
    {},
    { a: 1, b: 0 },
    { a: 0, b: 1 },
  ],
  [
    "peer_level",
    [{ key: "a", backlogMs: 5 }, { key: "b" }],
    { estimatedPeerTokens: 900 },
    { a: expect.closeTo(0.47, 1) },
    { a: 0.5 },
  ],
  ["burst_rendezvous", engines, { coldKey: 1 }, { a: 1, b: 0 }, { a: 0.5, b: 0.5 }],
  [
    "own_engines",
    [{ key: "a", own: 1, backlogMs: 10 }, { key: "b" }],
    { ownershipMs: 20 },
    { a: 1, b: 0 },
    { a: 0, b: 1 },
  ],
  [
    "ownership_ms",
    [{ key: "a", own: 1, backlogMs: 10 }, { key: "b" }],
    { ownershipMs: 20 },
    { a: 1, b: 0 },
    { a: 0, b: 1 },
  ],
])("%s, and without it", (part, rows, request, whole, without) => {
  expect(shares(undefined, rows, { ...prompt, ...request })).toMatchObject(whole);
  expect(shares(part, rows, { ...prompt, ...request })).toMatchObject(without);
});

function idle(count: number): readonly CandidateRow[] {
  return Array.from({ length: count }, (_, at) => ({ key: `idle-${at}` }));
}

test("a term that is left out scores nothing, and all others score as before", () => {
  const rows: CandidateRow[] = [
    { key: "a", backlogMs: 7, inFlight: 3, answers: 2 },
    { key: "b", matchedTokens: 900 },
  ];
  const whole = explain(undefined, rows).candidates;
  const without = explain("requests", rows).candidates;
  for (const [at, { scores }] of whole.entries()) {
    expect(without[at]!.scores).toEqual({ ...scores, requests: 0 });
  }
});

test("the caller's candidates stay as they were, and a choice is the one that is explained", () => {
  const rows = [
    { key: "a", answers: 50, ...learned },
    { key: "b", ...learned, backlogMs: 20 },
  ];
  const candidates = candidatesOf(rows);
  const policy = createPolicyWithout("stalled_answers");
  expect(policy).toMatchObject({ name: "predicted_latency", readsPrefixes: true });
  const { target, reason } = policy.choose(prompt, candidates, createSeededRandom(1));
  expect([target, reason]).toEqual([100, "least_time"]);
  expect([...candidates.answers.subarray(0, 2)]).toEqual([50, 0]);
});

test("options are those of the policy, and a part that there is not is refused", () => {
  const candidates = candidatesOf([
    { key: "a", ...learned, signalAgeMs: 100, inFlightAtSignal: 2, inFlight: 0, running: 10, waiting: 3 },
    { key: "b", ...learned },
  ]);
  const costsWith = (tokens: number) =>
    createPolicyWithout("network_ms", { "foreign-request-tokens": tokens }).explain(prompt, candidates).candidates[0]!
      .cost!;
  expect(costsWith(100)).toBeGreaterThan(costsWith(10));
  expect(() => createPolicyWithout("network_ms", { objective: "e2e" })).toThrow("policy-options.objective");
  expect(() => createPolicyWithout("luck")).toThrow(RangeError);
  expect(costs("network_ms", engines)).toEqual(costs(undefined, engines));
});
