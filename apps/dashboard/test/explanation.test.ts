import { expect, test } from "vitest";
import { readExplanation } from "../src/model/explanation.ts";

const candidate = (key: string, cost: number | null, changes: object = {}) => ({
  ...{ key, eligible: true, probability: 0.5, cost, scores: {}, terms: { work_ms: 12, wait_ms: 0, none: null } },
  load: { own: { inFlight: 2, pendingPrefillTokens: 0 }, others: { inFlight: 3, pendingPrefillTokens: 0, ageMs: 1 } },
  ...{ facts: { blocks: { gpu: 4, cpu: 2 }, quality: "complete", feed: null }, placement: { blocks: 9 } },
  ...changes,
});

test("candidates by cost, with the load of all routers, the blocks they have and what the cost is made of", () => {
  const { candidates, excluded, ...head } = readExplanation({
    ...{ router: "r1", policy: "predicted_latency", reason: "least_time", choice: { key: "b", probability: 1 } },
    prompt: { tokens: 100, blocks: 6, blockSize: 16, from: "tokens", unread: null },
    candidates: [candidate("a", 7), candidate("c", null, { eligible: false, facts: null }), candidate("b", 3)],
    excluded: [{ key: "d", reasons: ["is down", "drains"] }],
  });
  expect(head).toMatchObject({ router: "r1", choice: "b", reason: "least_time", promptTokens: 100, blocks: 6 });
  expect(candidates.map(({ key }) => key)).toEqual(["b", "a", "c"]);
  expect(candidates[0]).toMatchObject({ cost: 3, inFlight: 5, knownBlocks: 9, terms: [["work_ms", 12]] });
  expect(candidates[2]).toMatchObject({ isEligible: false, cost: null, knownBlocks: 9 });
  expect(excluded).toEqual([{ key: "d", reasons: "is down; drains" }]);
});

test("an answer of another form has no candidate", () => {
  for (const strange of [null, [], { candidates: 3, choice: "x" }, { candidates: [null] }]) {
    expect(readExplanation(strange).choice).toBeNull();
  }
});
